"""Where to ask: mirrors and rewritten names as the container tools are configured."""
