"""What the commands do to a cluster, step by step, with a controller running or without one."""
