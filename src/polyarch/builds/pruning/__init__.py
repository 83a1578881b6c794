"""Deletes old executions, and the images that nothing refers to any more (BD-230 to BD-236)."""
