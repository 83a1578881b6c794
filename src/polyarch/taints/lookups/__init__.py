"""What decisions about taints are made from: the configuration, namespaces, and whether a leader lives."""
