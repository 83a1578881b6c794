"""What is promised and not shown yet: zones are reserved from the filter call until the node's topology has the pod.

:class:`ReservationCache` takes in the scheduler's calls, the events of the watches and the time, each with its
monotonic seconds, and returns what changed, so that whoever keeps sums of his own can follow.
:class:`NodeReservations` is its part for one node; an event costs as much as that node has pods, whatever the cluster
has. Pure; mutable.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from polyarch.numa.bound_pods import (
    DISTRUST,
    BoundPod,
    FingerprintMatch,
    PodExclusions,
    TopologyPrediction,
    TopologyVersion,
    confirmation,
    devices_of_zones,
    fingerprint_of,
    grace_period,
    is_exclusive_by_spec,
    is_shown_at_start,
    match_fingerprint,
)
from polyarch.numa.fit.demand import PodDemandCache, together
from polyarch.numa.fit.evaluate import evaluate
from polyarch.numa.fit.facts import Amounts, ExactOptions, FitDecision, NodeFacts, PodFacts, is_device, is_memory

WHOLE: Final = 1000
"""The least amount of CPUs and devices."""
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})
"""Policies under which a kubelet refuses pods."""


class AdmissionRequirement(msgspec.Struct, frozen=True, gc=False):
    """What one pod needs to be admitted."""

    units: tuple[Amounts, ...] = ()
    """Each has to find one cell."""
    is_fragile: bool = False
    """More room than expected may harm it too: what its init containers leave ties others to their cell, or it needs
    several cells at once. Nobody else may be on the way to the node with it."""


def is_certain(
    node: NodeFacts,
    available: Mapping[int, Amounts],
    new: AdmissionRequirement,
    promised: Sequence[AdmissionRequirement],
    demands: Sequence[Amounts],
) -> bool:
    """Whether the kubelet admits a pod in whatever order it gets to those that are on their way to its node.

    A reservation is of the zones that the kubelet would choose now. But it admits pods as they arrive, which the filter
    does not know, and room comes free meanwhile: so another pod may be on the zone that was meant for this one, and
    nobody is told until the topology shows it. What is available without those on their way is sure; they may be on any
    zone. This proves that some zone is left for everybody all the same.

    ``available``: by cell, without those on their way; ``promised``: the ones among these that somebody was told
    would be admitted; ``demands``: all of them. True: the kubelet admits the new pod, and the promised ones as before.
    """
    if node.settings.policy not in ALIGNING or not demands:
        return True
    claims = [new, *promised]
    if any(each.is_fragile for each in claims):
        return False
    grouped = {cell.id for cell in node.cells if len(cell.memory_group) > 1}
    units = [unit for each in claims for unit in each.units]
    together = _sum([*demands, *new.units])
    kinds = {tuple(sorted(unit.items())): unit for unit in units}
    if len(kinds) == 1 and together == _sum(units):
        return len(units) <= sum(_times(cell, free, units[0], grouped) for cell, free in available.items())
    return all(_finds_a_cell(available, unit, together, grouped) for unit in kinds.values())


def _finds_a_cell(
    available: Mapping[int, Amounts], unit: Amounts, together: Mapping[str, int], grouped: set[int]
) -> bool:
    """Even if all the others are placed so as to keep it from every cell that they can."""
    open_cells = [free for cell, free in available.items() if _times(cell, free, unit, grouped)]
    closed = 0
    for name, amount in unit.items():
        step = 1 if is_memory(name) else WHOLE
        left = together[name] - amount
        for spare in sorted(free[name] - amount for free in open_cells):
            left -= spare + step
            if left < 0:
                break
            closed += 1
    return closed < len(open_cells)


def _times(cell: int, free: Amounts, unit: Amounts, grouped: set[int]) -> int:
    """How many such units the cell can hold."""
    if cell in grouped and any(is_memory(name) for name in unit):
        return 0
    return min(free.get(name, 0) // amount for name, amount in unit.items())


def _sum(units: Iterable[Amounts]) -> Counter[str]:
    total = Counter[str]()
    for unit in units:
        total.update(unit)
    return total


# -- reservations ------------------------------------------------------------------------------------------------------


ZoneSums = Mapping[int, Amounts]
"""Amounts by id of the cell."""
MemoryGroups = tuple[tuple[int, ...], ...]
State = Literal["held", "bound"]
Event = Literal["reserved", "bound", "released"]
Reason = Literal[
    "filter",  # reserved: the filter chose this node
    "seen",  # reserved or bound: the pod was seen on its node
    "cells",  # reserved again: the cells of the node have other resources than before
    "unseen",  # reserved: what is left of a reservation that was settled
    "ttl",
    "again",  # another filter call for the pod
    "other-node",
    "deleted",
    "ended",
    "node-deleted",
    "settled",
    "unexplained",
    "withdrawn",  # whoever held it gave it back
]


class Reservation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one pod is promised on one node."""

    uid: str
    pod: str
    """Namespace and name."""
    node: str
    state: State
    cells: ZoneSums
    """What is subtracted from each cell."""
    demand: Amounts
    """Of the whole pod."""
    memory_groups: MemoryGroups = ()
    """Of the decision: sets of cells that its memory is taken from together."""
    unseen: ZoneSums = {}
    """Of the decision: the part that no object will show while the pod is there."""
    claim: AdmissionRequirement | None = None
    """What must stay possible, as a filter has promised it; None: nobody was promised anything."""
    is_spread: bool = False
    """Nobody knows which cell: the whole demand is subtracted from every cell that lists the resource."""
    since: float
    expires: float | None = None
    """None: it is bound."""


