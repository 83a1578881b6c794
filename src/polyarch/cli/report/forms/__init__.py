"""The forms of a report (RP-020): each is made of the document alone."""
