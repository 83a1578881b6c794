"""What the role ``builder`` is put together from."""
