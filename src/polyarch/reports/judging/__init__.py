"""Verdicts: one workload and one target, by the rules of placement and taints (RP-010)."""
