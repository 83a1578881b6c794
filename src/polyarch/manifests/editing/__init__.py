"""Changes of an object as splices of the text it is written in: no other character changes. Pure."""
