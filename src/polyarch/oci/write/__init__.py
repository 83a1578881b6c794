"""Putting an index together and bringing it to a repository (RG-150 to RG-157)."""
