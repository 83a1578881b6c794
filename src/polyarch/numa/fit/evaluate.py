"""One pod on one node, as the node's kubelet will decide. Pure, and never an error.

:func:`evaluate` is the reference: whatever decides faster decides the same. It makes the checks that need no zone, lets
the topology manager's policy choose zones, and hands out what the containers need, as the managers of CPUs, memory and
devices do; these may still refuse.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

from polyarch.numa import names
from polyarch.numa.fit.demand import STATIC, AlignmentUnit, PodDemand, PodDemandCache
from polyarch.numa.fit.facts import (
    CANNOT_ALIGN,
    CPU,
    NO_TOPOLOGY_DATA,
    NOT_GUARANTEED,
    POD,
    Action,
    Amounts,
    ExactOptions,
    FitDecision,
    NodeFacts,
    NodeSettings,
    PodFacts,
    RejectionKind,
    is_affine,
    is_device,
    is_memory,
    is_on,
)
from polyarch.numa.fit.zones import (
    CLOSEST,
    WHOLE_CORES,
    AlignmentFailure,
    FreeResources,
    ZoneIds,
    best_effort_zones,
    distance,
    fewest_zones,
    restricted_zones,
    single_zone,
    single_zone_failure,
    smallest_memory_zones,
    zone_sets,
)
from polyarch.quantity import UNIT

ALIGNED: Final = "aligned"
"""Value of the annotation ``require``."""
_GUARANTEEING: Final = frozenset({"single-numa-node", "restricted"})


def policy_action(node: NodeFacts, options: ExactOptions) -> Action:
    """What this node's policy is good for."""
    match node.settings.policy:
        case "single-numa-node":
            return "filter"
        case "restricted":
            return options.restricted
        case "best-effort":
            return options.best_effort
        case _:
            return "ignore"


def may_align(pod: PodFacts) -> bool:
    """Whether the pod requests anything that some node may align."""
    lists = [each.requests for each in pod.containers] + ([pod.pod_requests] if pod.pod_requests else [])
    return any(
        amount > 0 and (is_device(name) or (pod.is_guaranteed and is_affine(name)))
        for each in lists
        for name, amount in each.items()
    )


def decide_without_topology(pod: PodFacts, node: NodeFacts, options: ExactOptions) -> FitDecision:
    """There is no NodeResourceTopology."""
    if not may_align(pod):
        return FitDecision(node=node.name, fits=True, score=100)
    if options.unknown_nodes == "reject":
        return FitDecision(node=node.name, fits=False, kind="no-topology", message=NO_TOPOLOGY_DATA)
    return FitDecision(node=node.name, fits=True)


def decide_by_checks(pod: PodFacts, node: NodeFacts, demand: PodDemand, options: ExactOptions) -> FitDecision | None:
    """None: the cells decide."""
    policy = node.settings.policy
    if policy not in _GUARANTEEING and demand and pod.annotations.get(names.REQUIRE) == ALIGNED:
        return FitDecision(node=node.name, fits=False, kind="policy", message=NOT_GUARANTEED)
    if not node.cells and policy_action(node, options) == "filter" and may_align(pod):
        return FitDecision(node=node.name, fits=False, kind="no-zones", message=NO_TOPOLOGY_DATA)
    if node.allocatable is not None and (hit := _not_on_node(pod, node, node.allocatable)) is not None:
        return hit
    if not demand:
        return FitDecision(node=node.name, fits=True, score=100)
    if node.settings.has_cpu_option(WHOLE_CORES) and (hit := _split_core(node, demand)) is not None:
        return hit
    return None


def _not_on_node(pod: PodFacts, node: NodeFacts, allocatable: Amounts) -> FitDecision | None:
    for each in pod.containers:
        for name in each.requests:
            if name not in allocatable and each.requests[name] > 0:
                lacking = min(one for one, amount in each.requests.items() if amount > 0 and one not in allocatable)
                return rejected(node, each.name, each.kind, "not-on-node", (lacking,))
    for name, amount in sorted((pod.pod_requests or {}).items()):
        if amount > 0 and name not in allocatable:
            return rejected(node, POD, POD, "not-on-node", (name,))
    return None


