"""The secondary scheduler: what a NUMAResourcesScheduler amounts to, as documents and as a status."""
