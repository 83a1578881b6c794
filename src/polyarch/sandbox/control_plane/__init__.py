"""etcd and the Kubernetes components: certificates, command lines, startup, health (SB-001, SB-003)."""
