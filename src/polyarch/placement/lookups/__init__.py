"""The inputs of decisions: configuration from the cluster, pull secrets, and image platforms."""
