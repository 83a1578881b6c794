"""Random clusters and pods, small enough that they collide: cells with few CPUs, pods that ask for about as many."""

from collections.abc import Mapping
from random import Random
from typing import Any

from polyarch.numa import names
from polyarch.numa.fit.facts import ContainerFacts, ExactOptions, NodeFacts, NodeSettings, PodFacts, ZoneFacts, quality
from polyarch.quantity import MOST, UNIT

DEVICE = "example.com/gpu"
OTHER = "example.com/nic"
PAGES = "hugepages-2Mi"
LISTED = ("cpu", "memory", PAGES, DEVICE, OTHER)
NODE_LEVEL = dict.fromkeys((*LISTED, "ephemeral-storage", "pods"), 10**6 * UNIT)


def an_amount(random: Random, most: int) -> int:
    """Of thousandths, mostly whole; seldom more than arrays hold."""
    if random.random() < 0.002:
        return MOST
    whole = random.randint(0, most) * UNIT
    return whole + random.choice((0, 0, 0, 0, 0, 500, 1))


def a_cell(random: Random, identity: int, listed: tuple[str, ...]) -> ZoneFacts:
    own = [name for name in listed if random.random() < 0.9]
    capacity = {name: an_amount(random, 8) for name in own}
    allocatable = {name: amount if random.random() < 0.8 else amount // 2 for name, amount in capacity.items()}
    available = {
        name: amount if random.random() < 0.5 else random.randint(0, amount // UNIT) * UNIT
        for name, amount in allocatable.items()
    }
    return ZoneFacts(id=identity, capacity=capacity, allocatable=allocatable, available=available)


def a_node(random: Random, name: str) -> NodeFacts:
    if random.random() < 0.05:
        return NodeFacts(name=name, has_topology=False, allocatable=NODE_LEVEL)
    ids = sorted(random.sample(range(6), random.choice((1, 1, 2, 2, 3, 4))))
    listed = LISTED[: random.choice((2, 3, 4, 5, 5))]
    alike = random.random() < 0.5
    costs = {one: {other: 10 if one == other else 20 for other in ids} for one in ids}
    if random.random() < 0.2:
        costs = {one: {other: random.choice((10, 11, 20)) for other in ids} for one in ids}
    first = a_cell(random, 0, listed)
    cells = []
    for each in ids:
        cell = first if alike else a_cell(random, each, listed)
        group = tuple(sorted(random.sample(ids, 2))) if len(ids) > 1 and random.random() < 0.02 else ()
        cells.append(
            ZoneFacts(
                id=each,
                capacity=cell.capacity,
                allocatable=cell.allocatable,
                available=cell.available,
                costs=costs[each],
                memory_group=group if each in group else (),
            )
        )
    allocatable: Mapping[str, int] | None = NODE_LEVEL
    if random.random() < 0.2:
        allocatable = None if random.random() < 0.5 else dict.fromkeys(listed, 8 * UNIT)
    return NodeFacts(name=name, cells=tuple(cells), settings=some_settings(random), allocatable=allocatable)


def some_settings(random: Random) -> NodeSettings:
    said = random.random() < 0.3
    extra: dict[str, Any] = {}
    if said:
        extra = {
            "cpu_manager": random.choice(("static", "none", None)),
            "cpu_options": random.choice(({}, {"full-pcpus-only": "true"})),
            "threads_per_core": random.choice((None, 1, 2)),
            "memory_manager": random.choice(("Static", "None", None)),
            "topology_options": random.choice(({}, {"prefer-closest-numa-nodes": "true"})),
            "pod_level_managers": random.random() < 0.3,
        }
    return NodeSettings(
        policy=random.choice(("single-numa-node",) * 4 + ("restricted",) * 2 + ("best-effort", "none")),
        scope=random.choice(("container", "pod")),
        most_cells=random.choice((8, 8, 4, 2)),
        **extra,
    )


def a_pod(random: Random, name: str) -> PodFacts:
    listed = random.sample(LISTED, random.choice((1, 2, 3, 5)))
    most = random.choice((2, 4, 8, 12))
    containers = []
    for number in range(random.choice((1, 1, 2, 2, 3, 5))):
        kind = random.choice(("init", "init", "sidecar", "app", "app", "app"))
        requests = {each: an_amount(random, most) for each in listed if random.random() < 0.9}
        if random.random() < 0.8:
            requests |= {each: max(UNIT, requests.get(each, 0)) for each in ("cpu", "memory")}
        limits = requests if random.random() < 0.9 else {}
        containers.append(ContainerFacts(f"c{number}", kind, requests, limits))
    whole = None
    if random.random() < 0.1:
        whole = {each: an_amount(random, 2 * most) for each in ("cpu", "memory")}
    annotations = {names.REQUIRE: "aligned"} if random.random() < 0.05 else {}
    return PodFacts(
        name=name,
        uid=f"uid-{random.random()}",
        qos=quality(containers, (whole, whole) if whole is not None else None),
        containers=tuple(sorted(containers, key=lambda each: each.kind == "app")),
        pod_requests=whole,
        annotations=annotations,
    )


def some_options(random: Random) -> ExactOptions:
    return ExactOptions(
        strategy=random.choice(("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")),
        weights=random.choice(({}, {"cpu": 3, DEVICE: 0}, {"memory": 5})),
        restricted=random.choice(("filter", "filter", "score", "ignore")),
        best_effort=random.choice(("score", "ignore")),
        unknown_nodes=random.choice(("pass", "reject")),
    )
