"""Facts of one pod in, one decision out. Pure."""
