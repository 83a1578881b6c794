"""What a cluster has, and what of it polyarch has made."""
