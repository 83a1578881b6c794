"""``polyarch install``, ``uninstall`` and ``upgrade``: polyarch in a cluster."""
