"""In which objects an execution of a machine OS build is recorded: MachineOSBuild, arch ConfigMap, Jobs."""
