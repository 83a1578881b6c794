"""All nodes at once: what mode *exact* says of each of them, in a few milliseconds. Pure."""
