"""What an upgrade would change, and what stands in its way (IN-004)."""
