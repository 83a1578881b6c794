"""From a decision to a patch, events and an explanation. Pure."""
