"""The objects of the exporters, as pure functions: DaemonSets and ConfigMaps per group, and what all groups share."""
