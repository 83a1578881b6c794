"""What the operator's leader does about ArchitectureTaints: deploys the role, and removes it in order."""
