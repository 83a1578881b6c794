"""What the planner is told: the wish, nodes, executions, Jobs, and the answers of registries. Pure."""
