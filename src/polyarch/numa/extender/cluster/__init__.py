"""What the extender reads and writes in its cluster."""
