"""NUMA: every node publishes its zones, and pods are scheduled where they fit one."""
