"""The custom resource ArchitectureTaints, and the settings that are compiled from it."""
