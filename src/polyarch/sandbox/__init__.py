"""A real Kubernetes control plane, a real registry and fake nodes on one machine: for trying and for testing."""
