"""What the planner is told: the build request, nodes, executions, Jobs, and what registries say. Pure."""
