"""Nodes and pods for tests of scheduling by cells: built in a line."""

from collections.abc import Mapping, Sequence
from typing import Any

from polyarch.numa.fit.facts import ContainerFacts, ContainerKind, NodeFacts, NodeSettings, PodFacts, ZoneFacts

NAMES = {"pages": "hugepages-2Mi", "nic": "example.com/nic", "gpu": "example.com/gpu"}
GI = 1000 << 30
UNITS = {"memory": GI, "pages": GI}


def amounts(given: Mapping[str, float]) -> dict[str, int]:
    """``{"cpu": 1.5, "memory": 2, "pages": 1, "nic": 1}``: CPUs, GiB of memory and of huge pages, pieces of devices."""
    return {NAMES.get(name, name): int(value * UNITS.get(name, 1000)) for name, value in given.items()}


def cell(
    identity: int,
    *,
    used: Mapping[str, float] = {},
    group: Sequence[int] = (),
    costs: Mapping[int, int] = {},
    socket: int | None = None,
    **has: float,
) -> ZoneFacts:
    """All that it has is allocatable."""
    there, taken = amounts(has), amounts(used)
    free = {name: amount - taken.get(name, 0) for name, amount in there.items()}
    return ZoneFacts(
        id=identity,
        capacity=there,
        allocatable=there,
        available=free,
        memory_group=tuple(group),
        costs=dict(costs),
        socket=socket,
    )


def node(
    *cells: ZoneFacts, name: str = "worker", allocatable: Mapping[str, int] | None = None, **settings: Any
) -> NodeFacts:
    """Policy ``single-numa-node`` unless ``settings`` have another one; the Node is not known unless given."""
    return NodeFacts(
        name=name,
        cells=cells,
        settings=NodeSettings(**{"policy": "single-numa-node", **settings}),
        allocatable=allocatable,
    )


def container(name: str, kind: ContainerKind = "app", **requests: float) -> ContainerFacts:
    """Limits are requests."""
    return ContainerFacts(name, kind, amounts(requests), amounts(requests))


def pod(*containers: ContainerFacts, name: str = "pod", **others: Any) -> PodFacts:
    """Guaranteed unless ``others`` say something else."""
    return PodFacts(
        **{"namespace": "default", "name": name, "uid": name, "qos": "Guaranteed", "containers": containers, **others}
    )
