"""What the role ``taints`` does, one duty per module; ``run.taints`` puts them together."""
