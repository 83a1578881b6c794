"""From the zones of a machine to what is written and shown: the object, its difference, tables. Pure."""
