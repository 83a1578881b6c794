"""Effects: what the operator watches and keeps in the cluster for every feature."""
