"""Authentication: challenges, tokens, and credentials from files, helpers, plugins and pull secrets."""
