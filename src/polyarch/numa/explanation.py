"""What is behind a decision: which requests are aligned, what each zone has of them, where a bound pod is, and who
would have to go for one that waits. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from polyarch.numa import names
from polyarch.numa.api.topology import NodeResourceTopology, attribute_value, zone_id
from polyarch.numa.fit.demand import AlignmentUnit, PodDemandCache, add, managed, requested
from polyarch.numa.fit.facts import (
    CPU,
    MEMORY,
    POD,
    Amounts,
    FitDecision,
    NodeFacts,
    PodFacts,
    is_affine,
    is_device,
    is_memory,
    is_whole,
)
from polyarch.numa.fit.zones import (
    BY_SOCKET,
    CLOSEST,
    DISTRIBUTED,
    WHOLE_CORES,
    FreeResources,
    fewest_zones,
    resource_groups,
)
from polyarch.numa.placement_vectors import ContainerKey, MalformedVectors, PlacementVectors, decode_vectors
from polyarch.numa.preemption import (
    NodeUsage,
    PreemptionDecision,
    PreemptionRules,
    candidate_on_node,
    choose_candidate,
    may_help_unclear,
    node_usage,
)
from polyarch.numa.snapshot import Choice, NodeSnapshot, PodRules, Snapshot, SnapshotReservation, rules_of
from polyarch.quantity import UNIT, spelled


class RequestAlignment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request."""

    container: str
    """:data:`polyarch.numa.fit.facts.POD` for ``spec.resources``."""
    kind: str
    resource: str
    amount: int
    aligned_on: int
    """Nodes that align it."""
    reason: str
    """Why it is aligned, or why not, in a sentence."""


def alignments(pod: PodFacts, nodes: Sequence[NodeFacts]) -> tuple[RequestAlignment, ...]:
    """Every request above 0, in the order of the containers."""
    demands = PodDemandCache(pod)
    aligned: dict[tuple[str, str], int] = {}
    for node in nodes:
        if node.has_topology:
            found = demands.on(node)
            units = (*found.containers, *(each for each in found.units if each.name == POD))
            for name, resource in {(unit.name, resource) for unit in units for resource in unit.needs}:
                aligned[name, resource] = aligned.get((name, resource), 0) + 1
    lists = [(each.name, str(each.kind), each.requests) for each in pod.containers]
    if pod.pod_requests is not None:
        lists.append((POD, POD, pod.pod_requests))
    return tuple(
        RequestAlignment(
            container=name,
            kind=kind,
            resource=resource,
            amount=amount,
            aligned_on=(count := aligned.get((name, resource), 0)),
            reason=_reason(pod, name, resource, amount, nodes) if not count else _aligned(count, len(nodes)),
        )
        for name, kind, requests in lists
        for resource, amount in sorted(requests.items())
        if amount > 0
    )


def _aligned(count: int, nodes: int) -> str:
    if count == nodes:
        return "aligned"
    return f"aligned on {count} of {nodes} nodes: the others do not hand it out by cells"


def _reason(pod: PodFacts, container: str, resource: str, amount: int, nodes: Sequence[NodeFacts]) -> str:
    """Why no node aligns it."""
    if is_device(resource):
        return "not aligned: no cell of a node lists this device"
    if not is_affine(resource):
        return "never aligned: it belongs to the node as a whole"
    if not pod.is_guaranteed:
        because = f": {spoils}" if (spoils := _not_guaranteed(pod)) else ""
        return f"not aligned: the pod is {pod.qos}{because}; only Guaranteed pods get {_what(resource)} of their own"
    if pod.pod_requests is not None and container != POD:
        return "not aligned: the pod has spec.resources, and its kubelets give containers of such a pod the shared pool"
    if pod.pod_requests is not None:
        return "not aligned: no node has pod-level-managers and scope pod"
    if resource == CPU and not is_whole(amount):
        return "not aligned: a fraction of a CPU comes from the shared pool"
    return _unmanaged(resource, nodes)


def _not_guaranteed(pod: PodFacts) -> str:
    """The first number that keeps the pod from being Guaranteed. Empty: nobody knows."""
    for each in pod.containers if pod.pod_requests is None else ():
        for name in (CPU, MEMORY):
            limit, request = each.limits.get(name, 0), each.requests.get(name, 0)
            if not limit:
                return f"container {each.name} has no limits.{name}"
            if limit != request:
                asked, most = spelled(request), spelled(limit)
                return f"container {each.name} has requests.{name} {asked}, which is not limits.{name} {most}"
    return ""


