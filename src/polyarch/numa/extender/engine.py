"""What the extender answers, without input or output: the scheduler cache, and what was said last of each pod.

The cache keeps the node index, which is asked, and the reservation cache, which knows what is promised, in step: each
change of a reservation is made in the index, too, so that the next call sees it. Pods that no node fits are tried again
where a node may have more room, as kube-scheduler does not watch NodeResourceTopologies. Mutable, for one task.
"""

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.numa.bound_pods import may_align
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.settings import CLAIMS_TTL, ExtenderSettings
from polyarch.numa.extender.state_document import MOST_CHOSEN, LastFilterResult, NodeState, ReservationDocument
from polyarch.numa.fit.facts import ExactOptions, FitDecision, NodeFacts, PodFacts
from polyarch.numa.fit.node_index import FitResults, NumaNodeIndex
from polyarch.numa.names import REQUIRE
from polyarch.numa.reservations import ReservationCache, ReservationChange, ReservationOptions

REMEMBERED: Final = 600.0
"""Seconds since the last rejection."""
MOST_PODS: Final = 10_000
"""Of more, those whose last rejection is longest ago are forgotten."""
INTERVAL: Final = 1.0
"""Seconds between two calls that wake somebody."""
MOST_TRIALS: Final = 1000
"""Decisions of one call; what is left is tried with the next one."""

Fits = Callable[[PodFacts, str], bool]
"""Whether the pod fits this node now."""


class _PodClass(msgspec.Struct):
    """Pods that ask for the same."""

    pod: PodFacts
    uids: set[str]


class UnschedulablePods:
    """Pods that were rejected lately, and nodes that may have more room since.

    Pods that ask for the same are tried once.
    """

    def __init__(self) -> None:
        self._rejections: Final[dict[str, tuple[float, bytes]]] = {}
        """By uid, the last rejection and the question; the oldest first."""
        self._questions: Final[dict[bytes, _PodClass]] = {}
        self._freed: Final[dict[str, list[bytes] | None]] = {}
        """Nodes with the questions that are still to be tried there; None: all."""
        self._woken_at: float | None = None

    def __len__(self) -> int:
        """Pods that wait."""
        return len(self._rejections)

    def rejected(self, pod: PodFacts, now: float, *, has_own: bool = False) -> None:
        """A filter found no node. ``has_own``: something is kept for the pod, which others like it cannot have."""
        self.forget(pod.uid)
        asked = pod.containers, pod.pod_requests, pod.qos, pod.annotations.get(REQUIRE), pod.uid if has_own else ""
        key = msgspec.msgpack.encode(asked, order="deterministic")
        self._rejections[pod.uid] = now, key
        question = self._questions.get(key)
        if question is None:
            self._questions[key] = _PodClass(pod, {pod.uid})
        else:
            question.uids.add(pod.uid)
        while len(self._rejections) > MOST_PODS:
            self.forget(next(iter(self._rejections)))

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        found = self._rejections.pop(uid, None)
        if found is None:
            return
        question = self._questions[found[1]]
        question.uids.discard(uid)
        if not question.uids:
            del self._questions[found[1]]

    def freed(self, node: str) -> None:
        """There may be more room on the node than before, or its policy asks for less: a version of its object, a
        reservation that was released or settled, a node that is new."""
        if self._rejections:
            self._freed[node] = None

    def woken(self, now: float, fits: Fits) -> str:
        """A node that some rejected pod now fits, so that its scheduler is to be woken; empty: none. Called every
        :data:`INTERVAL` or more often, names one no more often than that."""
        while self._rejections and now - next(iter(self._rejections.values()))[0] > REMEMBERED:
            self.forget(next(iter(self._rejections)))
        if self._woken_at is not None and now - self._woken_at < INTERVAL:
            return ""
        left = MOST_TRIALS
        for node in list(self._freed):
            kept = self._freed[node]
            keys = list(self._questions) if kept is None else kept
            for key in keys[:left]:
                question = self._questions.get(key)
                if question is not None and fits(question.pod, node):
                    # The scheduler asks about all pods now, on all nodes.
                    self._freed.clear()
                    self._woken_at = now
                    return node
            if len(keys) > left:
                self._freed[node] = keys[left:]
                return ""
            left -= len(keys)
            del self._freed[node]
        return ""


