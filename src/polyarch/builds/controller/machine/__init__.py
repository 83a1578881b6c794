"""MachineOSConfigs and their builds in the cluster: what is watched, counted and, once nobody needs it, deleted."""
