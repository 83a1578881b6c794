"""Placement: every pod is constrained to the architectures that all of its images support, before it is scheduled."""
