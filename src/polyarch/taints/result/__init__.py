"""From a decision to a patch and to events. Pure."""
