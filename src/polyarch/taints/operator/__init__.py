"""Objects of taints as pure functions: what the operator applies while ArchitectureTaints exists."""
