"""Shared by tests on real nodes."""

COST = "cost on real nodes"
"""Property of a test's report whose values are printed at the end of the run."""
