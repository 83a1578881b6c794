"""Repairs, round by round, each proven before it is kept. Pure."""
