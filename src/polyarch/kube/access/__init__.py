"""Configuration of the client: kubeconfig, in-cluster, credentials, TLS (KR-001)."""
