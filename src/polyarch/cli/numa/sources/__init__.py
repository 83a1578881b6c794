"""Nodes and pods as the commands about scheduling see them: from files, from a cluster, from an extender."""
