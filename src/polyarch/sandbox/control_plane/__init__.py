"""etcd and the Kubernetes components: certificates, command lines, start and health (SB-001, SB-003)."""