def _split_core(node: NodeFacts, demand: PodDemand) -> FitDecision | None:
    threads = node.settings.threads_per_core
    if not threads:
        return None
    for each in (*demand.containers, *demand.units):
        if (each.needs.get(CPU, 0) // UNIT) % threads:
            return rejected(node, each.name, each.kind, "smt", (CPU,))
    return None


def rejected_unit(node: NodeFacts, unit: AlignmentUnit, failure: AlignmentFailure) -> FitDecision:
    return rejected(node, unit.name, unit.kind, failure.kind, failure.resources)


def rejected(
    node: NodeFacts, container: str, phrase: str, kind: RejectionKind, resources: tuple[str, ...]
) -> FitDecision:
    """With the words of the scheduler plugin where it has some."""
    if node.settings.scope == POD:
        container = phrase = POD
    return FitDecision(
        node=node.name,
        fits=False,
        kind=kind,
        message=f"{CANNOT_ALIGN[phrase]}: {', '.join(resources)}",
        container=container,
        resources=resources,
    )


# -- allocation --------------------------------------------------------------------------------------------------------


def allocate(
    unit: AlignmentUnit, cells: ZoneIds | None, room: FreeResources, node: NodeFacts, *, preferred: bool = True
) -> set[int] | AlignmentFailure:
    """Place the unit on the cells; the result are those that it then has something of. None as ``cells``: the topology
    manager had no say. ``preferred``: they are as few as can be, and the kubelet insists on that."""
    settings = node.settings
    if settings.cpu_options and not has_whole_cores(unit, room, settings):
        return AlignmentFailure("smt", (CPU,))
    if preferred and cells is not None and not room.by_socket and room.place_plainly(unit, cells):
        return set(cells)
    if is_static(settings.cpu_manager) and room.available(room.ids, CPU) < unit.needs.get(CPU, 0):
        return AlignmentFailure("short", (CPU,))
    memory = cells
    needs = {name: amount for name, amount in unit.needs.items() if is_memory(name)}
    if needs:
        memory = memory_cells(needs, room, cells, preferred=preferred)
        if memory is None and is_static(settings.memory_manager):
            return AlignmentFailure("short", tuple(needs))
    return room.place(unit, cells or room.ids, memory=memory or cells or room.ids)


def is_static(manager: str | None) -> bool:
    """Whether this manager is known to refuse what it cannot hand out; of other exporters' nodes it is not known."""
    return manager is not None and manager.lower() == STATIC


def has_whole_cores(unit: AlignmentUnit, room: FreeResources, settings: NodeSettings) -> bool:
    """Whether enough CPUs are free, without those whose core is reserved in part."""
    threads = settings.threads_per_core
    if not threads or not settings.has_cpu_option(WHOLE_CORES):
        return True
    free = 0
    for each in room.cells:
        split = each.split
        if split is None:
            # As if reserved CPUs filled cores.
            split = (each.allocatable.get(CPU, 0) - each.capacity.get(CPU, 0)) % (threads * UNIT)
        free += max(0, room.idle((each.id,), CPU) - split)
    return unit.needs.get(CPU, 0) <= free


def memory_cells(needs: Amounts, room: FreeResources, cells: ZoneIds | None, *, preferred: bool) -> ZoneIds | None:
    """The cells that a container's memory comes from. None: nowhere."""
    if cells is None:
        return smallest_memory_zones(needs, room)
    if all(room.idle(cells, name) >= amount for name, amount in needs.items()):
        return cells if len(cells) == 1 or room.may_mix_blocks or room.may_span(cells) else None
    # What init containers have left does not count above; it does for the cells that are looked for now.
    wider = smallest_memory_zones(needs, room, around=cells)
    if wider is not None and preferred and len(wider) != fewest_zones(room.cells, needs):
        return None
    return wider


# -- score, from 0 to 100, without floats ------------------------------------------------------------------------------


def unit_score(unit: AlignmentUnit, cells: ZoneIds, room: FreeResources, options: ExactOptions) -> int:
    """Of the strategies that look at amounts, before the unit is placed on these cells."""
    there = {name: room.available(cells, name) for name in unit.needs}
    if options.strategy == "BalancedAllocation":
        return balanced(unit.needs, there)
    return allocated(unit.needs, there, options.weights, most=options.strategy == "MostAllocated")


def allocated(needs: Amounts, there: Amounts, weights: Mapping[str, int], *, most: bool) -> int:
    """The weighted mean of how full the cells get, or of how empty they stay."""
    total = weight_of_all = 0
    for name, amount in needs.items():
        room = there[name]
        weight = max(1, weights.get(name, 1))
        weight_of_all += weight
        if 0 < amount <= room:
            total += weight * ((amount if most else room - amount) * 100 // room)
    return total // weight_of_all if weight_of_all else 0


def balanced(needs: Amounts, there: Amounts) -> int:
    """100 where all resources are used up alike, less by the sample variance of their fractions."""
    if any(amount > there[name] for name, amount in needs.items()):
        return 0
    count = len(needs)
    if count < 2:
        return 100 * count
    whole = prod(there[name] for name in needs)
    parts = [amount * (whole // there[name]) for name, amount in needs.items()]
    spread = count * sum(part * part for part in parts) - sum(parts) ** 2
    return max(0, 100 - -(-100 * spread // (count * (count - 1) * whole * whole)))


def fewest_zones_score(chosen: Sequence[ZoneIds], node: NodeFacts) -> int:
    """LeastNUMANodes: fewer cells first, then those closest to each other."""
    step = 100 // node.settings.most_cells
    score = 100 - max(len(each) for each in chosen) * step
    costs = {each.id: each.costs for each in node.cells}
    known = tuple((each, tuple(there.items())) for each, there in costs.items())
    if all(distance(each, costs) <= _nearest(known, len(each)) for each in chosen):
        score += step // 2
    return max(0, score)


@lru_cache(maxsize=256)  # machines of a fleet are alike, and large ones have thousands of sets
def _nearest(known: tuple[tuple[int, tuple[tuple[int, int], ...]], ...], size: int) -> int:
    """The least distance of so many cells."""
    costs = {each: dict(there) for each, there in known}
    return min(distance(each, costs) for each in zone_sets(tuple(costs), size))


# -- evaluate ----------------------------------------------------------------------------------------------------------


def evaluate(
    pod: PodFacts,
    node: NodeFacts,
    free: Mapping[int, Amounts],
    options: ExactOptions,
    *,
    demand: PodDemand | None = None,
    groups: Iterable[ZoneIds] = (),
) -> FitDecision:
    """``free``: what is available without reservations, by cell; a cell that is not there has what its zone says.
    ``groups``: the ``memory_groups`` of the decisions that are reserved. ``demand``: that of :class:`PodDemandCache`
    for this node, where many nodes are asked."""
    if not node.has_topology:
        return decide_without_topology(pod, node, options)
    if demand is None:
        demand = PodDemandCache(pod).on(node)
    if (hit := decide_by_checks(pod, node, demand, options)) is not None:
        return hit
    room = FreeResources(node, free, groups)
    action = policy_action(node, options)
    if action == "ignore":
        return _unaligned(node, demand, room)
    found = _placed(node, demand, room, options)
    if action == "score" and node.settings.policy == "restricted" and not found.fits:
        return FitDecision(node=node.name, fits=True)
    return found


def _unaligned(node: NodeFacts, demand: PodDemand, room: FreeResources) -> FitDecision:
    """The topology manager has no say, or is not listened to."""
    for each in demand.containers if node.settings.policy in ("none", "best-effort") else ():
        used = allocate(each, None, room, node, preferred=False)
        if isinstance(used, AlignmentFailure):
            return rejected_unit(node, each, used)
    return FitDecision(node=node.name, fits=True)


def _placed(node: NodeFacts, demand: PodDemand, room: FreeResources, options: ExactOptions) -> FitDecision:
    by_amounts = options.strategy != "LeastNUMANodes"
    chosen: dict[str, ZoneIds] = {}
    score = 0
    is_spread = False
    for unit in demand.units:
        found = _chosen_zones(unit, node, room)
        if isinstance(found, AlignmentFailure):
            return rejected_unit(node, unit, found)
        if by_amounts:
            score += unit_score(unit, found.cells, room, options)
        held: set[int] = set()
        for each in demand.containers if unit.name == POD else (unit,):
            used = allocate(each, found.cells, room, node, preferred=found.preferred)
            if isinstance(used, AlignmentFailure):
                return rejected_unit(node, each, used)
            held |= used
        if found.preferred or held:
            chosen[unit.name] = found.cells if found.preferred else tuple(sorted(held))
        is_spread |= not found.preferred or (node.settings.policy == "best-effort" and len(found.cells) > 1)
    if is_spread:
        score = 0
    elif not chosen:
        score = 100
    elif by_amounts:
        score //= len(chosen)
    else:
        score = fewest_zones_score(list(chosen.values()), node)
    return FitDecision(
        node=node.name,
        fits=True,
        cells=chosen,
        taken=room.taken(),
        unseen=room.unseen(),
        memory_groups=tuple(room.formed),
        score=score,
    )


class _ChosenZones(NamedTuple):
    """Of the topology manager."""

    cells: ZoneIds
    preferred: bool
    """They are as few as can be for each resource."""


def _chosen_zones(unit: AlignmentUnit, node: NodeFacts, room: FreeResources) -> _ChosenZones | AlignmentFailure:
    policy = node.settings.policy
    if policy != "restricted":
        one = single_zone(unit, room)
        if one is not None:
            return _ChosenZones(one, preferred=True)
        if policy == "single-numa-node":
            return single_zone_failure(unit, room)
    closest = is_on(node.settings.topology_options, CLOSEST)
    found = restricted_zones(unit, room, closest=closest)
    if not isinstance(found, AlignmentFailure):
        return _ChosenZones(found, preferred=True)
    if policy == "restricted":
        return found
    return _ChosenZones(best_effort_zones(unit, room, closest=closest), preferred=False)
