"""Pods and nodes in few words, for the tests of the plugin's rules."""

from collections.abc import Mapping

from polyarch.numa.facts import TopologyPolicy, TopologyScope
from polyarch.numa.fit.facts import ContainerFacts, ContainerKind, NodeFacts, NodeSettings, PodFacts, Qos, ZoneFacts
from polyarch.quantity import UNIT

NIC = "vendor.example/nic"
LISTED = {"cpu": 64, "memory": 64, "hugepages-2Mi": 64, "ephemeral-storage": 64, NIC: 64, "pods": 64}


def whole(amounts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(amount * UNIT) for name, amount in amounts.items()}


def container(name: str, kind: ContainerKind = "app", **amounts: float) -> ContainerFacts:
    """``nic`` stands for the device, and ``ephemeral_storage`` for what has a dash."""
    named = {NIC if each == "nic" else each.replace("_", "-"): amount for each, amount in amounts.items()}
    return ContainerFacts(name, kind, whole(named), whole(named))


def pod(*containers: ContainerFacts, qos: Qos = "Guaranteed", overhead: Mapping[str, float] | None = None) -> PodFacts:
    return PodFacts(namespace="a", name="b", uid="u", qos=qos, containers=containers, overhead=whole(overhead or {}))


def node(
    cells: Mapping[int, Mapping[str, float]],
    *,
    scope: TopologyScope = "container",
    policy: TopologyPolicy = "single-numa-node",
    most: int = 8,
    distances: Mapping[tuple[int, int], int] | None = None,
    allocatable: Mapping[str, float] | None = None,
) -> NodeFacts:
    costs = distances or {}
    return NodeFacts(
        name="n",
        cells=tuple(
            ZoneFacts(
                id=each,
                available=whole(amounts),
                costs={other: cost for (one, other), cost in costs.items() if one == each},
            )
            for each, amounts in cells.items()
        ),
        settings=NodeSettings(policy=policy, scope=scope, most_cells=most),
        allocatable=whole(LISTED if allocatable is None else allocatable),
    )
