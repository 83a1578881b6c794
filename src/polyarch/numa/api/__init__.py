"""The objects that NUMA reads and writes: NodeResourceTopology, and what configures operator and scheduler. Pure."""
