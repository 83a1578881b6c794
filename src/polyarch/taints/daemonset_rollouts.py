"""The rollouts of DaemonSets that our changes of templates cause: what is known of each, and whose turn is next.

A changed template replaces every pod of its DaemonSet. So templates stand in line, those that others need first, and
one from which somebody takes our tolerations away is written again after a pause. State and rules only: no input or
output, and no clock; times are ``Clock.monotonic()`` of the caller.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.images.node_fit import ClusterView, NodeView, PodRequirements
from polyarch.objects import Condition, DaemonSet, Node, ObjectKey, Pod
from polyarch.taints import names
from polyarch.taints.api import AS_EXPECTED, DAEMON_SETS_COVERED
from polyarch.taints.decision import PodDecision, Reason
from polyarch.taints.node_rules import architecture_of, named

# -- verdicts: what is known of each template, for the status and for who taints nodes ---------------------------------
# A template is *covered* if nothing is to be added to it, or if its DaemonSet opted out or is not selected. One that
# waits for its turn is not covered yet, and one with unknown images is blocked.

MAX_SHOWN: Final = 50
"""Entries of ``status.blockedTemplates``."""


class TemplateDecision(msgspec.Struct, frozen=True, gc=False):
    """One DaemonSet."""

    key: ObjectKey
    pod: Pod
    """As its template describes it."""
    reason: Reason
    lacking: tuple[str, ...] = ()
    """Architectures for which a toleration is to be added, or may be when the missing answers are there; sorted."""
    is_unknown: bool = False
    """An answer is missing."""
    is_pending: bool = False
    """It may be there in a moment: its image has neither answered nor failed."""

    @property
    def is_blocked(self) -> bool:
        """Nobody knows what it should tolerate, or no node can run it."""
        return self.is_unknown or self.reason is Reason.NO_COMMON_ARCHITECTURE

    @property
    def entry(self) -> dict[str, Any]:
        """In ``status.blockedTemplates``."""
        return {
            "kind": "DaemonSet",
            "namespace": self.key.namespace,
            "name": self.key.name,
            "architectures": list(self.lacking),
            "reason": self.reason.value,
        }


def verdict_of(
    key: ObjectKey, pod: Pod, decision: PodDecision, possible: Iterable[str], *, is_pending: bool = False
) -> TemplateDecision:
    """``possible``: the tainted architectures that the known answers leave to the template."""
    unknown = bool(decision.unresolved)
    return TemplateDecision(
        key=key,
        pod=pod,
        reason=Reason.ARCHITECTURE_UNKNOWN if unknown else decision.reason,
        lacking=tuple(sorted(possible)) if unknown else decision.added,
        is_unknown=unknown,
        is_pending=unknown and is_pending,
    )


def uncovered(verdicts: Iterable[TemplateDecision], architecture: str, nodes: Iterable[Node]) -> list[str]:
    """The DaemonSets with pods on nodes of that architecture whose templates would get none there any more.

    Their pods are not looked at: the DaemonSet controller has one on every node that takes it.
    """
    lacking = [each for each in verdicts if architecture in each.lacking]
    if not lacking:
        return []
    cluster = ClusterView(NodeView.of(node) for node in nodes if architecture_of(node) == architecture)
    return [str(each.key) for each in lacking if cluster.fit(PodRequirements.of(each.pod, by_controller=True)).before]


def fields(verdicts: Iterable[TemplateDecision]) -> Mapping[str, Any]:
    """Members of the status."""
    blocked = sorted((each for each in verdicts if each.is_blocked), key=lambda each: each.key)
    return {
        "blockedTemplates": [each.entry for each in blocked[:MAX_SHOWN]],
        "blockedTemplatesTotal": len(blocked),
    }


def condition(verdicts: Iterable[TemplateDecision]) -> Condition:
    """``DaemonSetsCovered``."""
    several = sorted((each for each in verdicts if each.lacking or each.is_unknown), key=lambda each: each.key)
    if not several:
        return Condition(DAEMON_SETS_COVERED, "True", AS_EXPECTED)
    unknown = [each for each in several if each.is_unknown]
    concerned = named(str(each.key) for each in unknown or several)
    if unknown:
        message = f"images of these DaemonSets are not known: {concerned}; their Warnings say why"
        return Condition(DAEMON_SETS_COVERED, "False", "ArchitectureUnknown", message)
    message = f"templates of these DaemonSets still lack tolerations: {concerned}"
    return Condition(DAEMON_SETS_COVERED, "False", "TemplatesPending", message)


# -- the order of rollouts: DaemonSets that others need first ----------------------------------------------------------

FIRST_NAMESPACE: Final = "kube-system"
FIRST_NAMES: Final = re.compile(r"cni|csi|network")
"""What a name contains of a DaemonSet that gives pods their network or their volumes."""


def in_rollout_order(daemon_sets: Iterable[DaemonSet]) -> list[DaemonSet]:
    """Those of ``kube-system``, and those for network and volumes, before all others; each group by name."""
    return sorted(daemon_sets, key=lambda each: rollout_rank(each.metadata.key))


def rollout_rank(key: ObjectKey) -> tuple[bool, ObjectKey]:
    """What such DaemonSets are sorted by."""
    first = key.namespace == FIRST_NAMESPACE or FIRST_NAMES.search(key.name) is not None
    return not first, key


# -- turns: a few rollouts at a time, in order, with a limit -----------------------------------------------------------
# A place is free again when a rollout is done, or when an admin has confirmed one that takes too long. What is under
# way is read from the DaemonSets themselves, so that a new leader goes on where the former one was.

SLOW: Final = "DaemonSetRolloutSlow"
"""Reason of the Warning, and of the problem in the status."""


class _Rollout:
    __slots__ = ("is_confirmed", "is_slow", "since")

    def __init__(self, now: float) -> None:
        self.since: Final = now
        self.is_slow = False
        self.is_confirmed = False


class RolloutQueue:
    """``wake`` looks at a DaemonSet again: its turn has come."""

    def __init__(self, wake: Callable[[ObjectKey], None]) -> None:
        self._wake = wake
        self._rolling: dict[ObjectKey, _Rollout] = {}
        self._line: set[ObjectKey] = set()
        self._called: set[ObjectKey] = set()
        """Those in line that know that their turn has come; nobody is called twice."""
        self._seen: set[ObjectKey] = set()

    @property
    def slow(self) -> list[ObjectKey]:
        """Those that take too long and are not confirmed, in order."""
        return sorted(key for key, each in self._rolling.items() if each.is_slow and not each.is_confirmed)

    @property
    def waiting(self) -> int:
        """Number of templates in line."""
        return len(self._line)

    def observe(self, daemon_set: DaemonSet, now: float, *, limit: float) -> float | None:
        """Takes note of how far it is; seconds until it takes too long, if it is under way."""
        key = daemon_set.metadata.key
        is_new = key not in self._seen
        self._seen.add(key)
        if is_new and key not in self._rolling and _is_rolling_for_us(daemon_set):
            self._rolling[key] = _Rollout(now)
        rollout = self._rolling.get(key)
        if rollout is None:
            return None
        if daemon_set.is_rolled_out:
            del self._rolling[key]
            return None
        rollout.is_confirmed = _is_confirmed(daemon_set)
        left = rollout.since + limit - now
        return left if left > 0 else None

    def is_too_slow(self, key: ObjectKey, now: float, *, limit: float) -> bool:
        """Whether it takes too long and was not found to before."""
        rollout = self._rolling.get(key)
        if rollout is None or rollout.is_slow or now < rollout.since + limit:
            return False
        rollout.is_slow = True
        return True

    def line_up(self, key: ObjectKey) -> None:
        """Its template is to be changed."""
        self._line.add(key)

    def is_turn_of(self, key: ObjectKey, *, most: int) -> bool:
        """Whether its template may be changed now; if not, it is called later. ``most``: how many may be under way."""
        if key in self._next(most):
            self._called.add(key)
            return True
        self._called.discard(key)
        return False

    def call(self, *, most: int) -> None:
        """Wakes those whose turn has come, once."""
        for key in self._next(most):
            if key not in self._called:
                self._called.add(key)
                self._wake(key)

    def begin(self, key: ObjectKey, now: float) -> None:
        """Its template was changed."""
        self.leave(key)
        self._rolling[key] = _Rollout(now)

    def leave(self, key: ObjectKey) -> None:
        """It needs no change, or cannot have one now."""
        self._line.discard(key)
        self._called.discard(key)

    def forget(self, key: ObjectKey) -> None:
        """It is gone."""
        self.leave(key)
        self._rolling.pop(key, None)
        self._seen.discard(key)

    def start_again(self) -> None:
        """A new leader knows nothing yet."""
        self._rolling.clear()
        self._line.clear()
        self._called.clear()
        self._seen.clear()

    def _next(self, most: int) -> list[ObjectKey]:
        under_way = {key for key, each in self._rolling.items() if not each.is_confirmed}
        return sorted(self._line - under_way, key=rollout_rank)[: max(most - len(under_way), 0)]


def _is_rolling_for_us(daemon_set: DaemonSet) -> bool:
    """Whether a former leader may have begun it. One whose pods are all replaced, but not all available, may as well be
    waiting for a node that is down, and holds nobody."""
    status = daemon_set.status
    return names.ADDED_TOLERATIONS_ANNOTATION in (daemon_set.metadata.annotations or {}) and (
        status.observed_generation < daemon_set.metadata.generation
        or status.updated_number_scheduled < status.desired_number_scheduled
    )


def _is_confirmed(daemon_set: DaemonSet) -> bool:
    annotations = daemon_set.metadata.annotations or {}
    return annotations.get(names.ROLLOUT_CONFIRMED_ANNOTATION) == str(daemon_set.metadata.generation)


# -- pauses before a template is written again -------------------------------------------------------------------------
# Where the webhook of templates is not called, a tool that applies the original manifest again at each of its syncs
# would cause one rollout per sync, for ever. So the same tolerations are added again after a pause that doubles, up to
# an hour.

FIRST_PAUSE: Final = 60.0
MAX_PAUSE: Final = 3600.0
TAKEN_BACK: Final = "TolerationsTakenBack"
"""Reason of the problem in ``Degraded``."""


class RewriteBackoff:
    """What this process has added to each DaemonSet, and how often again."""

    def __init__(self) -> None:
        self._added: dict[ObjectKey, frozenset[str]] = {}
        self._written_at: dict[ObjectKey, float] = {}
        self._again: dict[ObjectKey, int] = {}

    @property
    def contested(self) -> tuple[ObjectKey, ...]:
        """DaemonSets whose tolerations were taken away more than once."""
        return tuple(sorted(key for key, count in self._again.items() if count > 1))

    def rest(self, key: ObjectKey, architectures: Collection[str], now: float) -> float:
        """Seconds until these architectures may be added; 0 unless all of them were added before."""
        if not self._added.get(key, frozenset()).issuperset(architectures):
            return 0.0
        pause = min(FIRST_PAUSE * 2.0 ** min(self._again.get(key, 0), 10), MAX_PAUSE)
        return max(self._written_at[key] + pause - now, 0.0)

    def wrote(self, key: ObjectKey, architectures: Collection[str], now: float) -> None:
        """They were added. Nobody has taken them back for two hours: the pauses begin anew."""
        known = self._added.get(key, frozenset())
        if known.issuperset(architectures) and now - self._written_at[key] < 2 * MAX_PAUSE:
            self._again[key] = self._again.get(key, 0) + 1
        else:
            self._again.pop(key, None)
        self._added[key] = known | frozenset(architectures)
        self._written_at[key] = now

    def forget(self, key: ObjectKey) -> None:
        """The DaemonSet is gone."""
        for values in (self._added, self._written_at, self._again):
            values.pop(key, None)
