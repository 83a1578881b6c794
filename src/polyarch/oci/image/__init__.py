"""From a reference to its platforms: manifests, configurations, indexes, layouts."""
