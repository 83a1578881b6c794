"""``polyarch install``, ``uninstall`` and ``upgrade``: polyarch in a cluster (IN-002 to IN-004)."""
