"""Brings the children of a build together: verified, copied, joined in an index, tagged (BD-170 to BD-181)."""
