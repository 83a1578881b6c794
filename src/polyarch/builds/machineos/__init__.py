"""MachineOSConfig and MachineOSBuild as a front of the same planner: names and objects that users know."""
