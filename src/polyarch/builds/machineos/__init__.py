"""MachineOSConfig and MachineOSBuild as a kind of the same planner: names and objects that users know."""
