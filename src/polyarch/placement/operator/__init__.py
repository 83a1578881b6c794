"""The Kubernetes objects that placement needs in a cluster."""
