"""What a node with this machine and configuration reports as its capacity and as allocatable to pods."""

from fractions import Fraction

from polyarch.sandbox.kubelet_model.machine import CPU, MEMORY, Node, page_resource

EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
STORAGE = 100 * 1024**3
EVICTION = 100 * 1024**2
"""``evictionHard`` of memory, a part of what is reserved."""


def capacity(node: Node) -> dict[str, Fraction]:
    """By resource; memory is that of all cells with their huge pages."""
    machine = node.machine
    found = {
        CPU: Fraction(len(machine.cpus)),
        MEMORY: Fraction(sum(cell.memory for cell in machine.cells)),
        EPHEMERAL_STORAGE: Fraction(STORAGE),
        PODS: Fraction(node.configuration.most_pods),
    }
    for cell in machine.cells:
        for size, count in cell.pages.items():
            name = page_resource(size)
            found[name] = found.get(name, Fraction(0)) + size * count
    for device in machine.devices:
        found[device.resource] = found.get(device.resource, Fraction(0)) + 1
    return found


def allocatable(node: Node) -> dict[str, Fraction]:
    """Capacity without what is reserved; memory also without huge pages."""
    found = capacity(node)
    found[CPU] -= len(node.configuration.reserved_cpus)
    found[MEMORY] -= sum(size * count for cell in node.machine.cells for size, count in cell.pages.items())
    for reserved in node.configuration.reserved_memory.values():
        for name, amount in reserved.items():
            found[name] -= amount
    return found
