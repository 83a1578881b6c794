"""What a cluster needs until its nodes can carry their taints: facts in, steps and blockers out."""
