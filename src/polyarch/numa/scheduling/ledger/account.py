"""The book of one node: its object, its pods, what is reserved there, and which pods the object does not show yet.

Every event costs as much as the node has pods, whatever the cluster has. Pure; mutable.
"""

from collections import deque
from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts
from polyarch.numa.scheduling.ledger.certainty import is_certain
from polyarch.numa.scheduling.ledger.expectation import DISTRUST, Expectation
from polyarch.numa.scheduling.ledger.explaining import Explanation, explain, fingerprint_of
from polyarch.numa.scheduling.ledger.options import LedgerOptions, Rules
from polyarch.numa.scheduling.ledger.reservations import (
    NOTHING,
    Cells,
    Change,
    Finding,
    Groups,
    Reason,
    Reservation,
    Sums,
)
from polyarch.numa.scheduling.ledger.residents import Excluding, Resident, is_exclusive_by_spec
from polyarch.numa.scheduling.ledger.settling import Version, grace, is_shown_at_start, settled

REMEMBERED: Final = 300.0
"""Seconds for which pods that have left may still be in an object (NS-104)."""
NAMESAKES: Final = 600.0
"""Seconds for which the name of a pod that has left proves nothing (NS-106)."""


class Account:
    """See the module's docstring. Methods return what changed."""

    def __init__(self, name: str, rules: Rules, options: LedgerOptions) -> None:
        self.name: Final = name
        self.facts: NodeFacts | None = None
        self.version: Version | None = None
        self.explanation: Explanation | None = None
        self.entries: Final[dict[str, Reservation]] = {}
        """By uid of the pod."""
        self.residents: dict[str, Resident] = {}
        """Pods that are bound to the node and not over, in the order of their binding."""
        self.exporter_ready_since: float | None = None
        self.findings: Final[list[Finding]] = []
        self._distrusted_until: float | None = None
        self._rules: Final = rules
        self._options: Final = options
        self._sums: Final = Sums()
        self._ended: Final[dict[str, Resident]] = {}
        self._departed: Final[deque[tuple[float, Resident]]] = deque()
        """Newest first."""
        self._names_left: Final[dict[int, float]] = {}
        self._expectation: Final = Expectation()
        self.review_at: float | None = None
        """When the ledger will ask for a review."""
        self._is_explained = False
        """``explanation`` is of the pods and the version that are there now."""

    @property
    def reserved(self) -> Cells:
        return self._sums.cells

    @property
    def groups(self) -> Groups:
        """Of all reservations."""
        return tuple(group for entry in self.entries.values() for group in entry.memory_groups)

    @property
    def unsettled(self) -> list[Resident]:
        """Those whose reservations wait for the object to show them."""
        residents = (self.residents.get(uid) for uid in self.entries)
        return [each for each in residents if each is not None and not (each.is_shown or each.is_excluded)]

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
        wait = grace(self.facts.settings)
        ends = [each.admitted + wait for each in self.unsettled if each.admitted is not None]
        return min((end for end in ends if end > now), default=None)

    # -- reservations --------------------------------------------------------------------------------------------------

    def is_certain(self, pod: PodFacts, decision: Decision, now: float) -> bool:
        """The kubelet will admit the pod in whatever order it gets to those on their way."""
        node = self.facts
        if node is None or not decision.taken:
            return True
        claim = self._rules.claim(pod, node, decision)
        if claim.is_fragile and self.explanation is not None and self.explanation.departed:
            return False
        coming, there = [], Sums()
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
        return not (resident.is_shown or resident.is_excluded) and now - resident.admitted < grace(node.settings)

    def hold(self, pod: PodFacts, decision: Decision, now: float, expires: float) -> list[Change]:
        """What a filter has chosen."""
        if self.facts is None or not decision.taken or pod.uid in self.entries:
            return []
        return [self._reserve(pod, decision, now, "filter", expires=expires, spread=self.is_distrusted(now))]

    def bind(self, uid: str, reason: Reason) -> list[Change]:
        """The pod is bound here: what was held for it stays."""
        entry = self.entries.get(uid)
        if entry is None or entry.state == "bound":
            return []
        self.entries[uid] = bound = msgspec.structs.replace(entry, state="bound", expires=None)
        return [Change(event="bound", reason=reason, reservation=bound)]

    def release(self, uid: str, reason: Reason) -> list[Change]:
        entry = self.entries.pop(uid, None)
        if entry is None:
            return []
        self._sums.take(entry.cells)
        return [Change(event="released", reason=reason, reservation=entry)]

    def _reserve(
        self, pod: PodFacts, decision: Decision, now: float, reason: Reason, *, expires: float | None, spread: bool
    ) -> Change:
        node = self.facts or NodeFacts(name=self.name)
        demand = self._rules.demand(pod, node)
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
                claim=self._rules.claim(pod, node, decision) if self._is_ours(pod, reason) else None,
                is_spread=spread,
                since=now,
                expires=expires,
            ),
            reason,
        )

    def _enter(self, entry: Reservation, reason: Reason) -> Change:
        self.entries[entry.uid] = entry
        self._sums.add(entry.cells)
        return Change(event="reserved", reason=reason, reservation=entry)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def see(self, pod: PodFacts, now: float, event: int) -> list[Change]:
        """A pod that is bound to this node and not over."""
        resident = self.residents.get(pod.uid)
        changes: list[Change] = []
        if resident is None:
            resident = self.residents[pod.uid] = Resident(pod)
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

    def end(self, pod: PodFacts, now: float) -> list[Change]:
        """The pod is over, and its object still there."""
        if pod.uid in self._ended:
            return []
        resident = self.residents.pop(pod.uid, None) or Resident(pod)
        self._mark(resident)
        self._ended[pod.uid] = resident
        return self._left(resident, now, "ended")

    def leave(self, uid: str, now: float) -> list[Change]:
        """The pod's object is gone."""
        resident = self.residents.pop(uid, None) or self._ended.pop(uid, None)
        if resident is None:
            return self.release(uid, "deleted")
        self._departed.appendleft((now, resident))
        return self._left(resident, now, "deleted")

    def _left(self, resident: Resident, now: float, reason: Reason) -> list[Change]:
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

        def admission(resident: Resident) -> float:
            return last if resident.admitted is None else resident.admitted

        self.residents = {each.uid: each for each in sorted(self.residents.values(), key=admission)}

    # -- the object ----------------------------------------------------------------------------------------------------

    def show(self, node: NodeFacts, now: float, event: int) -> list[Change]:
        """What is known of the node now. Reservations stay, whatever has changed (NS-103, NS-110)."""
        before, self.facts = self.facts, node
        if not node.has_topology:
            self.version = None
            self._is_explained = False
            return []
        is_first = self.version is None
        if self.version is None or not node.resource_version or self.version.name != node.resource_version:
            self.version = Version(
                name=node.resource_version,
                method=node.fingerprint_method,
                received=now,
                at_event=event,
                is_first=is_first,
            )
            self._is_explained = False
        changes: list[Change] = []
        if before is None or _listing(before) != _listing(node):
            for resident in (*self.residents.values(), *self._ended.values(), *(each for _, each in self._departed)):
                self._mark(resident)
            self._is_explained = False
            changes = self._spread_again(node)
        return changes

    def lose(self) -> list[Change]:
        """The Node is gone. Its pods may come back with it."""
        self.facts = self.version = self.explanation = None
        self._expectation.forget()
        for resident in self.residents.values():
            resident.is_waiting = True
            resident.is_shown = False
            resident.placed = None
        return [change for uid in list(self.entries) for change in self.release(uid, "node-deleted")]

    def distrust(self, now: float) -> None:
        """Where pods went is not where they were predicted: new reservations are spread for a while (NS-109)."""
        self._distrusted_until = now + DISTRUST

    def _spread_again(self, node: NodeFacts) -> list[Change]:
        changes: list[Change] = []
        for entry in [each for each in self.entries.values() if each.is_spread]:
            cells = _spread(entry.demand, node)
            if cells != entry.cells:
                changes += self.release(entry.uid, "cells")
                changes.append(self._enter(msgspec.structs.replace(entry, cells=cells), "cells"))
        return changes

    def _mark(self, resident: Resident) -> None:
        """What the node's object says about whom its fingerprint counts."""
        node, pod = self.facts, resident.facts
        if node is None:
            return
        resident.is_excluded = Excluding.of(node.settings.pod_exclude).covers(resident.full_name)
        if pod is not None:
            resident.is_listed = self._rules.is_listed(pod, node)
            resident.is_listed_by_spec = is_exclusive_by_spec(pod, node)

    # -- explaining and settling ---------------------------------------------------------------------------------------

    def review(self, now: float) -> list[Change]:
        """After an event, or when :meth:`next_review` has come: who needs a reservation, and who none any more."""
        node, version = self.facts, self.version
        if node is None or version is None:
            return []
        self.forget_old(now)
        self._explain(node)
        wait = grace(node.settings)
        changes = self._take_up(node, version, now, wait)
        shown = False
        for resident in self.residents.values():
            if resident.is_shown:
                continue
            reason = settled(
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

    def _settle(self, uid: str, reason: Reason) -> list[Change]:
        entry = self.entries.get(uid)
        changes = self.release(uid, reason)
        if entry is not None and entry.unseen:
            rest = msgspec.structs.replace(entry, cells=entry.unseen, memory_groups=(), unseen=NOTHING, claim=None)
            changes.append(self._enter(rest, "unseen"))
        return changes

    def _explain(self, node: NodeFacts) -> None:
        if self._is_explained:
            return
        self.explanation = explain(
            node.fingerprint,
            node.fingerprint_method,
            list(self.residents.values()),
            [each for _, each in self._departed],
            list(self._ended.values()),
        )
        self._is_explained = True

    def _take_up(self, node: NodeFacts, version: Version, now: float, wait: float) -> list[Change]:
        """Pods that came without having been held: found at the start, or bound by others (NS-108, NS-150)."""
        changes: list[Change] = []
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

    def _predict(self, resident: Resident, pod: PodFacts, node: NodeFacts, now: float) -> list[Change]:
        if not self._options.is_on or (self._options.foreign == "none" and not self._is_ours(pod, "seen")):
            return []
        if not self._rules.demand(pod, node):
            resident.placed = NOTHING
            return []
        decision = self._rules.decide(pod, node, free(node, self.reserved), self.groups)
        if decision.fits and not decision.taken:
            return []
        spread = not decision.fits or self.is_distrusted(now)
        if not spread:
            resident.placed = decision.taken
        return [self._reserve(pod, decision, now, "seen", expires=None, spread=spread)]

    def _is_ours(self, pod: PodFacts, reason: Reason) -> bool:
        return reason == "filter" or pod.scheduler_name == self._options.scheduler

    def _is_namesake(self, resident: Resident, now: float) -> bool:
        left = self._names_left.get(resident.name_hash)
        return left is not None and now - left <= NAMESAKES

    def _compare(self, node: NodeFacts, now: float, *, shown: bool) -> None:
        if shown and self._expectation.is_missed(node):
            self.distrust(now)
            for resident in self.residents.values():
                resident.placed = None
            self.findings.append(
                Finding("mispredicted", self.name, "pods are on other cells than predicted; reservations are spread")
            )
        if self.explanation is not None and self.explanation.is_present:
            self._expectation.begin(node)

    def _tell_unexplained(self, node: NodeFacts, resident: Resident) -> None:
        known = fingerprint_of(self.residents.values(), node.fingerprint_method)
        text = f"the object has the fingerprint {node.fingerprint or '(none)'}, the node's pods have {known}"
        self.findings.append(Finding("unexplained", self.name, f"{text}; {resident.full_name} counts as shown"))


def free(node: NodeFacts, reserved: Cells) -> dict[int, Amounts]:
    """What is left of each cell, never below 0 (NS-100)."""
    left: dict[int, Amounts] = {}
    for cell in node.cells:
        taken = reserved.get(cell.id)
        if taken is None:
            left[cell.id] = cell.available
        else:
            left[cell.id] = {name: max(0, amount - taken.get(name, 0)) for name, amount in cell.available.items()}
    return left


def _spread(demand: Amounts, node: NodeFacts) -> Cells:
    return {
        cell.id: on_cell
        for cell in node.cells
        if (on_cell := {name: amount for name, amount in demand.items() if name in cell.available})
    }


def _listing(node: NodeFacts) -> tuple[object, ...]:
    """What decides which pods a fingerprint counts, and where a reservation is spread."""
    cells = [(cell.id, {name: amount > 0 for name, amount in cell.allocatable.items()}) for cell in node.cells]
    return node.settings, cells, node.has_topology
