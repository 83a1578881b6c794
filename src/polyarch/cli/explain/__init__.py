"""``polyarch explain``: pods from files or the cluster, and what placement makes of them."""
