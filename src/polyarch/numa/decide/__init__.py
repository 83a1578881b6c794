"""From the facts of a machine and its kubelet to its zones. Pure."""
