"""Which architectures are tainted now, and whose turn it is: the order, the safety and the stop of a rollout.

One pass of the only key: look at the pods that became pending, release what is safe, give turns as the pace allows, and
say when to look again. What a pass knows of the cluster comes from caches; it sends no request.

An architecture that some node carries the taint for stays released as long as this process leads; one without such a
node is released only while it is safe.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.informer import Informer
from polyarch.kube.rbac import rule
from polyarch.kube.resources import ENDPOINT_SLICES, MUTATING_WEBHOOKS
from polyarch.kube.store import IndexFunction
from polyarch.objects import ObjectKey
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.names import ROLE
from polyarch.taints.node_rules import (
    SERVICE_LABEL,
    EndpointSlice,
    Pending,
    PendingPodMonitor,
    RolloutPause,
    RolloutPauseReason,
    RolloutPreconditions,
    WebhookConfiguration,
    admission_problem,
    held_back,
    in_order,
    stop_message,
)
from polyarch.taints.nodes import MANAGED, NodeController, NodeRateLimiter, NodeTaintState
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

# -- what has to be known before the first node of an architecture is tainted ------------------------------------------
# The webhook's registration and its endpoints are watched here; DaemonSets and unscheduled pods are asked of the
# controllers that watch them.

RIGHTS: Final = (rule(MUTATING_WEBHOOKS, "list", "watch", names=[ROLE]),)
"""RBAC rules for all namespaces."""
RIGHTS_AT_HOME: Final = (rule(ENDPOINT_SLICES, "list", "watch"),)
"""RBAC rules for the namespace in which polyarch runs."""


class KnowsSafety(Protocol):
    """What is known of an architecture before its first node is tainted."""

    def of(self, architecture: str) -> RolloutPreconditions: ...


class KnowsUncovered(Protocol):
    """The part of the controller of templates that is needed here."""

    def uncovered(self, architecture: str) -> Sequence[str] | None:
        """DaemonSets with a pod on such a node and without the toleration; None: not known yet."""


class KnowsUndecided(Protocol):
    """The part of the controller of pods that is needed here."""

    def undecided(self, architecture: str) -> Sequence[str] | None:
        """Unscheduled pods that may run there and wait for answers; None: not known yet."""


class KnowsRunning(Protocol):
    """Who goes through the pods on nodes."""

    @property
    def is_done(self) -> bool:
        """They tolerate what they should, or the policy leaves them alone."""


class Watches(Protocol):
    """The part of a process that is needed here."""

    def informer(
        self,
        resource: Any,
        type: type[Any],
        /,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexes: dict[str, IndexFunction[Any]] | None = None,
    ) -> Informer[Any]: ...


class ClusterPreconditions:
    """The facts, from caches. ``namespace`` is where polyarch runs."""

    def __init__(
        self,
        watches: Watches,
        *,
        namespace: str,
        daemon_sets: KnowsUncovered,
        pods: KnowsUndecided,
        running: KnowsRunning,
    ) -> None:
        self._namespace = namespace
        self._daemon_sets = daemon_sets
        self._pods = pods
        self._running = running
        self._configurations: Informer[WebhookConfiguration] = watches.informer(
            MUTATING_WEBHOOKS, WebhookConfiguration, field_selector=f"metadata.name={ROLE}"
        )
        self._slices: Informer[EndpointSlice] = watches.informer(
            ENDPOINT_SLICES, EndpointSlice, namespace=namespace, label_selector=f"{SERVICE_LABEL}={ROLE}"
        )

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls ``handler`` when the webhook's registration or its endpoints change."""
        for informer in (self._configurations, self._slices):
            informer.add_handler(lambda _: handler())

    def of(self, architecture: str) -> RolloutPreconditions:
        """What is known of one architecture."""
        return RolloutPreconditions(
            admission=self.admission,
            uncovered=self._daemon_sets.uncovered(architecture),
            undecided=self._pods.undecided(architecture),
            running_prepared=self._running.is_done,
        )

    @property
    def admission(self) -> str:
        """Why the webhook for pods is not registered or not available; empty: it is both."""
        return admission_problem(
            self._configurations.store.get(ObjectKey("", ROLE)), self._slices.store.values(), namespace=self._namespace
        )


