"""``polyarch inspect`` and ``polyarch index``, and asking registries for the images of other commands."""
