"""polyarch: an operator and a command-line tool for mixed-architecture Kubernetes clusters."""

__version__ = "0.1.0"
