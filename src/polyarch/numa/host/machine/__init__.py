"""What the machine is: its cells with their CPUs, memory, huge pages and distances, from sysfs and procfs."""
