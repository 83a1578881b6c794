"""polyarch: Kubernetes clusters whose nodes are not all alike."""

__version__ = "0.1.0"
