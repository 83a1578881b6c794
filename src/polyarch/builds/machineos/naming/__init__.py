"""Names of MachineOSBuilds: those of stock builders, bit for bit, where a pool has one architecture (BD-263)."""
