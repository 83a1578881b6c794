"""Parts that several roles of a process share: image look-ups, and the facts of each feature."""
