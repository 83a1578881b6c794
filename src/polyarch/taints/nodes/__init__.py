"""The controller that taints nodes: which, when, how fast, and what it says about it (TN-020 to TN-027)."""
