"""Which pods make room for one of higher priority that fails by NUMA alone (NS-120 – NS-123). Pure."""
