"""The report that the placement controller keeps in the cluster (RP-030)."""