class ReservationChange(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a method of the cache did. ``cells`` were added to the node's sums (``reserved``) or taken from them
    (``released``); ``bound`` changes no sum."""

    event: Event
    reason: Reason
    reservation: Reservation

    @property
    def node(self) -> str:
        return self.reservation.node

    @property
    def cells(self) -> ZoneSums:
        return self.reservation.cells


class NodeWarning(msgspec.Struct, frozen=True, gc=False):
    """What people should hear of a node."""

    kind: Literal["unexplained", "mispredicted"]
    node: str
    message: str


class ReservationTotals:
    """The reservations of one node, added up."""

    __slots__ = ("_by_cell",)

    def __init__(self) -> None:
        self._by_cell: dict[int, dict[str, int]] = {}

    @property
    def cells(self) -> ZoneSums:
        """A view; nothing in it is 0."""
        return self._by_cell

    def add(self, cells: ZoneSums) -> None:
        for cell, amounts in cells.items():
            there = self._by_cell.setdefault(cell, {})
            for resource, amount in amounts.items():
                _put(there, resource, there.get(resource, 0) + amount)
            if not there:
                del self._by_cell[cell]

    def take(self, cells: ZoneSums) -> None:
        for cell, amounts in cells.items():
            there = self._by_cell.setdefault(cell, {})
            for resource, amount in amounts.items():
                _put(there, resource, there.get(resource, 0) - amount)
            if not there:
                del self._by_cell[cell]


def _put(amounts: dict[str, int], resource: str, amount: int) -> None:
    if amount:
        amounts[resource] = amount
    else:
        amounts.pop(resource, None)


NOTHING: Final[ZoneSums] = {}


# -- options -----------------------------------------------------------------------------------------------------------


Foreign = Literal["exclusive", "all", "none"]


class ReservationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``--reservations``, ``--ttl``, ``--foreign`` and the name of our scheduler."""

    is_on: bool = True
    """False: nothing is reserved, each filter sees the object alone."""
    ttl: float = 60.0
    """Seconds that a pod is held for."""
    ttl_with_claims: float = 600.0
    """The same for pods with claims of volumes or devices, which are bound late."""
    foreign: Foreign = "exclusive"
    """Which pods of others count: those that align something, all (which is the same here: the others hold nothing of
    a cell), or none."""
    scheduler: str = ""
    """Ours; matters for ``foreign`` none alone."""


def aligned_demand(pod: PodFacts, node: NodeFacts) -> Amounts:
    """What has to be aligned of the pod as a whole."""
    demand = PodDemandCache(pod).on(node)
    return together(demand.containers or demand.units)


def admission_requirement(pod: PodFacts, node: NodeFacts, decision: FitDecision) -> AdmissionRequirement:
    """What the pod needs to be admitted as decided."""
    units = PodDemandCache(pod).on(node).units
    is_tied = len(units) > 1 and any(unit.ends for unit in units)
    is_wide = any(len(zones) > 1 for zones in decision.cells.values())
    return AdmissionRequirement(tuple(unit.needs for unit in units), is_tied or is_wide)


def is_listed(pod: PodFacts, node: NodeFacts) -> bool:
    """Whether a container that runs as long as the pod has demand: what a kubelet lists as exclusive."""
    demand = PodDemandCache(pod).on(node)
    return any(not unit.ends and _is_held(unit.needs, node) for unit in demand.containers or demand.units)


def _is_held(needs: Amounts, node: NodeFacts) -> bool:
    """Whether any of it is of a zone."""
    return not all(map(is_device, needs)) or not devices_of_zones(node).isdisjoint(needs)


# -- one node ----------------------------------------------------------------------------------------------------------


REMEMBERED: Final = 300.0
"""Seconds for which pods that have left may still be in an object."""
NAMESAKES: Final = 600.0
"""Seconds for which the name of a pod that has left proves nothing."""


class NodeReservations:
    """Topology, bound pods and reservations of one node. Methods return what changed."""

    def __init__(self, name: str, rules: ExactOptions, options: ReservationOptions) -> None:
        self.name: Final = name
        self.facts: NodeFacts | None = None
        self.version: TopologyVersion | None = None
        self.explanation: FingerprintMatch | None = None
        self.entries: Final[dict[str, Reservation]] = {}
        """By uid of the pod."""
        self.residents: dict[str, BoundPod] = {}
        """Pods that are bound to the node and not over, in the order of their binding."""
        self.exporter_ready_since: float | None = None
        self.findings: Final[list[NodeWarning]] = []
        self._distrusted_until: float | None = None
        self._rules: Final = rules
        self._options: Final = options
        self._sums: Final = ReservationTotals()
        self._ended: Final[dict[str, BoundPod]] = {}
        self._departed: Final[deque[tuple[float, BoundPod]]] = deque()
        """Newest first."""
        self._names_left: Final[dict[int, float]] = {}
        self._expectation: Final = TopologyPrediction()
        self.review_at: float | None = None
        """When the ledger will ask for a review."""
        self._is_explained = False
        """``explanation`` is of the pods and the version that are there now."""

    @property
    def reserved(self) -> ZoneSums:
        return self._sums.cells

    @property
    def groups(self) -> MemoryGroups:
        """Of all reservations."""
        return tuple(group for entry in self.entries.values() for group in entry.memory_groups)

    @property
    def unsettled(self) -> list[BoundPod]:
        """Those whose reservations wait for the object to show them."""
        residents = (self.residents.get(uid) for uid in self.entries)
        return [each for each in residents if each is not None and not (each.is_shown or each.is_excluded)]

    @property
    def shows_departed(self) -> bool:
        """The object shows a pod that has left."""
        return self.explanation is not None and self.explanation.departed > 0

    def is_distrusted(self, now: float) -> bool:
        return self._distrusted_until is not None and now < self._distrusted_until

    def is_over(self, now: float) -> bool:
        """The node is not there, and nothing that may matter again is remembered of it."""
        if self.facts is not None or self.entries or self.residents or self._ended:
            return False
        self.forget_old(now)
        is_idle = self.exporter_ready_since is None and not self.is_distrusted(now)
        return is_idle and not (self._departed or self._names_left)

    def next_review(self, now: float) -> float | None:
        """When time alone may settle something."""
        if self.facts is None or self.version is None:
            return None
        wait = grace_period(self.facts.settings)
        ends = [each.admitted + wait for each in self.unsettled if each.admitted is not None]
        return min((end for end in ends if end > now), default=None)

    # -- reservations --------------------------------------------------------------------------------------------------

    def is_certain(self, pod: PodFacts, decision: FitDecision, now: float) -> bool:
        """The kubelet will admit the pod in whatever order it gets to those on their way."""
        node = self.facts
        if node is None or not decision.taken:
            return True
        claim = admission_requirement(pod, node, decision)
        if claim.is_fragile and self.shows_departed:
            return False
        coming, there = [], ReservationTotals()
        for entry in self.entries.values():
            if entry.uid == pod.uid:
                continue
            if self._is_coming(entry.uid, node, now):
                coming.append(entry)
            else:
                there.add(entry.cells)
        return not coming or is_certain(
            node,
            free(node, there.cells),
            claim,
            [each.claim for each in coming if each.claim is not None],
            [each.demand for each in coming],
        )

    def _is_coming(self, uid: str, node: NodeFacts, now: float) -> bool:
        """Nobody knows yet where it will be. One that was admitted long ago is where it was predicted, or no object
        will ever say."""
        resident = self.residents.get(uid)
        if resident is None or resident.admitted is None:
            return True
        return not (resident.is_shown or resident.is_excluded) and now - resident.admitted < grace_period(node.settings)

    def hold(self, pod: PodFacts, decision: FitDecision, now: float, expires: float) -> list[ReservationChange]:
        """What a filter has chosen."""
        if self.facts is None or not decision.taken or pod.uid in self.entries:
            return []
        return [self._reserve(pod, decision, now, "filter", expires=expires, spread=self.is_distrusted(now))]

    def bind(self, uid: str, reason: Reason) -> list[ReservationChange]:
        """The pod is bound here: what was held for it stays."""
        entry = self.entries.get(uid)
        if entry is None or entry.state == "bound":
            return []
        self.entries[uid] = bound = msgspec.structs.replace(entry, state="bound", expires=None)
        return [ReservationChange(event="bound", reason=reason, reservation=bound)]

    def release(self, uid: str, reason: Reason) -> list[ReservationChange]:
        entry = self.entries.pop(uid, None)
        if entry is None:
            return []
        self._sums.take(entry.cells)
        return [ReservationChange(event="released", reason=reason, reservation=entry)]

    def _reserve(
        self, pod: PodFacts, decision: FitDecision, now: float, reason: Reason, *, expires: float | None, spread: bool
    ) -> ReservationChange:
        node = self.facts or NodeFacts(name=self.name)
        demand = aligned_demand(pod, node)
        return self._enter(
            Reservation(
                uid=pod.uid,
                pod=pod.full_name,
                node=self.name,
                state="bound" if expires is None else "held",
                cells=_spread(demand, node) if spread else decision.taken,
                demand=demand,
                memory_groups=decision.memory_groups,
                unseen=NOTHING if spread else decision.unseen,
                claim=admission_requirement(pod, node, decision) if self._is_ours(pod, reason) else None,
                is_spread=spread,
                since=now,
                expires=expires,
            ),
            reason,
        )

    def _enter(self, entry: Reservation, reason: Reason) -> ReservationChange:
        self.entries[entry.uid] = entry
        self._sums.add(entry.cells)
        return ReservationChange(event="reserved", reason=reason, reservation=entry)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def see(self, pod: PodFacts, now: float, event: int) -> list[ReservationChange]:
        """A pod that is bound to this node and not over."""
        resident = self.residents.get(pod.uid)
        changes: list[ReservationChange] = []
        if resident is None:
            resident = self.residents[pod.uid] = BoundPod(pod)
            self._mark(resident)
            changes = self.bind(pod.uid, "seen")
            if (entry := self.entries.get(pod.uid)) is not None:
                resident.is_waiting = False
                resident.placed = None if entry.is_spread else entry.cells
            self._is_explained = False
        elif resident.facts is not None:
            resident.facts = pod
        if pod.started and resident.admitted is None:
            resident.admitted = now
            resident.admitted_at_event = event
            resident.admitted_version = pod.resource_version
        return changes

    def end(self, pod: PodFacts, now: float) -> list[ReservationChange]:
        """The pod is over, and its object still there."""
        if pod.uid in self._ended:
            return []
        resident = self.residents.pop(pod.uid, None) or BoundPod(pod)
        self._mark(resident)
        self._ended[pod.uid] = resident
        return self._left(resident, now, "ended")

    def leave(self, uid: str, now: float) -> list[ReservationChange]:
        """The pod's object is gone."""
        resident = self.residents.pop(uid, None) or self._ended.pop(uid, None)
        if resident is None:
            return self.release(uid, "deleted")
        self._departed.appendleft((now, resident))
        return self._left(resident, now, "deleted")

    def _left(self, resident: BoundPod, now: float, reason: Reason) -> list[ReservationChange]:
        self._names_left.pop(resident.name_hash, None)
        self._names_left[resident.name_hash] = now
        self._is_explained = False
        if resident.facts is not None:
            self._expectation.forget()
            resident.facts = None
        return self.release(resident.uid, reason)

    def forget_old(self, now: float) -> None:
        """What is remembered of pods that have left, and only for some time."""
        while self._departed and now - self._departed[-1][0] > REMEMBERED:
            self._departed.pop()
            self._is_explained = False
        while self._names_left and now - next(iter(self._names_left.values())) > NAMESAKES:
            del self._names_left[next(iter(self._names_left))]

    def begin(self, now: float, unix: float) -> None:
        """The pods were found at the start: they are taken up in the order of their admission, others last."""
        for resident in self.residents.values():
            if resident.started is not None:
                resident.admitted = now - max(0.0, unix - resident.started)
        last = float("inf")

        def admission(resident: BoundPod) -> float:
            return last if resident.admitted is None else resident.admitted

        self.residents = {each.uid: each for each in sorted(self.residents.values(), key=admission)}

    # -- the object ----------------------------------------------------------------------------------------------------

    def show(self, node: NodeFacts, now: float, event: int) -> list[ReservationChange]:
        """What is known of the node now. Reservations stay, whatever has changed."""
        before, self.facts = self.facts, node
        if not node.has_topology:
            self.version = None
            self._is_explained = False
            return []
        is_first = self.version is None
        if self.version is None or not node.resource_version or self.version.name != node.resource_version:
            self.version = TopologyVersion(
                name=node.resource_version,
                method=node.fingerprint_method,
                received=now,
                at_event=event,
                is_first=is_first,
            )
            self._is_explained = False
        changes: list[ReservationChange] = []
        if before is None or _listing(before) != _listing(node):
            for resident in (*self.residents.values(), *self._ended.values(), *(each for _, each in self._departed)):
                self._mark(resident)
            self._is_explained = False
            changes = self._spread_again(node)
        return changes

    def lose(self) -> list[ReservationChange]:
        """The Node is gone. Its pods may come back with it."""
        self.facts = self.version = self.explanation = None
        self._expectation.forget()
        for resident in self.residents.values():
            resident.is_waiting = True
            resident.is_shown = False
            resident.placed = None
        return [change for uid in list(self.entries) for change in self.release(uid, "node-deleted")]

    def distrust(self, now: float) -> None:
        """Where pods went is not where they were predicted: new reservations are spread for a while."""
        self._distrusted_until = now + DISTRUST

    def _spread_again(self, node: NodeFacts) -> list[ReservationChange]:
        changes: list[ReservationChange] = []
        for entry in [each for each in self.entries.values() if each.is_spread]:
            cells = _spread(entry.demand, node)
            if cells != entry.cells:
                changes += self.release(entry.uid, "cells")
                changes.append(self._enter(msgspec.structs.replace(entry, cells=cells), "cells"))
        return changes

    def _mark(self, resident: BoundPod) -> None:
        """What the node's object says about whom its fingerprint counts."""
        node, pod = self.facts, resident.facts
        if node is None:
            return
        resident.is_excluded = PodExclusions.of(node.settings.pod_exclude).covers(resident.full_name)
        if pod is not None:
            resident.is_listed = is_listed(pod, node)
            resident.is_listed_by_spec = is_exclusive_by_spec(pod, node)

    # -- explaining and settling ---------------------------------------------------------------------------------------

    def review(self, now: float) -> list[ReservationChange]:
        """After an event, or when :meth:`next_review` has come: who needs a reservation, and who none any more."""
        node, version = self.facts, self.version
        if node is None or version is None:
            return []
        self.forget_old(now)
        self._explain(node)
        wait = grace_period(node.settings)
        changes = self._take_up(node, version, now, wait)
        shown = False
        for resident in self.residents.values():
            if resident.is_shown:
                continue
            reason = confirmation(
                resident,
                version,
                self.explanation,
                now=now,
                grace=wait,
                is_namesake=self._is_namesake(resident, now),
                exporter_ready_since=self.exporter_ready_since,
            )
            if reason is None:
                continue
            resident.is_shown = True
            released = self._settle(resident.uid, reason)
            changes += released
            if reason == "unexplained":
                self._expectation.forget()
                if released:
                    self._tell_unexplained(node, resident)
            elif resident.facts is not None:
                self._expectation.settled(resident)
                shown = shown or bool(released)
        if not self.unsettled:
            self._compare(node, now, shown=shown)
        return changes

    def _settle(self, uid: str, reason: Reason) -> list[ReservationChange]:
        entry = self.entries.get(uid)
        changes = self.release(uid, reason)
        if entry is not None and entry.unseen:
            rest = msgspec.structs.replace(entry, cells=entry.unseen, memory_groups=(), unseen=NOTHING, claim=None)
            changes.append(self._enter(rest, "unseen"))
        return changes

    def _explain(self, node: NodeFacts) -> None:
        if self._is_explained:
            return
        self.explanation = match_fingerprint(
            node.fingerprint,
            node.fingerprint_method,
            list(self.residents.values()),
            [each for _, each in self._departed],
            list(self._ended.values()),
        )
        self._is_explained = True

    def _take_up(self, node: NodeFacts, version: TopologyVersion, now: float, wait: float) -> list[ReservationChange]:
        """Pods that came without having been held: found at the start, or bound by others."""
        changes: list[ReservationChange] = []
        if version.is_first and self.explanation is None:
            self.version = version = msgspec.structs.replace(version, is_doubtful=True)
        for resident in [each for each in self.residents.values() if each.is_waiting]:
            resident.is_waiting = False
            pod = resident.facts
            if pod is None:
                continue
            if version.is_first and is_shown_at_start(resident, version, self.explanation, now=now, grace=wait):
                resident.is_shown = True
            else:
                resident.is_suspect = version.is_first
                changes += self._predict(resident, pod, node, now)
        return changes

    def _predict(self, resident: BoundPod, pod: PodFacts, node: NodeFacts, now: float) -> list[ReservationChange]:
        if not self._options.is_on or (self._options.foreign == "none" and not self._is_ours(pod, "seen")):
            return []
        if not aligned_demand(pod, node):
            resident.placed = NOTHING
            return []
        decision = evaluate(pod, node, free(node, self.reserved), self._rules, groups=self.groups)
        if decision.fits and not decision.taken:
            return []
        spread = not decision.fits or self.is_distrusted(now)
        if not spread:
            resident.placed = decision.taken
        return [self._reserve(pod, decision, now, "seen", expires=None, spread=spread)]

    def _is_ours(self, pod: PodFacts, reason: Reason) -> bool:
        return reason == "filter" or pod.scheduler_name == self._options.scheduler

    def _is_namesake(self, resident: BoundPod, now: float) -> bool:
        left = self._names_left.get(resident.name_hash)
        return left is not None and now - left <= NAMESAKES

    def _compare(self, node: NodeFacts, now: float, *, shown: bool) -> None:
        if shown and self._expectation.is_missed(node):
            self.distrust(now)
            for resident in self.residents.values():
                resident.placed = None
            self.findings.append(
                NodeWarning(
                    "mispredicted", self.name, "pods are on other cells than predicted; reservations are spread"
                )
            )
        if self.explanation is not None and self.explanation.is_present:
            self._expectation.begin(node)

    def _tell_unexplained(self, node: NodeFacts, resident: BoundPod) -> None:
        known = fingerprint_of(self.residents.values(), node.fingerprint_method)
        text = f"the object has the fingerprint {node.fingerprint or '(none)'}, the node's pods have {known}"
        self.findings.append(NodeWarning("unexplained", self.name, f"{text}; {resident.full_name} counts as shown"))


def free(node: NodeFacts, reserved: ZoneSums) -> dict[int, Amounts]:
    """What is left of each cell, never below 0."""
    left: dict[int, Amounts] = {}
    for cell in node.cells:
        taken = reserved.get(cell.id)
        if taken is None:
            left[cell.id] = cell.available
        else:
            left[cell.id] = {name: max(0, amount - taken.get(name, 0)) for name, amount in cell.available.items()}
    return left


def _spread(demand: Amounts, node: NodeFacts) -> ZoneSums:
    return {
        cell.id: on_cell
        for cell in node.cells
        if (on_cell := {name: amount for name, amount in demand.items() if name in cell.available})
    }


def _listing(node: NodeFacts) -> tuple[object, ...]:
    """What decides which pods a fingerprint counts, and where a reservation is spread."""
    cells = [(cell.id, {name: amount > 0 for name, amount in cell.allocatable.items()}) for cell in node.cells]
    return node.settings, cells, node.has_topology


# -- the cluster -------------------------------------------------------------------------------------------------------


DEFAULT_OPTIONS: Final = ReservationOptions()
DEFAULT_RULES: Final = ExactOptions()
SILENCE: Final = 300.0
"""Seconds after an admission until an exporter that has not shown the pod is told of."""


class StaleExporter(msgspec.Struct, frozen=True):
    """An exporter that has not shown a pod for long."""

    node: str
    seconds: float
    """Since the admission of the pod that has waited longest."""


class ReservationCache:
    """All reservations of the cluster."""

    def __init__(self, rules: ExactOptions = DEFAULT_RULES, options: ReservationOptions = DEFAULT_OPTIONS) -> None:
        self._rules: Final = rules
        self._options: Final = options
        self._accounts: Final[dict[str, NodeReservations]] = {}
        self._lost: Final[set[str]] = set()
        """Nodes that are not there, or not yet, with an account."""
        self._home: Final[dict[str, str]] = {}
        """The node of each bound pod by uid."""
        self._held: Final[dict[str, tuple[str, ...]]] = {}
        """The nodes on which something is held for a pod that was not seen bound."""
        self._waiting: Final[set[str]] = set()
        """Nodes with pods that are not settled."""
        self._deadlines: Final[list[tuple[float, str, str]]] = []
        """When, node, uid of a pod that is held; without uid: the node is reviewed."""
        self._findings: Final[list[NodeWarning]] = []
        self._without_departed: Final[list[str]] = []
        self._events = 0
        self._is_started = False

    # -- asking --------------------------------------------------------------------------------------------------------

    def free(self, node: NodeFacts) -> Mapping[int, Amounts]:
        """Available minus reserved, by cell, never below 0."""
        return free(node, self.reserved(node.name))

    def reserved(self, node: str) -> ZoneSums:
        """The sums of all reservations. A view: do not keep it."""
        account = self._accounts.get(node)
        return account.reserved if account is not None else NOTHING

    def groups(self, node: str) -> MemoryGroups:
        """``memory_groups`` of all reservations, for whoever decides about the node."""
        account = self._accounts.get(node)
        return account.groups if account is not None else ()

    def reservations(self, node: str) -> Mapping[str, Reservation]:
        """By uid of the pod. A view."""
        account = self._accounts.get(node)
        return account.entries if account is not None else {}

    def all_reservations(self) -> Iterator[Reservation]:
        return (entry for account in self._accounts.values() for entry in account.entries.values())

    def held(self, uid: str) -> Sequence[Reservation]:
        """What is held for a pod, or bound by :meth:`bind`, until it is seen on its node."""
        return [self._accounts[node].entries[uid] for node in self._held.get(uid, ())]

    def placed(self, uid: str) -> ZoneSums | None:
        """The cells that a bound pod is predicted to hold, also after it settled. None: nobody knows."""
        account = self._accounts.get(self._home.get(uid, ""))
        resident = account.residents.get(uid) if account is not None else None
        return resident.placed if resident is not None else None

    def is_settled(self, uid: str) -> bool:
        """The pod is bound, and its node's object shows it."""
        account = self._accounts.get(self._home.get(uid, ""))
        resident = account.residents.get(uid) if account is not None else None
        return resident is not None and resident.is_shown

    def is_explained(self, node: str) -> bool | None:
        """Whether a set of pods was found for the node's object; None: it has none, or it was not looked for yet."""
        account = self._accounts.get(node)
        if account is None or account.version is None or not self._is_started:
            return None
        return account.explanation is not None

    def is_current(self, node: str) -> bool:
        """The node's object shows no pod that has left. Without a fingerprint that explains it nobody knows."""
        account = self._accounts.get(node)
        if account is None or account.version is None or account.explanation is None or not self._is_started:
            return False
        return not (account.explanation.departed or account.explanation.with_ended)

    def is_distrusted(self, node: str, now: float) -> bool:
        """New reservations of the node are spread."""
        account = self._accounts.get(node)
        return account is not None and account.is_distrusted(now)

    def silent(self, now: float) -> list[StaleExporter]:
        """Nodes whose exporter has not shown a pod :data:`SILENCE` seconds after its admission."""
        found = []
        for name in sorted(self._waiting):
            admitted = [each.admitted for each in self._accounts[name].unsettled if each.admitted is not None]
            if admitted and now - min(admitted) >= SILENCE:
                found.append(StaleExporter(name, now - min(admitted)))
        return found

    def findings(self) -> list[NodeWarning]:
        """What was found since the last call."""
        found = list(self._findings)
        self._findings.clear()
        return found

    def without_departed(self) -> list[str]:
        """Nodes whose objects no longer show a pod that has left, since the last call: what was not certain there may
        be so now, although nothing was released and the object has no more room."""
        found = list(self._without_departed)
        self._without_departed.clear()
        return found

    def is_certain(self, pod: PodFacts, decision: FitDecision, now: float) -> bool:
        """Whether the kubelet will admit the pod although others are on their way to the node: a node that fits and is
        not certain yet is so again once its object shows them."""
        account = self._accounts.get(decision.node)
        return not self._options.is_on or account is None or account.is_certain(pod, decision, now)

    # -- the scheduler -------------------------------------------------------------------------------------------------

    def hold(
        self, pod: PodFacts, decisions: Iterable[FitDecision], now: float, *, ttl: float | None = None
    ) -> list[ReservationChange]:
        """The nodes that a filter has chosen; what was held for the pod before is released. A pod that is
        bound already keeps what it has."""
        changes = self.drop(pod.uid, "again")
        if not self._options.is_on or pod.uid in self._home:
            return changes
        seconds = ttl if ttl is not None else self._options.ttl_with_claims if pod.has_claims else self._options.ttl
        nodes = []
        for decision in decisions:
            made = self._account(decision.node).hold(pod, decision, now, now + seconds)
            if made:
                nodes.append(decision.node)
                changes += made
                heapq.heappush(self._deadlines, (now + seconds, decision.node, pod.uid))
        if nodes:
            self._held[pod.uid] = tuple(nodes)
        return changes

    def drop(self, uid: str, reason: Reason) -> list[ReservationChange]:
        """Release what is held for a pod that was not seen bound."""
        return [change for node in self._held.pop(uid, ()) for change in self._accounts[node].release(uid, reason)]

    def bind(self, uid: str, node: str) -> list[ReservationChange]:
        """We have bound the pod ourselves, and it was not seen there yet."""
        nodes = self._held.get(uid, ())
        if node not in nodes:
            return []
        changes = self._accounts[node].bind(uid, "seen")
        for other in nodes:
            if other != node:
                changes += self._accounts[other].release(uid, "other-node")
        self._held[uid] = (node,)
        return changes

    # -- the watches ---------------------------------------------------------------------------------------------------

    def pod_seen(self, pod: PodFacts, now: float) -> list[ReservationChange]:
        """A pod as it is now."""
        self._events += 1
        if not pod.node_name:
            return self.drop(pod.uid, "ended") if pod.has_ended else []
        changes: list[ReservationChange] = []
        if self._home.get(pod.uid, pod.node_name) != pod.node_name:
            changes += self.pod_gone(pod.uid, now)
        account = self._account(pod.node_name)
        if pod.has_ended:
            changes += self.drop(pod.uid, "ended")
            changes += account.end(pod, now)
        else:
            for node in self._held.pop(pod.uid, ()):
                if node != pod.node_name:
                    changes += self._accounts[node].release(pod.uid, "other-node")
            changes += account.see(pod, now, self._events)
        self._home[pod.uid] = account.name
        return changes + self._review(account, now)

    def pod_gone(self, uid: str, now: float) -> list[ReservationChange]:
        """The pod was deleted."""
        self._events += 1
        changes = self.drop(uid, "deleted")
        account = self._accounts.get(self._home.pop(uid, ""))
        if account is not None:
            changes += account.leave(uid, now)
            changes += self._review(account, now)
        return changes

    def topology_seen(self, node: NodeFacts, now: float) -> list[ReservationChange]:
        """The node's object, settings or allocatable amounts; also without an object. A version counts once."""
        self._events += 1
        account = self._account(node.name)
        self._lost.discard(node.name)
        changes = account.show(node, now, self._events)
        return changes + self._review(account, now)

    def node_gone(self, name: str) -> list[ReservationChange]:
        """The Node was deleted."""
        self._events += 1
        account = self._accounts.get(name)
        if account is None:
            return []
        changes = account.lose()
        for change in changes:
            self._let_go(change.reservation)
        self._waiting.discard(name)
        self._lost.add(name)
        return changes

    def exporter_seen(self, node: str, *, is_ready: bool, now: float) -> None:
        """The exporter's pod on this node."""
        account = self._account(node)
        if not is_ready:
            account.exporter_ready_since = None
        elif account.exporter_ready_since is None:
            account.exporter_ready_since = now

    def distrust(self, node: str, now: float) -> None:
        """The kubelet has refused a pod: what we know of its cells is wrong."""
        self._account(node).distrust(now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def start(self, now: float, unix: float) -> list[ReservationChange]:
        """Everything was listed; ``unix`` is the time that ``startTime`` of pods is compared with."""
        self._is_started = True
        changes: list[ReservationChange] = []
        for account in self._accounts.values():
            account.begin(now, unix)
            changes += self._review(account, now)
        return changes

    def tick(self, now: float) -> list[ReservationChange]:
        """Once per second or so: what time has ended."""
        changes: list[ReservationChange] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, name, uid = heapq.heappop(self._deadlines)
            account = self._accounts.get(name)
            if account is None:
                continue
            if not uid:
                account.review_at = None
                changes += self._review(account, now)
            elif (entry := account.entries.get(uid)) is not None and _has_expired(entry, now):
                changes += account.release(uid, "ttl")
                self._let_go(entry)
        for name in [name for name in self._lost if self._accounts[name].is_over(now)]:
            self._lost.discard(name)
            del self._accounts[name]
        return changes

    def _review(self, account: NodeReservations, now: float) -> list[ReservationChange]:
        if not self._is_started:
            return []
        shown = account.shows_departed
        changes = account.review(now)
        if shown and not account.shows_departed:
            self._without_departed.append(account.name)
        self._findings.extend(account.findings)
        account.findings.clear()
        if account.unsettled:
            self._waiting.add(account.name)
        else:
            self._waiting.discard(account.name)
        again = account.next_review(now)
        if again is not None and (account.review_at is None or again < account.review_at):
            account.review_at = again
            heapq.heappush(self._deadlines, (again, account.name, ""))
        return changes

    def _account(self, name: str) -> NodeReservations:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = NodeReservations(name, self._rules, self._options)
            self._lost.add(name)
        return account

    def _let_go(self, entry: Reservation) -> None:
        left = tuple(node for node in self._held.get(entry.uid, ()) if node != entry.node)
        if left:
            self._held[entry.uid] = left
        else:
            self._held.pop(entry.uid, None)


def _has_expired(entry: Reservation, now: float) -> bool:
    return entry.expires is not None and entry.expires <= now
