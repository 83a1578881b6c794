"""Whether a container has started, is ready and is alive: its probes, asked and counted (SB-011)."""
