"""What a pod asks for as the plugin reads it: per container, or as one sum (NS-020, NS-023, NS-105). Pure."""

from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_device, is_memory
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts, is_whole


def effective(pod: PodFacts) -> dict[str, int]:
    """Per resource the larger of the sum of app containers and the largest single init container, and the overhead.

    Sidecars count as init containers, and ``spec.resources`` as nothing, unlike in the kubelet.
    """
    total: dict[str, int] = {}
    first: dict[str, int] = {}
    for container in pod.containers:
        if container.kind == "app":
            for name, amount in container.requests.items():
                total[name] = total.get(name, 0) + amount
        else:
            for name, amount in container.requests.items():
                first[name] = max(first.get(name, 0), amount)
    for name, amount in first.items():
        total[name] = max(total.get(name, 0), amount)
    for name, amount in pod.overhead.items():
        total[name] = total.get(name, 0) + amount
    return total


def names_device(pod: PodFacts) -> bool:
    """Any container, init containers included; even none of a device counts."""
    return any(is_device(name) for container in pod.containers for name in container.requests)


def devices(pod: PodFacts) -> frozenset[str]:
    """Those that its app containers and sidecars hold while it runs."""
    return frozenset(
        name
        for container in pod.containers
        if container.kind != "init"
        for name, amount in container.requests.items()
        if amount > 0 and is_device(name)
    )


def has_own_cpus_or_memory(pod: PodFacts) -> bool:
    """A Guaranteed pod of which an app container or sidecar requests whole CPUs, memory or huge pages."""
    return pod.is_guaranteed and any(
        amount > 0 and (is_memory(name) or (name == CPU and is_whole(amount)))
        for container in pod.containers
        if container.kind != "init"
        for name, amount in container.requests.items()
    )


def is_exclusive(pod: PodFacts, node: NodeFacts) -> bool:
    """Has resources of its own by its spec (NS-105); a device is one of the node's cells."""
    return has_own_cpus_or_memory(pod) or lists_any(node, devices(pod))


def lists_any(node: NodeFacts, resources: frozenset[str]) -> bool:
    """Whether a cell of the node lists one of them."""
    return bool(resources) and any(not resources.isdisjoint(cell.available) for cell in node.cells)


def rounded_up(amount: int) -> int:
    """A whole number, as the plugin scores: of thousandths."""
    return -(-amount // 1000)


def listed_by(cell: Amounts, requests: Amounts) -> dict[str, int]:
    """The requests for what the cell lists."""
    return {name: amount for name, amount in requests.items() if amount > 0 and name in cell}
