"""The one writer of the status of ArchitectureTaints."""
