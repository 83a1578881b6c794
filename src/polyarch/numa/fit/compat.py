"""What an administrator chooses about the plugin's rules. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, NamedTuple

import msgspec

from polyarch.numa.api.resources import PodInformer, ResyncDetection, ScoringType
from polyarch.numa.fingerprint import check_fingerprint
from polyarch.numa.fit.facts import (
    CANNOT_ALIGN,
    CPU,
    HIGHEST_ZONE,
    NO_TOPOLOGY_DATA,
    POD,
    Amounts,
    FitDecision,
    NodeFacts,
    PodFacts,
    RejectionKind,
    is_affine,
    is_device,
    is_host_level,
    is_memory,
    is_whole,
)


class CompatOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How fitting nodes are compared."""

    strategy: ScoringType = "LeastAllocated"
    weights: Mapping[str, int] = {}
    """By resource; what is not here, or is below 1, counts as 1."""

    def weight(self, resource: str) -> int:
        return max(1, self.weights.get(resource, 1))


class CacheOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Whose pods count, and when."""

    scheduler_names: frozenset[str] = frozenset()
    """Ours: pods bound by others are foreign."""
    informer: PodInformer = "Dedicated"
    """Which pods a fingerprint is compared with: all bound ones past Pending, or with ``Shared`` running ones."""
    detection: ResyncDetection = "Relaxed"
    """Which foreign pods count: those with exclusive resources, or with ``Aggressive`` all."""
    strict: bool = False
    """A flush also forgets bound pods that are still Pending, as the plugin does."""


# -- What a pod asks for as the plugin reads it: per container, or as one sum. Pure.


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
    """Has resources of its own by its spec; a device is one of the node's cells."""
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


# -- Which cell the plugin takes, and why none. Pure.


Free = Mapping[int, Amounts]
"""What each cell has left, by its id; a resource that is not there is one that the cell does not list."""

_ALL: Final = (1 << (HIGHEST_ZONE + 1)) - 1


class ZoneFit(msgspec.Struct, frozen=True, gc=False):
    """The cell, or what rules all of them out."""

    cell: int | None = None
    """None where it fits: nothing of it is on any cell."""
    kind: RejectionKind = ""
    resources: tuple[str, ...] = ()