# -- room --------------------------------------------------------------------------------------------------------------


def has_more_room(before: NodeFacts | None, after: NodeFacts) -> bool:
    """Whether a pod could fit now that did not before: more is available somewhere, or the node aligns otherwise."""
    if before is None or before.has_topology != after.has_topology:
        return True
    if before.settings != after.settings or before.allocatable != after.allocatable:
        return True
    known = {zone.id: zone.available for zone in before.cells}
    return any(
        amount > known.get(zone.id, {}).get(resource, -1)
        for zone in after.cells
        for resource, amount in zone.available.items()
    )


# -- results -----------------------------------------------------------------------------------------------------------


class FilterResult(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to filter."""

    names: Sequence[str]
    """Of nodes that are answered, in the order of the question."""
    failed: Mapping[str, str] = {}
    """Why each other node will not do."""
    kinds: Mapping[str, int] = {}
    """How many nodes each kind of reason rules out."""
    fitting: int = 0
    """Nodes that would do, whether they are answered or not."""


# -- the scheduler cache -----------------------------------------------------------------------------------------------


UNCERTAIN: Final = "cells are not certain until pods on their way have started"
"""What is said of a node that fits, while others may take its zones in another order than they were promised."""
UNSETTLED: Final = "unsettled"
"""The kind of that reason."""
TAKEN: Final = "nominated"
"""The kind of a node that is kept for another pod."""
MOST_SCORES: Final = 100
"""Pods whose scores are kept: the scheduler asks for them right after the filter, if at all."""
MOST_CANDIDATES: Final = 256
"""Nodes that are looked at for certain ones."""

log = structlog.get_logger(__name__)

Freed = Callable[[str], None]
"""The name of a node that may have more room than before."""
Unexplained = Callable[[str, dict[str, Any]], None]
"""A node whose object no set of pods explains, and what is known of it."""


class Nominations(Protocol):
    """Nodes that are kept for pods for which others were evicted."""

    def kept(self, uid: str, now: float) -> tuple[FitDecision, float] | None:
        """What is kept for the pod, and for how many more seconds; None: nothing."""
        ...

    def crowded(self, pod: PodFacts) -> Collection[str]:
        """Nodes whose sums hold the pods that they are kept for, and not this one beside them."""
        ...


class NoNominations:
    """Nobody is evicted."""

    def kept(self, uid: str, now: float) -> None:
        return None

    def crowded(self, pod: PodFacts) -> Collection[str]:
        return ()


NOMINATED: Final = "the node is kept for a pod that others were evicted for"
"""What is said of a node that would fit."""


def exact_options(settings: ExtenderSettings) -> ExactOptions:
    """What decisions depend on."""
    return ExactOptions(
        strategy=settings.strategy,
        weights=settings.weights,
        restricted=settings.restricted,
        best_effort=settings.best_effort,
        unknown_nodes=settings.unknown_nodes,
    )


def reservation_options(settings: ExtenderSettings) -> ReservationOptions:
    return ReservationOptions(
        is_on=settings.reservations,
        ttl=settings.ttl,
        ttl_with_claims=max(settings.ttl, CLAIMS_TTL),
        foreign=settings.foreign,
        scheduler=settings.scheduler_name,
    )


class SchedulerCache:
    """Nodes, pods and reservations. Times are monotonic seconds."""

    def __init__(self, settings: ExtenderSettings, metrics: ExtenderMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        options = exact_options(settings)
        self.fleet: Final = NumaNodeIndex(options)
        self.ledger: Final = ReservationCache(options, reservation_options(settings))
        self.freed: list[Freed] = []
        self.unexplained: Unexplained = lambda node, document: None
        self.nominations: Nominations = NoNominations()
        self._pods: dict[str, PodFacts] = {}
        """Those that may have to be aligned, by uid, bound or not; all where pods are evicted for others."""
        self._nominated: dict[str, PodFacts] = {}
        """Those that have no node and a nomination, by uid."""
        self._on_node: dict[str, dict[str, int]] = {}
        """By node, the uids of pods with the number of their arrival."""
        self.arrivals = 0
        """Pods that were seen to have come to a node."""
        self._altered: dict[str, int] = {}
        """By node, the number of arrivals at its last alteration, which counts as one."""
        self._received: dict[str, tuple[str, float]] = {}
        """The version of each node's object, and when it came."""
        self._scores: dict[str, Mapping[str, int]] = {}
        """Of the nodes that are held for a pod: evaluated again, its own reservation would stand in its way."""
        self._zones_ignored = 0

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def zones_ignored(self) -> int:
        return self._zones_ignored

    def node(self, name: str) -> NodeFacts | None:
        return self.fleet.node(name)

    def names(self) -> Iterable[str]:
        return self.fleet.names()

    def pod(self, uid: str) -> PodFacts | None:
        """If it may have to be aligned, or pods are evicted for others."""
        return self._pods.get(uid)

    def pods_on(self, node: str) -> list[PodFacts]:
        """Those that may have to be aligned; all where pods are evicted for others."""
        return [self._pods[uid] for uid in self._on_node.get(node, ())]

    def arrived_since(self, node: str, number: int) -> list[PodFacts]:
        """Those of :meth:`pods_on` that came later than this number of arrivals."""
        return [self._pods[uid] for uid, arrival in self._on_node.get(node, {}).items() if arrival > number]

    def nominated(self) -> list[PodFacts]:
        """Pods of this scheduler that have a nomination and no node."""
        return list(self._nominated.values())

    # -- the watches ---------------------------------------------------------------------------------------------------

    def node_seen(self, facts: NodeFacts, now: float) -> None:
        """The Node or its object is new, or has changed."""
        before = self.fleet.node(facts.name)
        kept = self.fleet.put(facts)
        self._zones_ignored += kept.zones_ignored - (before.zones_ignored if before is not None else 0)
        is_new = kept.has_topology and self._received.get(kept.name, ("",))[0] != kept.resource_version
        if is_new:
            self._received[kept.name] = kept.resource_version, now
        elif not kept.has_topology:
            self._received.pop(kept.name, None)
        self._apply(self.ledger.topology_seen(kept, now))
        if is_new and (explained := self.ledger.is_explained(kept.name)) is not None:
            self._metrics.explained("explained" if explained else "unexplained")
        self._told(now)
        if has_more_room(before, kept):
            self._tell_freed(kept.name)

    def node_altered(self, name: str) -> None:
        """Something of the Node has changed that filters of kube-scheduler read."""
        self.arrivals += 1
        self._altered[name] = self.arrivals

    def is_altered_since(self, node: str, number: int) -> bool:
        """Whether kube-scheduler's filters may answer otherwise for the node than at this number of arrivals."""
        return node not in self._altered or self._altered[node] > number

    def node_gone(self, name: str, now: float) -> None:
        self._altered.pop(name, None)
        before = self.fleet.node(name)
        self._zones_ignored -= before.zones_ignored if before is not None else 0
        self.fleet.remove(name)
        self._received.pop(name, None)
        self._metrics.node_gone(name)
        self._apply(self.ledger.node_gone(name))

    def pod_seen(self, pod: PodFacts, now: float) -> None:
        self._nominated.pop(pod.uid, None)
        if (may_align(pod) or self._settings.evicts) and not pod.has_ended:
            if pod.nominated_node and not pod.node_name and pod.scheduler_name == self._settings.scheduler_name:
                self._nominated[pod.uid] = pod
            self._move(pod.uid, pod.node_name)
            self._pods[pod.uid] = pod
        else:
            self._lose(pod.uid)
        if pod.node_name:
            self._scores.pop(pod.uid, None)
        self._apply(self.ledger.pod_seen(pod, now))
        self._told(now)

    def pod_gone(self, uid: str, now: float) -> None:
        self._lose(uid)
        self._nominated.pop(uid, None)
        self._scores.pop(uid, None)
        self._apply(self.ledger.pod_gone(uid, now))
        self._told(now)

    def exporter_seen(self, node: str, *, is_ready: bool, now: float) -> None:
        self.ledger.exporter_seen(node, is_ready=is_ready, now=now)

    def refused_by_kubelet(self, node: str, now: float) -> None:
        """What is known of its zones is wrong."""
        self._metrics.refused_by_kubelet(node)
        self.ledger.distrust(node, now)

    def start(self, now: float, unix: float) -> None:
        """Everything was listed."""
        self._apply(self.ledger.start(now, unix))
        self._told(now)

    def tick(self, now: float) -> None:
        """Once per second or so."""
        self._apply(self.ledger.tick(now))
        self._told(now)

    # -- the scheduler -------------------------------------------------------------------------------------------------

    def filter(self, pod: PodFacts, names: Sequence[str], now: float, *, is_ours: bool) -> FilterResult:
        with self._held_anew(pod.uid, now):
            return self._filter(pod, names, now, is_ours=is_ours)

    def _filter(self, pod: PodFacts, names: Sequence[str], now: float, *, is_ours: bool) -> FilterResult:
        crowded = self.nominations.crowded(pod)
        fits = self.fleet.fit(pod, [name for name in names if name not in crowded] if crowded else names)
        fitting = fits.fitting
        chosen: Sequence[str] = fitting
        failed, kinds = fits.rejected, {str(kind): count for kind, count in fits.kinds.items()}
        if taken := [name for name in names if name in crowded]:
            failed |= dict.fromkeys(taken, NOMINATED)
            kinds |= {TAKEN: len(taken)}
        if not fitting:
            if is_ours and (kept := self.nominations.kept(pod.uid, now)) is not None:
                self.keep(pod, kept[0], now, kept[1])
        elif self._settings.mode == "exact" and fits.has_demand:
            best = self._certain(pod, fits, now)
            if is_ours:
                self._apply(self.ledger.hold(pod, best, now))
                self._scores[pod.uid] = {each.node: each.score for each in best}
                if len(self._scores) > MOST_SCORES:
                    del self._scores[next(iter(self._scores))]
            winners = {each.node for each in best}
            chosen = [name for name in fitting if name in winners]
            if not chosen:
                failed |= dict.fromkeys(fitting, UNCERTAIN)
                kinds |= {UNSETTLED: len(fitting)} if fitting else {}
        return FilterResult(names=chosen, failed=failed, kinds=kinds, fitting=len(fitting))

    def _certain(self, pod: PodFacts, fits: FitResults, now: float) -> list[FitDecision]:
        """The best nodes, without those where pods on their way may take the zones first."""
        wanted, size = self._settings.candidates, self._settings.candidates
        most = min(len(fits.names), MOST_CANDIDATES)
        while True:
            found = [each for each in fits.best(size) if self.ledger.is_certain(pod, each, now)]
            if len(found) >= wanted or size >= most:
                return found[:wanted]
            size *= 4

    def keep(self, pod: PodFacts, decision: FitDecision, now: float, seconds: float) -> None:
        """Reserve what will be free soon, for the pod that others were evicted for."""
        if not decision.taken:
            return  # nothing of it is aligned there
        self._apply(self.ledger.hold(pod, [decision], now, ttl=seconds))

    @contextlib.contextmanager
    def _held_anew(self, uid: str, now: float) -> Iterator[None]:
        """Around a decision about a pod for which something may be held, since its binding failed or the scheduler did
        not wait for the answer: what is no longer held afterwards is room for others."""
        before = self.ledger.held(uid)
        self.drop(uid, now)
        yield
        held = {each.node: each.cells for each in self.ledger.held(uid)}
        for each in before:
            if each.cells != held.get(each.node):
                self._tell_freed(each.node)

    def drop(self, uid: str, now: float) -> None:
        """What is held for a pod that is asked for again."""
        self._scores.pop(uid, None)
        self._apply(self.ledger.drop(uid, "again"))

    def scores(self, pod: PodFacts, names: Sequence[str]) -> Mapping[str, int]:
        """0 – 100; nodes that do not fit may be missing."""
        known = self._scores.get(pod.uid, {})
        others = [name for name in names if name not in known]
        return {**known, **self.fleet.fit(pod, others).scores} if others else known

    def secure(self, pod: PodFacts, node: str, now: float) -> str:
        """Before the pod is bound there: why it cannot be; empty: its zones are reserved."""
        if any(each.node == node for each in self.ledger.held(pod.uid)):
            return ""
        with self._held_anew(pod.uid, now):
            decision = self.fleet.decide(pod, node)
            if not decision.fits:
                return f"{node}: {decision.message}"
            if not self.ledger.is_certain(pod, decision, now):
                return f"{node}: {UNCERTAIN}"
            self._apply(self.ledger.hold(pod, [decision], now))
        return ""

    def bound(self, pod: PodFacts, node: str, now: float) -> None:
        """We have bound it ourselves."""
        self._apply(self.ledger.bind(pod.uid, node))

    def decide(self, pod: PodFacts, name: str) -> FitDecision:
        return self.fleet.decide(pod, name)

    def fitting(self, pod: PodFacts, names: Sequence[str]) -> Sequence[str]:
        """Which of the nodes would do now, certain or not."""
        return self.fleet.fit(pod, names).fitting

    def fits(self, pod: PodFacts, name: str, now: float) -> bool:
        """Now; what is held for the pod itself does not stand in its way."""
        own = [each for each in self.ledger.held(pod.uid) if each.node == name]
        for each in own:
            self.fleet.release(name, each.cells, memory_groups=each.memory_groups)
        decision = self.fleet.decide(pod, name)
        for each in own:
            self.fleet.reserve(name, each.cells, memory_groups=each.memory_groups)
        return decision.fits and (not decision.cells or self.ledger.is_certain(pod, decision, now))

    # -- for people ----------------------------------------------------------------------------------------------------

    def node_state(self, name: str, now: float) -> NodeState:
        facts = self.fleet.node(name) or NodeFacts(name=name, has_topology=False)
        received = self._received.get(name)
        return NodeState(
            facts=facts,
            reserved=self.ledger.reserved(name),
            explained=self.ledger.is_explained(name) is not False,
            mispredicted=self.ledger.is_distrusted(name, now),
            age_seconds=round(now - received[1], 1) if received is not None else None,
        )

    def reservations(self, now: float) -> list[ReservationDocument]:
        documents = []
        for each in self.ledger.all_reservations():
            namespace, _, name = each.pod.partition("/")
            documents.append(
                ReservationDocument(
                    namespace=namespace,
                    name=name,
                    uid=each.uid,
                    node=each.node,
                    state=each.state,
                    cells=each.cells,
                    memory_groups=each.memory_groups,
                    spread=each.is_spread,
                    age_seconds=round(now - each.since, 1),
                )
            )
        return documents

    def count(self, state: str) -> int:
        """Reservations in this state (``held``, ``bound``, ``spread``)."""
        return self._counts()[state]

    def _counts(self) -> Counter[str]:
        return Counter("spread" if each.is_spread else each.state for each in self.ledger.all_reservations())

    # -- in step -------------------------------------------------------------------------------------------------------

    def _apply(self, changes: Iterable[ReservationChange]) -> None:
        roomier: dict[str, None] = {}
        for each in changes:
            if each.event == "reserved":
                self.fleet.reserve(each.node, each.cells, memory_groups=each.reservation.memory_groups)
            elif each.event == "released":
                self.fleet.release(each.node, each.cells, memory_groups=each.reservation.memory_groups)
                self._metrics.released(each.reason)
                if each.reason != "again":
                    roomier[each.node] = None
        for name in roomier:
            self._tell_freed(name)

    def _tell_freed(self, name: str) -> None:
        for each in self.freed:
            each(name)

    def _told(self, now: float) -> None:
        for name in self.ledger.without_departed():
            self._tell_freed(name)
        for finding in self.ledger.findings():
            log.warning(finding.message, node=finding.node, kind=finding.kind)
            if finding.kind == "mispredicted":
                self._metrics.mispredicted(finding.node)
            else:
                self.unexplained(finding.node, self._dump(finding.node))

    def _dump(self, name: str) -> dict[str, Any]:
        """With the fields of the plugin's files; of the pods those that may be aligned."""
        facts = self.fleet.node(name) or NodeFacts(name=name, has_topology=False)
        return {
            "nodeName": name,
            "fingerprintExpected": facts.fingerprint,
            "fingerprintMethod": facts.fingerprint_method,
            "resourceVersion": facts.resource_version,
            "pods": [
                {"Namespace": each.namespace, "Name": each.name} for each in self.pods_on(name) if may_align(each)
            ],
        }

    def _move(self, uid: str, node: str) -> None:
        before = self._pods.get(uid)
        if before is not None and before.node_name == node:
            return
        self._lose(uid)
        if node:
            self.arrivals += 1
            self._on_node.setdefault(node, {})[uid] = self.arrivals

    def _lose(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is None or not before.node_name:
            return
        there = self._on_node[before.node_name]
        there.pop(uid, None)
        if not there:
            del self._on_node[before.node_name]


# -- the engine --------------------------------------------------------------------------------------------------------


_MOST_VERDICTS: Final = 1000
"""Pods whose last answer is kept for ``explain``."""


class Engine:
    """Answers of the scheduler cache, the last ones of each pod, and the pods that wait."""

    def __init__(self, settings: ExtenderSettings, books: SchedulerCache, metrics: ExtenderMetrics) -> None:
        self.settings: Final = settings
        self.books: Final = books
        self._metrics = metrics
        self._verdicts: OrderedDict[str, tuple[float, LastFilterResult]] = OrderedDict()
        self._asked: OrderedDict[str, PodFacts] = OrderedDict()
        self._waking = UnschedulablePods()
        books.freed.append(self._waking.freed)

    def filter(self, pod: PodFacts, names: Sequence[str], now: float) -> FilterResult:
        """Which of these nodes; what is chosen is reserved in the same step."""
        is_ours = pod.scheduler_name == self.settings.scheduler_name
        if not is_ours:
            self._metrics.other_scheduler()
        found = self.books.filter(pod, names, now, is_ours=is_ours)
        self._metrics.filtered(found.fitting, found.kinds)
        if found.names or not names:
            self._waking.forget(pod.uid)
        else:
            self._waking.rejected(pod, now, has_own=self.books.nominations.kept(pod.uid, now) is not None)
        self._remember(pod, names, found, now)
        return found

    def prioritize(self, pod: PodFacts, names: Sequence[str]) -> list[tuple[str, int]]:
        """0 – 100 for each."""
        scores = self.books.scores(pod, names)
        return [(name, scores.get(name, 0)) for name in names]

    def asked(self, uid: str) -> PodFacts | None:
        """The pod as a filter call had it lately."""
        return self._asked.get(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._verdicts.pop(uid, None)
        self._asked.pop(uid, None)
        self._waking.forget(uid)

    def node_with_capacity(self, now: float) -> str:
        """A node on which a pod fits now that was rejected before; empty: none."""
        return self._waking.woken(now, lambda pod, name: self.books.fits(pod, name, now))

    def verdicts(self, now: float) -> list[LastFilterResult]:
        """The last answers, oldest first."""
        return [
            msgspec.structs.replace(verdict, seconds_ago=round(now - since, 1))
            for since, verdict in self._verdicts.values()
        ]

    def _remember(self, pod: PodFacts, names: Sequence[str], found: FilterResult, now: float) -> None:
        verdict = LastFilterResult(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            seconds_ago=0.0,
            asked=len(names),
            chosen=tuple(found.names[:MOST_CHOSEN]),
            fitting=found.fitting,
            rejected=found.kinds,
        )
        for memory, value in ((self._verdicts, (now, verdict)), (self._asked, pod)):
            memory.pop(pod.uid, None)
            memory[pod.uid] = value  # type: ignore[assignment]
            if len(memory) > _MOST_VERDICTS:
                memory.popitem(last=False)
