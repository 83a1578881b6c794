"""Image builds: one native build for each architecture, joined in one index; only what changed is built again."""