class PodAlignment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Of a pod: a cell per container, or the first container that has none."""

    cells: Mapping[str, tuple[int, ...]] = {}
    kind: RejectionKind = ""
    message: str = ""
    container: str = ""
    resources: tuple[str, ...] = ()


def fit(requests: Amounts, free: Free, allocatable: Amounts | None, *, guaranteed: bool) -> ZoneFit:
    """The lowest cell that has everything. ``allocatable`` None: the Node is not known, and not asked."""
    common = _ALL
    candidates: dict[str, int] = {}
    for name, amount in requests.items():
        if amount <= 0:
            continue
        if allocatable is not None and name not in allocatable:
            return ZoneFit(kind="not-on-node", resources=(_first_missing(requests, allocatable),))
        asks = 0 if not guaranteed and is_affine(name) else amount
        mask = 0
        is_listed = False
        for cell, amounts in free.items():
            available = amounts.get(name)
            if available is not None:
                is_listed = True
                if available >= asks:
                    mask |= 1 << cell
        if is_listed or not is_host_level(name):
            candidates[name] = mask
            common &= mask
    if not common:
        return _short(candidates, free)
    return ZoneFit((common & -common).bit_length() - 1 if candidates else None)


def align(pod: PodFacts, free: Free, allocatable: Amounts | None) -> PodAlignment:
    """Container by container: init containers and sidecars on untouched cells, app containers on what is left."""
    left = dict(free)
    cells: dict[str, tuple[int, ...]] = {}
    for container in pod.containers:
        is_app = container.kind == "app"
        found = fit(container.requests, left if is_app else free, allocatable, guaranteed=pod.is_guaranteed)
        if found.kind:
            return PodAlignment(
                kind=found.kind,
                message=CANNOT_ALIGN[container.kind],
                container=container.name,
                resources=found.resources,
            )
        if found.cell is not None:
            cells[container.name] = (found.cell,)
            if is_app:
                left[found.cell] = _without(left[found.cell], container.requests, guaranteed=pod.is_guaranteed)
    return PodAlignment(cells=cells)


def align_whole(pod: PodFacts, requests: Amounts, free: Free, allocatable: Amounts | None) -> PodAlignment:
    """The pod as one. ``requests``: its effective ones."""
    found = fit(requests, free, allocatable, guaranteed=pod.is_guaranteed)
    if found.kind:
        return PodAlignment(kind=found.kind, message=CANNOT_ALIGN[POD], container=POD, resources=found.resources)
    return PodAlignment(cells={POD: (found.cell,)} if found.cell is not None else {})


def _without(cell: Amounts, requests: Amounts, *, guaranteed: bool) -> Amounts:
    return {
        name: available - (requests.get(name, 0) if guaranteed or not is_affine(name) else 0)
        for name, available in cell.items()
    }


def _first_missing(requests: Amounts, allocatable: Amounts) -> str:
    return min(name for name, amount in requests.items() if amount > 0 and name not in allocatable)


def _short(candidates: Mapping[str, int], free: Free) -> ZoneFit:
    """Those that no cell has enough of, or else those that rule a cell out."""
    if alone := sorted(name for name, mask in candidates.items() if not mask):
        return ZoneFit(kind="short", resources=tuple(alone))
    cells = sum(1 << cell for cell in free)
    return ZoneFit(kind="no-common-cell", resources=tuple(sorted(n for n, mask in candidates.items() if mask != cells)))


# -- LeastNUMANodes: fewer cells are better, near ones break the tie. Pure.


UNKNOWN: Final = 255
"""The distance that firmware gives where it knows none."""
FEW_CELLS: Final = 12
"""Up to so many, all sets are looked at: at most 924 of one size."""
SETS: Final = 20_000
"""Of one size, with more cells."""
NO_END: Final = 1 << 62
CELLS_IN_ALL: Final = 120_000
"""Looked at for all sizes and containers of a pod, so that no answer takes longer than 50 ms; then all at once."""


class ZoneSet(NamedTuple):
    """Cells for one container, or for the pod."""

    cells: tuple[int, ...]
    optimal: bool
    """No set of as many cells is nearer, whether it holds the requests or not."""


def least_nodes_score(pod: PodFacts, node: NodeFacts, free: Free) -> int:
    """0 – 100, of a Guaranteed pod, whatever the policy."""
    search = ZoneSetSearch(node, free)
    if node.settings.scope == "pod":
        units: Sequence[Amounts] = [effective(pod)]
    else:
        units = [each.requests for each in pod.containers]
    size, optimal = 0, True
    for requests in units:
        if not search.lists_any(requests):
            continue
        choice = search.choose(requests)
        if choice is None:
            return 0
        size, optimal = max(size, len(choice.cells)), optimal and choice.optimal
        search.take(requests, choice.cells)
    return graded(size, optimal=optimal, most=node.settings.most_cells) if size else 100


def graded(size: int, *, optimal: bool, most: int) -> int:
    """Each cell costs its share of 100, and the nearest ones give half a share back."""
    share = 100 // most
    return max(0, 100 - size * share + (share // 2 if optimal else 0))


class ZoneSetSearch:
    """The cells of a node, with what containers before have left, and how many sets may still be looked at."""

    def __init__(self, node: NodeFacts, free: Free) -> None:
        self._cells = tuple(sorted(free))
        self._free = {cell: dict(free[cell]) for cell in self._cells}
        costs = {each.id: each.costs for each in node.cells}
        self._distances = [[_distance(costs, one, other) for other in self._cells] for one in self._cells]
        self._least: dict[int, int | None] = {}
        self._left = CELLS_IN_ALL

    def lists_any(self, requests: Amounts) -> bool:
        return any(name in cell for cell in self._free.values() for name in requests)

    def take(self, requests: Amounts, cells: Sequence[int]) -> None:
        """Each of the cells gives what it has, in their order."""
        for name, amount in requests.items():
            for cell in cells:
                given = min(amount, self._free[cell][name])
                self._free[cell][name] -= given
                amount -= given

    def choose(self, requests: Amounts) -> ZoneSet | None:
        """The smallest set that holds it, of least distance among those of its size."""
        able = [at for at, cell in enumerate(self._cells) if requests.keys() <= self._free[cell].keys()]
        needs = [(amount, [self._free[self._cells[at]][name] for at in able]) for name, amount in requests.items()]
        richest = [(amount, sorted(have, reverse=True)) for amount, have in needs]
        for size in range(1, len(able) + 1):
            if any(sum(have[:size]) < amount for amount, have in richest):
                continue
            if self._is_tired:
                break
            least = self._least_distance(size)
            walk = self._walked(_Walk(able, self._distances, needs, stop_at=least), size)
            if walk.best is not None:
                return ZoneSet(self._named(walk.best), optimal=walk.distance == least)
        if not self._is_tired or not able or any(sum(have) < amount for amount, have in richest):
            return None
        return ZoneSet(self._named(able), optimal=False)

    def _least_distance(self, size: int) -> int | None:
        """Of any set of this size; None if there are too many to look at."""
        if size not in self._least:
            walk = self._walked(_Walk(range(len(self._cells)), self._distances, ()), size)
            self._least[size] = walk.distance if walk.is_over else None
        return self._least[size]

    def _walked(self, walk: "_Walk", size: int) -> "_Walk":
        """Half of what may still be looked at is for the walks that follow."""
        is_small = len(self._cells) <= FEW_CELLS
        self._left -= walk.sets_of(size, *((NO_END, NO_END) if is_small else (SETS, self._left // 2)))
        return walk

    @property
    def _is_tired(self) -> bool:
        """What is left may not reach to the end of a single set."""
        return len(self._cells) > FEW_CELLS and self._left < 2 * len(self._cells) ** 2

    def _named(self, at: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._cells[each] for each in at)


class _Walk:
    """Through sets of one size: the first one of least distance that has enough of everything."""

    def __init__(
        self,
        able: Sequence[int],
        distances: Sequence[Sequence[int]],
        needs: Sequence[tuple[int, Sequence[int]]],
        *,
        stop_at: int | None = None,
    ) -> None:
        """``needs``: amounts, each with what every cell of ``able`` has. ``stop_at``: nothing is nearer than this."""
        self._able = able
        self._pairs = [[distances[one][other] + distances[other][one] for other in able] for one in able]
        self._own = [distances[at][at] for at in able]
        self._have = [have for amount, have in needs if amount > 0]
        self._most = [max(have) for have in self._have]
        self._needs = [amount for amount, _ in needs if amount > 0]
        self._stop_at = stop_at
        self._sets = self._cells = 0
        self.is_over = False
        """Whether every set has been looked at."""
        self.best: tuple[int, ...] | None = None
        self.distance: int | None = None
        """Sum over all pairs of the best set: of sets of one size it compares as the mean does."""

    def sets_of(self, size: int, sets: int, cells: int) -> int:
        """Of at most so many sets and cells; returns how many cells were looked at."""
        self._sets, self._cells = sets, cells
        self.is_over = self._extend((), 0, self._own, self._needs, size)
        return cells - self._cells

    def _extend(
        self, chosen: tuple[int, ...], distance: int, added: Sequence[int], missing: Sequence[int], size: int
    ) -> bool:
        """``added``: what each cell adds to the distance; ``missing``: by need. Returns whether to go on."""
        first = chosen[-1] + 1 if chosen else 0
        if size == 1:
            return self._last(chosen, distance, added, missing, first)
        for at in range(first, len(self._able) - size + 1):
            nearest = distance + size * min(added[at:])
            if self.distance is not None and nearest >= self.distance:
                return True
            self._cells -= len(self._able)
            pairs = self._pairs[at]
            still = [amount - have[at] for amount, have in zip(missing, self._have, strict=True)]
            if any(amount > (size - 1) * most for amount, most in zip(still, self._most, strict=True)):
                continue
            farther = [one + other for one, other in zip(added, pairs, strict=True)]
            if self._cells <= 0 or not self._extend((*chosen, at), distance + added[at], farther, still, size - 1):
                return False
        return True

    def _last(
        self, chosen: tuple[int, ...], distance: int, added: Sequence[int], missing: Sequence[int], first: int
    ) -> bool:
        able: Sequence[int] = range(first, min(len(self._able), first + self._sets))
        self._sets -= len(able)
        self._cells -= len(able)
        for amount, have in zip(missing, self._have, strict=True):
            able = [at for at in able if have[at] >= amount]
        if able:
            nearest = min(able, key=added.__getitem__)
            total = distance + added[nearest]
            if self.distance is None or total < self.distance:
                self.distance = total
                self.best = tuple(self._able[each] for each in (*chosen, nearest))
        return min(self._sets, self._cells) > 0 and (self.distance is None or self.distance != self._stop_at)


def _distance(costs: Mapping[int, Mapping[int, int]], one: int, other: int) -> int:
    return max(0, costs.get(one, {}).get(other, UNKNOWN))


# -- How good the plugin finds a node: 0 – 100. Pure.


BEST: Final = 100


def score(pod: PodFacts, node: NodeFacts, free: Free, options: CompatOptions, *, foreign: bool = False) -> int:
    """Of a node, whether the pod fits there or not."""
    if not pod.is_guaranteed:
        return BEST
    if foreign or not node.has_topology:
        return 0
    if options.strategy == "LeastNUMANodes":
        return least_nodes_score(pod, node, free)
    if node.settings.policy != "single-numa-node":
        return 0
    if node.settings.scope == "pod":
        return _least_of_cells(effective(pod), free, options)
    scores = [_least_of_cells(each.requests, free, options) for each in pod.containers]
    return sum(scores) // len(scores) if scores else 0


def _least_of_cells(requests: Amounts, free: Free, options: CompatOptions) -> int:
    """The smallest score that is not 0; 0 if all are."""
    return min((found for cell in free.values() if (found := cell_score(requests, cell, options))), default=0)


def cell_score(requests: Amounts, cell: Amounts, options: CompatOptions) -> int:
    """Of one cell, by any strategy but LeastNUMANodes."""
    if not requests:
        return 0
    if options.strategy == "BalancedAllocation":
        return _balanced(requests, cell)
    rule = _RULES[options.strategy]
    total = weights = 0
    for name, amount in requests.items():
        weight = options.weight(name)
        weights += weight
        available = cell.get(name, 0)
        if 0 < available >= amount:
            total += weight * rule(rounded_up(amount), rounded_up(available))
    return total // weights


def _least(asked: int, available: int) -> int:
    return (available - asked) * BEST // available


def _most(asked: int, available: int) -> int:
    return asked * BEST // available


_RULES: Final[Mapping[str, Callable[[int, int], int]]] = {"LeastAllocated": _least, "MostAllocated": _most}


def _balanced(requests: Amounts, cell: Amounts) -> int:
    """By the sample variance of what share of the cell each resource takes, over one common denominator."""
    pairs = []
    for name, amount in requests.items():
        asked, available = rounded_up(amount), rounded_up(cell.get(name, 0))
        if available <= 0:
            asked = available = 1
        if asked > available:
            return 0
        pairs.append((asked, available))
    count = len(pairs)
    if count == 1:
        return BEST
    common = prod(available for _, available in pairs)
    shares = [asked * (common // available) for asked, available in pairs]
    spread = count * sum(share * share for share in shares) - sum(shares) ** 2
    whole = count * (count - 1) * common * common
    return (whole - spread) * BEST // whole


# -- The plugin's pessimistic cache: per node a copy of its object, and what bound pods may hold.


EXCLUSIVE_METHOD = "with-exclusive-resources"
_RUNNING = "Running"
_PENDING = frozenset({"", "Pending"})


class _Pod(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a bound pod."""

    node: str
    namespace: str
    name: str
    phase: str
    is_foreign: bool
    has_own: bool
    """Whole CPUs, memory or huge pages."""
    devices: frozenset[str]


