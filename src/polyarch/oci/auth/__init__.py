"""Who asks: challenges, tokens, and the credentials of files, helpers, plugins and pull secrets."""
