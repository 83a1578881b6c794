"""Objects and settings for other parts of a cluster, which ``polyarch taint plan --emit`` prints; pure."""
