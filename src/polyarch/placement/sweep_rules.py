"""Which pods the webhook missed, what their events say, and which may be evicted.

The rules are those that place pods. There are two steps, as in ``rules``, because registries are asked in between:
:func:`find_candidate` looks at the pod alone, :func:`find_missed` adds the inspections of its images and the nodes.
Pure: no I/O, no clock.
"""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.images.pod_images import conflict, images_of, listed
from polyarch.objects import OwnerReference, Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement import names
from polyarch.placement.decision import PlacementDecision, Reason, SignedContext, is_authentic, read_record
from polyarch.placement.events import Event, EventReason, shorten_note
from polyarch.placement.rules import ExaminedPod, PodFacts, decide, examine

_TERMINAL: Final = ("Succeeded", "Failed")


class MissReason(StrEnum):
    """What is wrong with a pod."""

    UNPLACED = "unplaced"
    """It waits for a node and was never placed."""
    STALE = "stale"
    """It waits for a node and was placed for other images; counts as unplaced."""
    MISPLACED = "misplaced"
    """It is on a node whose architecture its images do not support."""


class SweepCandidate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod without a finished decision that should have one."""

    case: ExaminedPod
    pod: Pod
    """As it is; the case is of the same pod without its node."""
    is_stale: bool = False

    @property
    def node(self) -> str:
        """The name of its node; empty while it waits for one."""
        return self.pod.spec.node_name


class MissedPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod that the webhook missed, and what would be decided for a new one."""

    reason: MissReason
    pod: Pod
    case: ExaminedPod
    decision: PlacementDecision
    evictable: bool = False
    """A new pod would be placed otherwise, and somebody creates it."""
    node_architecture: str = ""

    @property
    def owner(self) -> OwnerReference | None:
        """Who creates the pod anew when it is gone."""
        return self.pod.metadata.controller


def find_candidate(facts: PodFacts, *, younger: datetime | None) -> SweepCandidate | None:
    """The pod, if it should have been placed and was not; ``younger``: pods created after it are passed over."""
    pod, settings = facts.pod, facts.settings
    metadata = pod.metadata
    if settings.sweep_action == "off" or settings.mode != "enforce" or settings.provisional or settings.leaving:
        return None
    if metadata.deletion_timestamp is not None or (pod.status is not None and pod.status.phase in _TERMINAL):
        return None
    if any(gate.name == names.GATE for gate in pod.spec.scheduling_gates or ()):
        return None  # the controller's
    if younger is not None and created(pod) > younger:
        return None
    is_stale = False
    written = read_record(metadata.annotations)
    if written is not None and written.mode == "enforce":
        images = tuple(use.text for use in images_of(pod))
        is_stale = not written.is_of(images)
        if not is_stale and is_authentic(written, SignedContext(facts.namespace, images, facts.signer)):
            return None
    if not is_stale and (metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL) == names.REMOVED:
        return None
    case = examine(
        msgspec.structs.replace(
            facts,
            pod=msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="")),
            stored=False,
            record_was_sent=False,  # a record for other images is still ours
        )
    )
    return SweepCandidate(case=case, pod=pod, is_stale=is_stale) if case.rule is None else None


def find_missed(
    candidate: SweepCandidate, inspections: Mapping[str, Inspection], nodes: Mapping[str, str]
) -> MissedPod | None:
    """The missed pod, by these inspections; None: the pod is fine, or it cannot be said yet. ``nodes``: name to
    architecture; empty if they are not known."""
    decision = decide(candidate.case, inspections)
    if not candidate.node:
        reason = MissReason.STALE if candidate.is_stale else MissReason.UNPLACED
        on_nodes = set(nodes.values())
        gains = _runs_somewhere(decision, on_nodes) and not on_nodes <= set(decision.architectures)
        evictable = gains and _is_recreated(candidate.pod)
        return MissedPod(reason=reason, pod=candidate.pod, case=candidate.case, decision=decision, evictable=evictable)
    own = nodes.get(candidate.node, "")
    known = decision.reason in (Reason.ARCHITECTURES_SET, Reason.NO_SUPPORTED_ARCHITECTURE)
    if not own or not known or own in decision.supported:
        return None
    return MissedPod(
        reason=MissReason.MISPLACED,
        pod=candidate.pod,
        case=candidate.case,
        decision=decision,
        evictable=_runs_somewhere(decision, set(nodes.values())) and _is_recreated(candidate.pod),
        node_architecture=own,
    )


def _runs_somewhere(decision: PlacementDecision, on_nodes: set[str]) -> bool:
    """All images are resolved, and some node can run the new pod: otherwise it would only wait."""
    return decision.reason is Reason.ARCHITECTURES_SET and not on_nodes.isdisjoint(decision.architectures)