# -- the rollout -------------------------------------------------------------------------------------------------------

POLL_INTERVAL: Final = 2.0
"""Seconds between two looks while nodes wait, or pods may become pending."""
IDLE_LOOK: Final = 10.0


class _Judged(NamedTuple):
    """What was found at a time: looking means walking over nodes and pods, so it is not done for every event."""

    at: float
    hold: RolloutPause | None


class TaintRollout:
    """The rollout; :meth:`started_leading` begins it anew."""

    def __init__(
        self,
        *,
        nodes: NodeController,
        facts: TaintFacts,
        safety: KnowsSafety,
        pending: Callable[[TaintSettings], Pending | None],
        pace: NodeRateLimiter,
        released: Callable[[], None],
        clock: Clock,
        metrics: TaintMetrics,
    ) -> None:
        """``pending``: the pods that only our taint keeps pending, None if that is not known yet. ``released``: called
        when the architectures have changed that may be tainted."""
        self._nodes = nodes
        self._facts = facts
        self._safety = safety
        self._pending = pending
        self._pace = pace
        self._told_released = released
        self._clock = clock
        self._metrics = metrics
        self._is_begun = False
        self._has_judged = False
        self._has_looked = False
        self._outdated = True
        self._accepted: object = None
        self._carried: frozenset[str] = frozenset()
        """Architectures that some node carried the taint for."""
        self._taint: object = None
        self._judged: dict[str, _Judged] = {}
        self._holds: dict[str, RolloutPause] = {}
        self._watches: dict[str, PendingPodMonitor] = {}
        nodes.on_tainted = self._tainted

    # -- what others are told ------------------------------------------------------------------------------------------

    @property
    def holds(self) -> dict[str, RolloutPause]:
        """Why no node of an architecture is tainted now."""
        return dict(self._holds)

    @property
    def released(self) -> frozenset[str] | None:
        """Architectures whose nodes are tainted, at registration too; None before the first pass of this leader."""
        return self._nodes.released if self._has_judged else None

    # -- changes -------------------------------------------------------------------------------------------------------

    def started_leading(self) -> None:
        """This replica gives the turns from now on."""
        self._pace.begin()
        self._carried, self._holds, self._watches = frozenset(), {}, self._stopped_before()
        self._outdated, self._is_begun, self._has_judged, self._has_looked = True, True, False, False

    def stopped_leading(self) -> None:
        """Another replica gives them, and shows the numbers of nodes."""
        self._is_begun = False
        self._metrics.show_nodes({})

    def settings_changed(self) -> None:
        """Every node is decided again."""
        self._outdated = True

    def safety_changed(self) -> None:
        """The webhook came or went: what was found of the architectures is out of date."""
        self._judged.clear()

    def _tainted(self, architecture: str) -> None:
        watch = self._watches.get(architecture, PendingPodMonitor(known=frozenset() if self._has_looked else None))
        self._watches[architecture] = watch.tainted(self._clock.monotonic())

    def _stopped_before(self) -> dict[str, PendingPodMonitor]:
        """Stops that the leader before this one wrote to the status, unless the object was changed since."""
        found = self._facts.configuration
        if found is None or found.status.observed_generation != found.metadata.generation:
            return {}
        stopped = RolloutPauseReason.PODS_BECAME_PENDING
        rows = found.status.architectures or ()
        return {row.name: PendingPodMonitor(stopped=True) for row in rows if row.reason == stopped}

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass."""
        settings = self._facts.settings
        if not self._is_begun:
            return NoRequeue()
        if self._outdated:
            self._outdated = False
            self._judged.clear()
            self._forget_former(settings)
            await self._nodes.decide_all()
        if settings is None:
            self._holds = {}
            self._metrics.show_nodes({})
            await self._release(frozenset())
            return NoRequeue()
        self._pace.per_minute = settings.per_minute
        self._accept_pods()
        self._look(settings)
        await self._release(self._safe(settings))
        self._has_judged = True
        wait = self._give_turns(settings)
        self._metrics.show_nodes(self._nodes.census.counts)
        watching = self._nodes.is_busy or self._holds or self._is_watching
        return RequeueAfter(min(wait, POLL_INTERVAL if watching else IDLE_LOOK))

    def _forget_former(self, settings: TaintSettings | None) -> None:
        """Another key or effect is another taint, which no node carries yet."""
        taint = (settings.key, settings.effect) if settings is not None else None
        if taint != self._taint:
            self._taint, self._carried = taint, frozenset()

    def _safe(self, settings: TaintSettings) -> frozenset[str]:
        """The architectures whose nodes may be tainted now; the others are on hold."""
        census = self._nodes.census
        present = {each for each in settings.tainted if census.number(NodeTaintState.TAINTED, architecture=each)}
        self._carried = (self._carried | present) & settings.tainted
        holds: dict[str, RolloutPause] = {}
        if settings.state == "active":
            for architecture in sorted(settings.tainted):
                hold = self._hold(architecture, settings)
                if hold is not None:
                    holds[architecture] = hold
            self._tell(holds)
            self._holds = holds
            return settings.tainted - holds.keys()
        self._holds = {}
        return settings.tainted if settings.state == "removing" else self._nodes.released

    def _hold(self, architecture: str, settings: TaintSettings) -> RolloutPause | None:
        watch = self._watches.get(architecture)
        if watch is not None and watch.stopped:
            return RolloutPause(RolloutPauseReason.PODS_BECAME_PENDING, stop_message(architecture, watch.names))
        if architecture in self._carried:
            return None
        now = self._clock.monotonic()
        waits = self._nodes.census.number(NodeTaintState.WAITING, architecture=architecture) > 0
        known = self._judged.get(architecture)
        if known is None or now - known.at >= (POLL_INTERVAL if waits else IDLE_LOOK):
            hold = held_back(architecture, settings, self._safety.of(architecture))
            known = self._judged[architecture] = _Judged(now, hold)
        return known.hold

    def _tell(self, holds: Mapping[str, RolloutPause]) -> None:
        waiting = {each for each in holds if self._nodes.census.number(NodeTaintState.WAITING, architecture=each)}
        for architecture in sorted(waiting):
            if self._holds.get(architecture) != holds[architecture]:
                hold = holds[architecture]
                log.warning("nodes wait for their taint", architecture=architecture, why=hold.reason, more=hold.message)

    async def _release(self, architectures: frozenset[str]) -> None:
        if architectures != self._nodes.released:
            await self._nodes.release(architectures)
            self._told_released()

    def _give_turns(self, settings: TaintSettings) -> float:
        """Hands nodes to the workers; returns the seconds until the next turn, or a long time if none is due."""
        census = self._nodes.census
        numbers = {each: census.number(*MANAGED, architecture=each) for each in census.architectures}
        order = in_order(numbers, settings.primary)
        while len(self._nodes.due):
            rest = self._pace.rest(at_once=self._nodes.due.has_at_once)
            if rest > 0:
                return rest
            if not self._nodes.give_turn(order):
                break
            self._pace.take()
        return IDLE_LOOK

    # -- pods that became pending --------------------------------------------------------------------------------------

    @property
    def _is_watching(self) -> bool:
        """A node was tainted shortly before, or a stop may end."""
        now = self._clock.monotonic()
        return any(watch.is_open(now) or watch.stopped for watch in self._watches.values())

    def _accept_pods(self) -> None:
        """A change of the object, an annotation too, says: go on, knowing of the pods that are pending."""
        found = self._facts.configuration
        seen = (found.metadata.uid, found.metadata.generation, found.metadata.annotations) if found else None
        if self._accepted is not None and seen != self._accepted:
            self._watches = {name: watch.accepted() for name, watch in self._watches.items()}
        self._accepted = seen

    def _look(self, settings: TaintSettings) -> None:
        """Also before a node is written after a pause: pods that are pending then are not pending because of it."""
        if self._has_looked and not self._is_watching and not self._nodes.is_busy:
            return
        found = self._pending(settings)
        if found is None:
            return
        now = self._clock.monotonic()
        self._has_looked = True
        for architecture in self._watches.keys() | found.keys():
            watch = self._watches.get(architecture, PendingPodMonitor())
            self._watches[architecture] = watch.looked(now, found.get(architecture, {}))
