"""What the project's own ``make`` runs: generated files, and a check over many real files. Not for users."""
