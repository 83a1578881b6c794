"""From a reference to its platforms: manifests, configs, indexes, OCI layouts."""
