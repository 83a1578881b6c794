"""Pods without a node: they get what the admission missed or could not know, and lose our gate (TN-043 to TN-049)."""
