"""Pods that the webhook missed: found, reported, and evicted if the policy says so (PL-370 to PL-372)."""