def _unmanaged(resource: str, nodes: Iterable[NodeFacts]) -> str:
    known = [each for each in nodes if each.has_topology]
    if not known:
        return "not aligned: no node has a NodeResourceTopology"
    if not any(managed(each, (resource,)) for each in known):
        manager = "CPU manager with policy static" if resource == CPU else "memory manager with policy Static"
        return f"not aligned: no node has a {manager}"
    return "not aligned on these nodes"


def _what(resource: str) -> str:
    return "CPUs" if resource == CPU else "memory"


# -- zone numbers ------------------------------------------------------------------------------------------------------


class ZoneNumbers(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One resource of one cell, for one container."""

    container: str
    cell: int
    resource: str
    requested: int
    available: int
    """As the node's object has it."""
    reserved: int
    reserved_by: tuple[str, ...]
    """Pods, by namespace and name."""
    free: int
    """Available, without what is reserved, what earlier containers of the pod take, and with what its init containers
    leave behind."""
    shortfall: int
    """How much more this cell alone would need; 0: it has enough."""


def zone_numbers(pod: PodFacts, node: NodeSnapshot, decision: FitDecision, choice: Choice) -> tuple[ZoneNumbers, ...]:
    """Of each container that is aligned, or of the first that cannot be."""
    units = PodDemandCache(pod).on(node.facts).units if node.facts.has_topology else ()
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    room = FreeResources(node.facts, free, node.memory_groups)
    if decision.fits:
        found: list[ZoneNumbers] = []
        for unit in units:
            found += _of(unit, node, room)
            room.place(unit, decision.cells.get(unit.name, ()))
        return tuple(found)
    failed = next((unit for unit in units if unit.name in (decision.container, POD)), None)
    if failed is None:
        return ()
    earlier = units[: units.index(failed)]
    placed = _placed(pod, node, earlier, free, choice)
    for unit in earlier:
        room.place(unit, placed.get(unit.name, ()))
    return tuple(_of(failed, node, room))


def _placed(
    pod: PodFacts, node: NodeSnapshot, earlier: Iterable[AlignmentUnit], free: Mapping[int, Amounts], choice: Choice
) -> Mapping[str, tuple[int, ...]]:
    """Where the containers before the one that failed are."""
    names = {unit.name for unit in earlier}
    if not names:
        return {}
    kept = tuple(each for each in pod.containers if each.name in names)
    part = msgspec.structs.replace(pod, containers=kept)
    return rules_of(choice)(part)(node.facts, free, node.memory_groups).cells


def _of(unit: AlignmentUnit, node: NodeSnapshot, room: FreeResources) -> Iterable[ZoneNumbers]:
    for cell in node.facts.cells:
        for resource, amount in unit.needs.items():
            if resource not in cell.available:
                continue
            free = room.available((cell.id,), resource)
            by = tuple(sorted(each.pod for each in node.held if each.cells.get(cell.id, {}).get(resource)))
            yield ZoneNumbers(
                container=unit.name,
                cell=cell.id,
                resource=resource,
                requested=amount,
                available=cell.available[resource],
                reserved=node.reserved(cell.id, resource),
                reserved_by=by,
                free=free,
                shortfall=max(0, amount - free),
            )


# -- what would have to change -----------------------------------------------------------------------------------------

KNOWN_OPTIONS: Final = frozenset({WHOLE_CORES, DISTRIBUTED, BY_SOCKET, "strict-cpu-reservation"})
"""Options of the CPU manager with which verdict and zones are what the kubelet decides."""
OPTIONS_WITHIN_ZONES: Final = frozenset({"distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"})
"""The verdict is the kubelet's; which zones the CPUs of a container on several zones come from is not known."""
KNOWN_TOPOLOGY_OPTIONS: Final = frozenset({CLOSEST, "max-allowable-numa-nodes"})


def not_known(pod: PodFacts, node: NodeFacts) -> tuple[str, ...]:
    """What no object says of this kubelet, or what is not understood, so that the verdict may be another."""
    if not node.has_topology:
        return ()
    settings = node.settings
    managers = (("CPU", settings.cpu_manager), ("memory", settings.memory_manager))
    unsaid = " and ".join(name for name, policy in managers if policy is None)
    found = [f"policy and options of the {unsaid} manager, taken to be static where a zone lists it"] if unsaid else []
    own = settings.cpu_options.keys()
    found += [
        *(f"what the CPU manager's option {name} does" for name in sorted(own - KNOWN_OPTIONS - OPTIONS_WITHIN_ZONES)),
        *(
            f"from which zones a container on several zones gets its CPUs, because of option {name}"
            for name in sorted(own & OPTIONS_WITHIN_ZONES)
            if settings.has_cpu_option(name)
        ),
        *(
            f"what the topology manager's option {name} does"
            for name in sorted(settings.topology_options.keys() - KNOWN_TOPOLOGY_OPTIONS)
        ),
        *(
            f"which {name} belong to several zones, of which each counts them: the zones have {zones}, the node {whole}"
            for name, (zones, whole) in devices_of_several_zones(node).items()
            if name in requested(pod)
        ),
    ]
    return tuple(found)


def devices_of_several_zones(node: NodeFacts) -> dict[str, tuple[str, str]]:
    """Devices of which the zones together have more than the node, by resource, with both numbers."""
    found = {}
    for name in sorted({name for zone in node.cells for name in zone.allocatable if is_device(name)}):
        zones, whole = sum(zone.allocatable.get(name, 0) for zone in node.cells), (node.allocatable or {}).get(name)
        if whole is not None and zones > whole:
            found[name] = spelled(zones), spelled(whole)
    return found


def has_demand(pod: PodFacts, node: NodeFacts) -> bool:
    """Whether the node's kubelet may align anything of the pod."""
    return node.has_topology and bool(PodDemandCache(pod).on(node))


def advice(pod: PodFacts, node: NodeSnapshot, decision: FitDecision, choice: Choice) -> tuple[str, ...]:
    """What to change, or what would have to go, for the pod to fit this node. Empty: it fits, or nothing is known."""
    match decision.kind:
        case "smt":
            return _whole_core_advice(pod, node)
        case "not-on-node":
            return tuple(
                f"{_field(pod, decision.container, each)}: this node has no {each}" for each in decision.resources
            )
        case "short" | "no-common-cell":
            return tuple(_zone_advice(pod, node, decision, zone_numbers(pod, node, decision, choice)))
        case "policy":
            wanted = "a topology manager policy that is restricted or single-numa-node"
            return (f"annotation {names.REQUIRE} wants {wanted}; here it is {node.facts.settings.policy}",)
        case _:
            return ()


def _field(pod: PodFacts, container: str, resource: str) -> str:
    """Where the number stands in the pod."""
    if container == POD:
        return f"spec.resources.requests.{resource}" if pod.pod_requests is not None else f"all containers: {resource}"
    apps = [each.name for each in pod.containers if each.kind == "app"]
    inits = [each.name for each in pod.containers if each.kind != "app"]
    if container in apps:
        return f"container {container}: spec.containers[{apps.index(container)}].resources {resource}"
    number = inits.index(container) if container in inits else 0
    return f"init container {container}: spec.initContainers[{number}].resources {resource}"


def _whole_core_advice(pod: PodFacts, node: NodeSnapshot) -> tuple[str, ...]:
    threads = node.facts.settings.threads_per_core or 1
    found = []
    for each in pod.containers:
        cpus, rest = divmod(each.requests.get(CPU, 0), UNIT)
        if rest == 0 and cpus % threads:
            less = cpus - cpus % threads
            what = "is odd" if threads == 2 else f"is no multiple of {threads}"
            asks = f"{less} or {less + threads}" if less else f"{threads}"
            found.append(
                f"{_field(pod, each.name, CPU)}: cpu {cpus} {what} and this node hands out whole cores of {threads}: "
                f"ask for {asks}"
            )
    if not found:
        free = sum(node.free(zone).get(CPU, 0) - (zone.split or 0) for zone in node.facts.cells) // UNIT
        found.append(f"{free} CPUs of whole cores are free on this node: ask for less, or others have to go")
    return tuple(found)


def _zone_advice(
    pod: PodFacts, node: NodeSnapshot, decision: FitDecision, numbers: Sequence[ZoneNumbers]
) -> Iterable[str]:
    zones = {zone.id: zone for zone in node.facts.cells}
    groups = {zone.id: zone.memory_group for zone in node.facts.cells if len(zone.memory_group) > 1}
    for reserved in node.memory_groups:
        groups |= dict.fromkeys(reserved, reserved)
    told: set[tuple[int, ...]] = set()
    for resource in decision.resources:
        of_resource = [each for each in numbers if each.resource == resource]
        if not of_resource:
            yield f"{_field(pod, decision.container, resource)}: no zone of this node has it"
            continue
        asked = of_resource[0].requested
        where = _field(pod, of_resource[0].container, resource)
        shared = sorted({groups[each.cell] for each in of_resource if is_memory(resource) and each.cell in groups})
        for group in shared:
            if group not in told:
                told.add(group)
                yield _group_advice(node, group)
        alone = [each for each in of_resource if each.cell not in groups or not is_memory(resource)]
        best = max(alone, key=lambda each: each.free, default=None)
        most = max((zones[each.cell].allocatable.get(resource, 0) for each in of_resource), default=0)
        if not most and is_device(resource):
            yield (
                f"{where}: no zone of this node has any. A device plugin that names NUMA nodes which the machine does "
                "not have, such as -1, leaves its devices in no zone, and no pod that the kubelet aligns gets any"
            )
        elif decision.kind == "short" and asked > most and node.facts.settings.policy == "single-numa-node":
            yield f"{where}: {spelled(asked)} is more than a zone of this node has: ask for {spelled(most)} or less"
        elif best is not None and best.shortfall:
            holders = _holders(node, best.cell, resource)
            yield (
                f"{where}: zone {best.cell} has {spelled(best.free)} of {spelled(asked)}: ask for that, or "
                f"{spelled(best.shortfall)} has to come free{holders}"
            )
    if decision.kind == "no-common-cell":
        yield from _apart(pod, node, decision, numbers)


def _apart(pod: PodFacts, node: NodeSnapshot, decision: FitDecision, numbers: Sequence[ZoneNumbers]) -> Iterable[str]:
    """What keeps resources apart that would fit one by one."""
    if node.facts.settings.policy == "restricted":
        unit = next(
            (each for each in PodDemandCache(pod).on(node.facts).units if each.name in (decision.container, POD)), None
        )
        sizes = {}
        for group in resource_groups(unit.needs) if unit is not None else ():
            sizes["+".join(group)] = fewest_zones(node.facts.cells, group)
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{name} {size}" for name, size in sizes.items())
            yield f"policy restricted wants all resources on as many zones as each other; they need: {counts}"
    for zone in node.facts.cells:
        lacking = [each for each in numbers if each.cell == zone.id and each.shortfall]
        if lacking:
            parts = ", ".join(f"{each.resource} {spelled(each.free)} of {spelled(each.requested)}" for each in lacking)
            yield f"zone {zone.id} has {parts}"


def _group_advice(node: NodeSnapshot, group: Sequence[int]) -> str:
    """Blocks of memory across zones keep these together until the last of them goes."""
    name = ",".join(map(str, group))
    wide = max((zone.allocatable.get(MEMORY, 0) for zone in node.facts.cells if zone.id in group), default=0)
    reserved = [each.pod for each in node.held if tuple(group) in each.memory_groups]
    larger: list[str] = []
    others: list[str] = []
    for each in node.residents:
        needs = [unit.needs.get(MEMORY, 0) for unit in PodDemandCache(each.facts).on(node.facts).units]
        if any(needs):
            (larger if max(needs) > wide else others).append(each.facts.full_name)
    holders = [*reserved, *larger] or others
    who = f": {', '.join(sorted(set(holders)))}" if holders else ", which nothing here names"
    return (
        f"memory group {name}: zones {name} give out their memory together, and a container that needs one zone gets "
        f"none of it until the pods with memory across them have gone{who}"
    )


def _holders(node: NodeSnapshot, zone: int, resource: str) -> str:
    """Who has some of it there, as far as anybody knows."""
    names_of = {each.pod for each in node.held if each.cells.get(zone, {}).get(resource)}
    placed: Mapping[ContainerKey, int] = {}
    if node.facts.vectors is not None:
        with suppress(MalformedVectors):
            placed = decode_vectors(node.facts.vectors, _exclusive(node))
    unplaced = set()
    for each in node.residents:
        for unit in PodDemandCache(each.facts).on(node.facts).containers:
            if unit.needs.get(resource):
                there = placed.get((*_key(each.facts), unit.name))
                if there == zone:
                    names_of.add(each.facts.full_name)
                elif there is None:
                    unplaced.add(each.facts.full_name)
    if names_of:
        return f" ({', '.join(sorted(names_of))})"
    return f" (on zones that nobody knows: {', '.join(sorted(unplaced))})" if unplaced else ""


# -- zones of a bound pod ----------------------------------------------------------------------------------------------


Placed = Mapping[str, tuple[int, ...]]
"""Cells by container, or by :data:`polyarch.numa.fit.facts.POD`."""


class PodZones(msgspec.Struct, frozen=True, kw_only=True):
    """Of one bound pod. ``None``: nobody knows, and the note says why."""

    predicted: Placed | None = None
    actual: Placed | None = None
    note: str = ""


def pod_zones(pod: PodFacts, node: NodeSnapshot, topology: NodeResourceTopology | None, rules: PodRules) -> PodZones:
    """``node``: the pod's; ``topology``: its object, for the vectors."""
    demand = PodDemandCache(pod).on(node.facts) if node.facts.has_topology else None
    if not demand:
        return PodZones(predicted={}, note="nothing of it is aligned")
    actual, note = _actual(pod, node, topology)
    own = next((each for each in node.held if each.uid == pod.uid), None)
    if own is None and actual is not None:
        given_back: dict[int, dict[str, int]] = {}
        for unit in demand.containers:
            if not unit.ends:
                for cell in actual.get(unit.name, ()):
                    there = given_back.setdefault(cell, {})
                    for resource, amount in unit.needs.items():
                        there[resource] = there.get(resource, 0) + amount
        predicted = _predicted(pod, node, rules, SnapshotReservation(pod=pod.full_name, cells=given_back))
    elif own is not None:
        predicted = _predicted(pod, without(node, pod), rules, None)
    else:
        predicted = None
        note = f"{note}; the object counts the pod already, so that nothing tells what was predicted"
    return PodZones(predicted=predicted, actual=actual, note=note)


def without(node: NodeSnapshot, pod: PodFacts) -> NodeSnapshot:
    """As if nothing were reserved for this pod: a filter drops what it holds before it looks."""
    held = tuple(each for each in node.held if not (each.uid == pod.uid and each.pod == pod.full_name))
    return node if len(held) == len(node.held) else msgspec.structs.replace(node, held=held)


def _predicted(
    pod: PodFacts, node: NodeSnapshot, rules: PodRules, given_back: SnapshotReservation | None
) -> Placed | None:
    free = {cell.id: node.free(cell) for cell in node.facts.cells}
    if given_back is not None:
        for cell, amounts in given_back.cells.items():
            for resource, amount in amounts.items():
                if resource in free.get(cell, {}):
                    free[cell][resource] += amount
    decision = rules(pod)(node.facts, free, node.memory_groups)
    return decision.cells if decision.fits else None


def _actual(pod: PodFacts, node: NodeSnapshot, topology: NodeResourceTopology | None) -> tuple[Placed | None, str]:
    attributes = (topology.attributes or ()) if topology is not None else ()
    metadata = attribute_value(attributes, names.PLACEMENT_METADATA)
    if topology is None or metadata is None:
        return None, "the node's object has no placement vectors"
    by_cell = {
        identity: text
        for zone in topology.zones or ()
        if (identity := zone_id(zone.name)) is not None
        and (text := attribute_value(zone.attributes or (), names.PLACEMENT_VECTOR)) is not None
    }
    try:
        found = decode_vectors(PlacementVectors(metadata, by_cell), _exclusive(node))
    except MalformedVectors as error:
        return None, f"the placement vectors do not fit the pods that are known: {error}"
    own = {container: cell for (space, name, container), cell in found.items() if (space, name) == _key(pod)}
    return {container: (cell,) for container, cell in own.items()}, ""


def _exclusive(node: NodeSnapshot) -> list[ContainerKey]:
    """The containers of the node that hold something of a cell."""
    return [
        (*_key(each.facts), unit.name)
        for each in node.residents
        for unit in PodDemandCache(each.facts).on(node.facts).containers
        if not unit.ends and unit.name != POD
    ]


def _key(pod: PodFacts) -> tuple[str, str]:
    return pod.namespace, pod.name


# -- preemption --------------------------------------------------------------------------------------------------------


def preemption(pod: PodFacts, snapshot: Snapshot, choice: Choice) -> PreemptionDecision:
    """Who would be evicted for the pod, as far as zones and sums say, if preemption is on. Disruption budgets are not
    known here, nor what other filters of kube-scheduler say."""
    rules = PreemptionRules(scheduler_name=choice.scheduler, options=choice.exact)
    found, unclear = [], []
    for node in snapshot.nodes:
        sums = () if snapshot.knows_pods and node.facts.allocatable is not None else None
        usage = _usage(without(node, pod))
        one = candidate_on_node(pod, usage, rules, proposed=sums)
        found.append(one)
        if one is None and may_help_unclear(pod, usage, rules):
            unclear.append(node.name)
    decision = choose_candidate(found, nominated=pod.nominated_node)
    return decision if decision.reason != "NoVictims" else msgspec.structs.replace(decision, unclear=tuple(unclear))


def _usage(node: NodeSnapshot) -> NodeUsage:
    reserved: dict[int, dict[str, int]] = {}
    for each in node.held:
        for cell, amounts in each.cells.items():
            add(reserved.setdefault(cell, {}), amounts)
    return node_usage(
        node.facts,
        [each.facts for each in node.residents],
        held={each.uid: None if each.is_spread else each.cells for each in node.held},
        reserved=reserved,
        groups=node.memory_groups,
    )
