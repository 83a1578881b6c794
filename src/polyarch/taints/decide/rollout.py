"""When the nodes of an architecture are tainted, in which order, and when that stops (TN-025, TN-026).

A taint on the first node of an architecture changes what the whole cluster schedules, so it waits until pods and
DaemonSets are known to get their tolerations. Afterwards pods are watched that nothing but the taint keeps pending: if
some appear shortly after nodes were tainted, no further node of that architecture is.

Pure: times are seconds that the caller passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.taints.api.settings import TaintSettings
from polyarch.tolerations import NO_EXECUTE

NAMED: Final = 5
"""Objects that a message names."""
WINDOW: Final = 60.0
"""Seconds after a node was tainted in which pods that become pending stop the rollout."""
QUIET: Final = 600.0
"""Seconds without such pods after which it goes on by itself."""
SETTLED: Final = 5.0
"""Seconds that a pod is pending before it counts: one that the webhook missed gets its tolerations meanwhile."""


class HoldReason(StrEnum):
    """Why no node of an architecture is tainted, as ``status.architectures[].reason`` says it."""

    ADMISSION_NOT_READY = "AdmissionNotReady"
    DAEMON_SETS_NOT_COVERED = "DaemonSetsNotCovered"
    PODS_UNDECIDED = "PodsUndecided"
    PODS_BECAME_PENDING = "PodsBecamePending"


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Why the nodes of an architecture wait; the message is a sentence without its full stop."""

    reason: HoldReason
    message: str


class Safety(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of an architecture before its first node is tainted. None: not known yet."""

    admission: str = ""
    """Why the webhook for pods is not registered or not available; empty: it is both."""
    uncovered: Sequence[str] | None = ()
    """DaemonSets with a pod on such a node and without the toleration in their template."""
    undecided: Sequence[str] | None = ()
    """Unscheduled pods that may run there and wait for the answers about their images."""
    running_prepared: bool = True
    """Pods on nodes have the tolerations that they should have."""


def held_back(architecture: str, settings: TaintSettings, safety: Safety) -> Hold | None:
    """Why the first node of an architecture must not be tainted yet; None: it may (TN-025)."""
    if settings.rollout == "immediate":
        return None
    if safety.admission:
        return Hold(HoldReason.ADMISSION_NOT_READY, safety.admission)
    if settings.templates != "ignore":
        if safety.uncovered is None:
            return Hold(HoldReason.DAEMON_SETS_NOT_COVERED, "the DaemonSets of the cluster are not known yet")
        if safety.uncovered:
            what = f"DaemonSets with pods on {architecture} nodes whose templates do not tolerate the taint"
            return Hold(HoldReason.DAEMON_SETS_NOT_COVERED, f"{what}: {named(safety.uncovered)}")
    if settings.effect == NO_EXECUTE and not safety.running_prepared:
        return Hold(
            HoldReason.PODS_UNDECIDED, "pods on nodes are still getting their tolerations; NoExecute would evict them"
        )
    if settings.mode != "secondary-only":
        if safety.undecided is None:
            return Hold(HoldReason.PODS_UNDECIDED, "the unscheduled pods of the cluster are not known yet")
        if safety.undecided:
            what = f"unscheduled pods that may run on {architecture} and wait for the answers about their images"
            return Hold(HoldReason.PODS_UNDECIDED, f"{what}: {named(safety.undecided)}")
    return None


def in_order(nodes: Mapping[str, int], primary: frozenset[str]) -> tuple[str, ...]:
    """Architectures in the order in which they are tainted (TN-026), given how many managed nodes each has."""
    return tuple(sorted(nodes, key=lambda each: (each in primary, nodes[each], each)))


def named(names: Iterable[str]) -> str:
    """The first five names, and how many more there are."""
    several = list(names)
    more = f" and {len(several) - NAMED} more" if len(several) > NAMED else ""
    return ", ".join(several[:NAMED]) + more


class PendingWatch(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to pods since nodes of one architecture were tainted (TN-026).

    Pods are given by uid, with their names. Those that were pending already when the watch began, or that somebody has
    accepted, do not stop anything.
    """

    stopped: bool = False
    tainted_at: float | None = None
    """When the last node of the architecture was tainted."""
    known: frozenset[str] | None = None
    """Pods that do not count; None: nobody has looked yet."""
    since: Mapping[str, float] = {}
    """Pods that count, and when each was first seen."""
    names: tuple[str, ...] = ()
    """Names of the pods that count, at the last look."""
    quiet_since: float | None = None

    def tainted(self, now: float) -> "PendingWatch":
        """A node of the architecture was tainted."""
        return msgspec.structs.replace(self, tainted_at=now)

    def looked(self, now: float, pending: Mapping[str, str]) -> "PendingWatch":
        """The state after a look at the pods that only the taint of this architecture keeps pending."""
        if self.known is None:
            known = frozenset() if self.stopped else frozenset(pending)
        elif self.is_open(now) or self.stopped:
            known = self.known & pending.keys()
        else:
            known = frozenset(pending) - self._unsettled(pending)
        since = {uid: self.since.get(uid, now) for uid in pending if uid not in known}
        seen = msgspec.structs.replace(
            self, known=known, since=since, names=tuple(sorted(pending[uid] for uid in since))
        )
        return seen._resumed(now) if self.stopped else seen._halted(now)

    def accepted(self) -> "PendingWatch":
        """Somebody changed the configuration knowing of these pods: they count no more."""
        known = None if self.known is None else self.known | self.since.keys()
        return PendingWatch(tainted_at=self.tainted_at, known=known)

    def is_open(self, now: float) -> bool:
        """A node was tainted less than a minute ago."""
        return self.tainted_at is not None and now - self.tainted_at <= WINDOW

    def _unsettled(self, pending: Mapping[str, str]) -> frozenset[str]:
        """Pods that appeared while the window was open and are not settled yet."""
        return frozenset(uid for uid in self.since if uid in pending)

    def _halted(self, now: float) -> "PendingWatch":
        stops = any(now - first >= SETTLED for first in self.since.values())
        return msgspec.structs.replace(self, stopped=True) if stops else self

    def _resumed(self, now: float) -> "PendingWatch":
        if self.since:
            return msgspec.structs.replace(self, quiet_since=None)
        quiet_since = now if self.quiet_since is None else self.quiet_since
        if now - quiet_since >= QUIET:
            return PendingWatch(tainted_at=self.tainted_at, known=self.known)
        return msgspec.structs.replace(self, quiet_since=quiet_since)


def stop_message(architecture: str, pods: Sequence[str]) -> str:
    """The sentence of condition ``Degraded`` while tainting of an architecture is stopped."""
    return (
        f"pods became pending when {architecture} nodes were tainted, because they do not tolerate the taint: "
        f"{named(pods) if pods else 'none any more'}; no further {architecture} node is tainted. Give them the "
        "toleration, or images for other nodes, and change the object to go on (an annotation is enough), or wait "
        "10 minutes after the last such pod"
    )
