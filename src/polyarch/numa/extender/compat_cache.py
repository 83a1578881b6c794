"""The books of mode compat: the plugin's verdicts on what its pessimistic cache says is left."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from polyarch.numa.extender.engine import FilterResult
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import NodeState, ReservationDocument
from polyarch.numa.fit.compat import CacheOptions, CompatOptions, OverReserveCache, evaluate
from polyarch.numa.fit.facts import FitDecision, NodeFacts, PodFacts


class CompatSchedulerCache:
    """:class:`polyarch.numa.extender.engine.Books` of the plugin. Nothing is reserved; what is bound is assumed."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self._settings = settings
        self._options = CompatOptions(strategy=settings.strategy, weights=settings.weights)
        self._nodes: dict[str, float] = {}
        """When the object of each node came last."""
        self._next_resync = 0.0
        self.freed: list[Callable[[str], None]] = []
        self._home: dict[str, str] = {}
        """The node of each bound pod, by uid."""
        self.cache = OverReserveCache(
            CacheOptions(
                scheduler_names=frozenset({settings.scheduler_name}),
                informer=settings.informer,
                detection=settings.detection,
                strict=settings.compat_strict,
            )
        )

    def node(self, name: str) -> NodeFacts | None:
        return self.cache.node(name)

    def names(self) -> Iterable[str]:
        return self._nodes

    def node_seen(self, facts: NodeFacts, now: float) -> None:
        self._nodes[facts.name] = now
        before = self.cache.node(facts.name)
        self.cache.node_seen(facts)
        # An object alone makes no room before the cache takes it; the first one, or none any more, does at once.
        if before is None or before.has_topology != facts.has_topology:
            self._tell_freed(facts.name)

    def node_gone(self, name: str, now: float) -> None:
        self._nodes.pop(name, None)
        self.cache.node_gone(name)

    def pod_seen(self, pod: PodFacts, now: float) -> None:
        self.cache.pod_seen(pod)
        if pod.node_name:
            self._home[pod.uid] = pod.node_name
            if pod.has_ended:
                self._tell_freed(pod.node_name)

    def pod_gone(self, uid: str, now: float) -> None:
        self.cache.pod_gone(uid)
        if (node := self._home.pop(uid, "")) != "":
            self._tell_freed(node)

    def start(self, now: float, unix: float) -> None:
        self._next_resync = now + self._settings.resync_period

    def tick(self, now: float) -> None:
        period = self._settings.resync_period
        if period and now >= self._next_resync:
            self._next_resync = now + period
            for name in self.cache.resync():
                self._tell_freed(name)

    def filter(self, pod: PodFacts, names: Sequence[str], now: float, *, is_ours: bool) -> FilterResult:
        fitting: list[str] = []
        failed: dict[str, str] = {}
        kinds: Counter[str] = Counter()
        for name in names:
            decision = self._decide(pod, name)
            if decision.fits:
                fitting.append(name)
                continue
            failed[name] = decision.message
            kinds[decision.kind] += 1
            if decision.kind != "foreign":
                self.cache.rejected(name)
        if is_ours and fitting:
            self.cache.answered(pod)
        return FilterResult(names=fitting, failed=failed, kinds=kinds, fitting=len(fitting))

    def scores(self, pod: PodFacts, names: Sequence[str]) -> Mapping[str, int]:
        return {name: self._decide(pod, name).score for name in names}

    def secure(self, pod: PodFacts, node: str, now: float) -> str:
        decision = self._decide(pod, node)
        return "" if decision.fits else f"{node}: {decision.message}"

    def bound(self, pod: PodFacts, node: str, now: float) -> None:
        """It is assumed when it is seen."""

    def node_state(self, name: str, now: float) -> NodeState:
        facts = self.cache.node(name) or NodeFacts(name=name, has_topology=False)
        since = self._nodes.get(name)
        total: Counter[str] = Counter()
        for amounts in self.cache.assumed(name).values():
            total.update(amounts)
        return NodeState(
            facts=facts,
            reserved={
                cell.id: {each: total[each] for each in cell.available if total[each]} for cell in facts.cells if total
            },
            explained=not self.cache.is_foreign(name),
            age_seconds=round(now - since, 1) if since is not None and facts.has_topology else None,
        )

    def reservations(self, now: float) -> list[ReservationDocument]:
        """What is assumed, which is taken from every cell."""
        documents = []
        for node in self._nodes:
            facts = self.cache.node(node)
            cells = facts.cells if facts is not None else ()
            for pod, amounts in self.cache.assumed(node).items():
                namespace, _, name = pod.partition("/")
                spread = {
                    cell.id: {each: amounts[each] for each in cell.available if each in amounts} for cell in cells
                }
                documents.append(
                    ReservationDocument(
                        namespace=namespace, name=name, uid="", node=node, state="bound", cells=spread, spread=True
                    )
                )
        return documents

    def count(self, state: str) -> int:
        return sum(len(self.cache.assumed(node)) for node in self._nodes) if state == "spread" else 0

    def fits(self, pod: PodFacts, name: str, now: float) -> bool:
        return self._decide(pod, name).fits

    def _tell_freed(self, name: str) -> None:
        for each in self.freed:
            each(name)

    def _decide(self, pod: PodFacts, name: str) -> FitDecision:
        facts = self.cache.node(name) or NodeFacts(name=name, has_topology=False)
        foreign = self.cache.is_foreign(name)
        return evaluate(pod, facts, self.cache.free(name), self._options, foreign=foreign)
