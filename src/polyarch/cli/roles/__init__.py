"""``polyarch run``: the processes of the operator, their flags, and what they say when they cannot start."""
