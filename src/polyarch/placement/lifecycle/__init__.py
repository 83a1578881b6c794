"""What the operator does in a cluster: the effects around the pure modules of ``placement.operator``."""
