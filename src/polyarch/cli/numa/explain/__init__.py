"""``polyarch numa explain``: why a pod fits a node, or why not (NS-161)."""