@dataclass(slots=True)
class _Node:
    """One node: the copy that counts, the newest object, and counters of what speaks against the copy."""

    latest: NodeFacts
    copy: NodeFacts | None = None
    assumed: dict[str, Amounts] = field(default_factory=dict)
    """By uid; of every pod, whatever its quality of service."""
    dirty: int = 0
    foreign: int = 0
    changed: int = 0
    free: Free | None = None


class OverReserveCache:
    """Of all nodes."""

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}
        self._bound: dict[str, set[str]] = {}
        """Uids of pods by the name of their node, whether that is known yet or not."""
        self._awaited: set[str] = set()
        """Pods that were seen, or answered about, before they were bound."""
        self.generation = 0

    def node_seen(self, facts: NodeFacts) -> None:
        """A node or its object has changed. What the Node itself says counts at once; the rest when it is proved."""
        node = self._nodes.get(facts.name)
        if node is None:
            node = self._nodes[facts.name] = _Node(facts)
        node.latest = facts
        if not facts.has_topology:
            self._reset(node, None)
            node.assumed.clear()
        elif node.copy is None:
            self._reset(node, facts)
        else:
            if _configuration(facts) != _configuration(node.copy):
                node.changed += 1
            node.copy = msgspec.structs.replace(node.copy, allocatable=facts.allocatable)

    def node_gone(self, name: str) -> None:
        self._nodes.pop(name, None)

    def answered(self, pod: PodFacts) -> None:
        """Filter has named nodes for it."""
        if not pod.node_name:
            self._awaited.add(pod.uid)

    def rejected(self, name: str) -> None:
        """Filter has rejected the node for want of room."""
        if (node := self._nodes.get(name)) is not None and node.copy is not None:
            node.dirty += 1

    def pod_seen(self, pod: PodFacts) -> None:
        """Of every pod, on every event."""
        if not pod.node_name:
            if self._is_ours(pod):
                self._awaited.add(pod.uid)
            return
        node = self._nodes.get(pod.node_name)
        self._keep(pod, node)
        if node is not None and node.copy is not None:
            node.foreign += self._pods[pod.uid].is_foreign
            if pod.has_ended:
                self._forget(node, pod.uid)
            elif pod.uid in self._awaited:
                node.assumed[pod.uid] = effective(pod)
                node.free = None
                node.dirty = 0
        self._awaited.discard(pod.uid)

    def pod_gone(self, uid: str) -> None:
        self._awaited.discard(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        on_node = self._bound[pod.node]
        on_node.discard(uid)
        if not on_node:
            del self._bound[pod.node]
        if (node := self._nodes.get(pod.node)) is not None and node.copy is not None:
            self._forget(node, uid)
            node.foreign += pod.is_foreign

    def node(self, name: str) -> NodeFacts | None:
        """What Filter and Score decide from; None: the node is not known."""
        found = self._nodes.get(name)
        return (found.copy or found.latest) if found is not None else None

    def is_foreign(self, name: str) -> bool:
        return (node := self._nodes.get(name)) is not None and node.foreign > 0

    def free(self, name: str) -> Free:
        """The copy without all that is assumed, on every cell that lists it, not below 0."""
        node = self._nodes.get(name)
        if node is None or node.copy is None:
            return {}
        if node.free is None:
            total: dict[str, int] = {}
            for amounts in node.assumed.values():
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + amount
            node.free = {cell.id: _less(cell.available, total) for cell in node.copy.cells}
        return node.free

    def assumed(self, name: str) -> Mapping[str, Amounts]:
        """By namespace and name of the pod."""
        node = self._nodes.get(name)
        found = node.assumed if node is not None else {}
        return {f"{self._pods[uid].namespace}/{self._pods[uid].name}": amounts for uid, amounts in found.items()}

    def resync(self) -> tuple[str, ...]:
        """Take the newest objects that are proved to account for the pods of their nodes; returns these nodes."""
        flushed = []
        for name, node in self._nodes.items():
            if node.copy is None:
                continue
            doubted = (node.dirty or node.foreign) and self._explains(name, node)
            if doubted or node.changed:
                self._flush(node)
                flushed.append(name)
        self.generation += bool(flushed)
        return tuple(flushed)

    def _explains(self, name: str, node: _Node) -> bool:
        relevant = [pod for uid in self._bound.get(name, ()) if self._is_relevant(pod := self._pods[uid])]
        fingerprint = node.latest.fingerprint
        if not relevant or not fingerprint:
            return False
        if node.latest.fingerprint_method == EXCLUSIVE_METHOD:
            relevant = [pod for pod in relevant if pod.has_own or lists_any(node.latest, pod.devices)]
        return check_fingerprint(fingerprint, ((pod.namespace, pod.name) for pod in relevant)) == "ok"

    def _is_relevant(self, pod: _Pod) -> bool:
        if self._options.informer == "Shared":
            return pod.phase == _RUNNING
        return pod.phase not in _PENDING

    def _flush(self, node: _Node) -> None:
        if self._options.strict:
            kept = {}
        else:
            kept = {uid: each for uid, each in node.assumed.items() if self._pods[uid].phase in _PENDING}
        node.assumed = kept
        self._reset(node, node.latest)

    def _reset(self, node: _Node, copy: NodeFacts | None) -> None:
        node.copy, node.free = copy, None
        node.dirty = node.foreign = node.changed = 0

    def _forget(self, node: _Node, uid: str) -> None:
        if node.assumed.pop(uid, None) is not None:
            node.free = None

    def _keep(self, pod: PodFacts, node: _Node | None) -> None:
        self._bound.setdefault(pod.node_name, set()).add(pod.uid)
        self._pods[pod.uid] = _Pod(
            node=pod.node_name,
            namespace=pod.namespace,
            name=pod.name,
            phase=pod.phase,
            is_foreign=not self._is_ours(pod)
            and (self._options.detection == "Aggressive" or (node is not None and is_exclusive(pod, node.latest))),
            has_own=has_own_cpus_or_memory(pod),
            devices=devices(pod),
        )

    def _is_ours(self, pod: PodFacts) -> bool:
        return pod.scheduler_name in self._options.scheduler_names


def _configuration(facts: NodeFacts) -> tuple[str, str, int]:
    return facts.settings.policy, facts.settings.scope, facts.settings.most_cells


def _less(available: Amounts, total: Amounts) -> dict[str, int]:
    return {name: max(0, amount - total.get(name, 0)) for name, amount in available.items()}


# -- The plugin's Filter and Score of one node as one decision. Pure.


def evaluate(
    pod: PodFacts, node: NodeFacts, free: Free, options: CompatOptions, *, foreign: bool = False
) -> FitDecision:
    """``free``: what :class:`polyarch.numa.fit.compat.Cache` says is left; ``foreign``: so it says.

    ``taken`` is what the cache assumes once the pod is bound: all of it on every cell, since the plugin does not keep
    which cell it found. A decision with ``kind`` marks the node dirty.
    """
    if pod.qos == "BestEffort" and not names_device(pod):
        return FitDecision(node=node.name, fits=True, score=score(pod, node, free, options, foreign=foreign))
    if foreign:
        return FitDecision(node=node.name, fits=False, kind="foreign", message=NO_TOPOLOGY_DATA)
    if not node.has_topology:
        return FitDecision(node=node.name, fits=True, score=score(pod, node, free, options))
    requests = effective(pod)
    if node.settings.policy != "single-numa-node":
        found = PodAlignment()
    elif node.settings.scope == "pod":
        found = align_whole(pod, requests, free, node.allocatable)
    else:
        found = align(pod, free, node.allocatable)
    if found.kind:
        return FitDecision(
            node=node.name,
            fits=False,
            kind=found.kind,
            message=found.message,
            container=found.container,
            resources=found.resources,
        )
    assumed = {cell: listed_by(amounts, requests) for cell, amounts in free.items()}
    return FitDecision(
        node=node.name,
        fits=True,
        cells=found.cells,
        taken={cell: amounts for cell, amounts in assumed.items() if amounts},
        score=score(pod, node, free, options),
    )
