"""``polyarch build plan``: what would be built, and why (BD-302)."""