def _is_recreated(pod: Pod) -> bool:
    """By a controller of the cluster; the mirror of a static pod belongs to its Node."""
    owner = pod.metadata.controller
    return owner is not None and bool(owner.uid) and owner.kind != "Node"


def created(pod: Pod) -> datetime:
    """When the API server stored it; for a time that cannot be read, the earliest there is."""
    try:
        return datetime.fromisoformat(pod.metadata.creation_timestamp or "")
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


# -- events ------------------------------------------------------------------------------------------------------------
# What is wrong with the pod, and the next action.


def unplaced_event(pod: MissedPod) -> Event:
    """The Warning for a pod that the webhook missed; nothing is changed."""
    recreated = "delete it, and its owner creates a new one, which is placed"
    remedy = recreated if pod.owner is not None else "delete it and create it again"
    note = f"{_what(pod)}; {remedy}."
    return Event(EventReason.UNPLACED_POD, "Warning", shorten_note(note), "Report")


def evicted_event(pod: MissedPod) -> Event:
    """For a pod that was evicted; its owner creates a new one."""
    values = listed(pod.decision.architectures)
    note = f"{_what(pod)}; evicted, so that its owner creates a new one, which is constrained to {values}."
    return Event(EventReason.POD_EVICTED, "Normal", shorten_note(note), "Evict")


def _what(pod: MissedPod) -> str:
    if pod.reason is MissReason.MISPLACED:
        where = f"node {pod.pod.spec.node_name} ({pod.node_architecture})"
        return f"Pod was not placed and is on {where}, which its images do not support: {_support(pod.decision)}"
    begin = "Pod was created without placement"
    if pod.reason is MissReason.STALE:
        begin = "Images of the pod were changed after it was placed"
    return begin + _consequence(pod.decision)


def _consequence(decision: PlacementDecision) -> str:
    match decision.reason:
        case Reason.ALL_IMAGES_NEUTRAL:
            return ", but its images run on any architecture"
        case Reason.PREFERENCES_ONLY:
            return "; it requires its architecture itself and lacks only the preferences"
    support = _support(decision)
    return f": nothing keeps it from nodes that cannot run its images{f' ({support})' if support else ''}"


def _support(decision: PlacementDecision) -> str:
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            return f"they support {listed(decision.supported)}"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            return conflict(decision.images)
        case _:
            return ""


# -- the rate of evictions ---------------------------------------------------------------------------------------------
# At most so many a minute; one per owner in five minutes; and none for an hour if it did not help, that is, if the new
# pod of that owner was missed as well. "New" is measured by creation times alone, all by the API server's clock. Other
# times are ``Clock.monotonic()``. What is kept is bounded, since it ends after an hour. A new leader begins anew.

OWNER_INTERVAL: Final = 300.0
NO_HELP_INTERVAL: Final = 3600.0
MINUTE: Final = 60.0
MAX_OWNERS: Final = 6000
"""Owners remembered: a hundred evictions a minute, for an hour."""


class _Owner:
    __slots__ = ("evicted_at", "latest", "no_help")

    def __init__(self, evicted_at: float, latest: str) -> None:
        self.evicted_at = evicted_at
        self.latest = latest
        """Creation time of the latest pod that existed then."""
        self.no_help = False

    @property
    def rests_until(self) -> float:
        return self.evicted_at + (NO_HELP_INTERVAL if self.no_help else OWNER_INTERVAL)


class EvictionRateLimiter:
    """The evictions of the last hour."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        """In order of their last eviction."""
        self._tries: deque[float] = deque(maxlen=100)

    def __len__(self) -> int:
        return len(self._owners)

    def saw(self, owner: str, created: str) -> None:
        """A pod of this owner, created then (RFC 3339, UTC), was missed."""
        known = self._owners.get(owner)
        if known is not None and created > known.latest:
            known.no_help = True

    def wait(self, owner: str, now: float, *, per_minute: int) -> float:
        """Seconds until a pod of this owner may be evicted; 0: now."""
        self._forget(now)
        known = self._owners.get(owner)
        rest = known.rests_until - now if known is not None else 0.0
        if len(self._tries) >= per_minute:
            rest = max(rest, self._tries[-per_minute] + MINUTE - now)
        return max(rest, 0.0)

    def tried(self, now: float) -> None:
        """An eviction was asked for, and counts whether or not it was granted."""
        self._tries.append(now)

    def granted(self, owner: str, now: float, *, latest: str) -> None:
        """A pod of this owner was evicted; ``latest``: the latest creation time of any pod seen by then."""
        self._owners.pop(owner, None)
        self._owners[owner] = _Owner(now, latest)
        while len(self._owners) > MAX_OWNERS:
            del self._owners[next(iter(self._owners))]

    def _forget(self, now: float) -> None:
        while self._owners:
            oldest = next(iter(self._owners))
            if now - self._owners[oldest].evicted_at < NO_HELP_INTERVAL:
                return
            del self._owners[oldest]
