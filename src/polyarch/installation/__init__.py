"""Installing polyarch in a cluster, upgrading and removing it; one source of objects for every way in."""
