"""Which node can hold a pod inside its NUMA zones, and which is best: facts in, decisions out. Pure."""
