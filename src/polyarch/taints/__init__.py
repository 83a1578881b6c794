"""Taints by architecture: nodes are tainted, pods and DaemonSet templates get the tolerations their images justify."""
