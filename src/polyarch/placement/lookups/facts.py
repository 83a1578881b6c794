"""The facts of a cluster that a decision needs, kept in memory and compiled once per change (PL-042, PL-044, PL-301).

Watched are the ClusterPodPlacementConfig, the PodPlacementConfigs and the PlacementPolicy; the metadata of Namespaces
only while the policy has overrides, that of Nodes only while it is node-aware (PL-218). Those two only refine:
where they cannot be had the pods are decided without (``refinement``). Asking for the facts of a pod is a few look-ups;
nothing here waits.

Whoever must decide anew after a change registers with ``on_change``: it is called with the namespace concerned, or with
None for all of them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.resources import NAMESPACES, NODES
from polyarch.kube.runtime.on_demand import Shares
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import Key, PartialObjectMetadata
from polyarch.placement import names
from polyarch.placement.api.resources import (
    CPPCS,
    POLICIES,
    PPCS,
    ClusterPodPlacementConfig,
    PlacementPolicy,
    PodPlacementConfig,
)
from polyarch.placement.api.settings import Settings, SettingsTable
from polyarch.placement.decide.scoring import INVALID_SELECTOR, ScoringTable, Source, selector_problem
from polyarch.placement.decide.seal import UNSEALED, Seal
from polyarch.placement.lookups.refinement import Refinement

log = structlog.get_logger(__name__)

REMEMBERED: Final = 20_000
"""Namespaces whose facts are kept compiled."""
SINGLETON: Final = Key("", names.SINGLETON)


class PodFacts(NamedTuple):
    """What is known for the pods of one namespace."""

    settings: Settings
    sources: tuple[Source, ...]
    nodes: frozenset[str]
    seal: Seal = UNSEALED
    """By what our own records on pods are told from others' (PL-853)."""


class ClusterFacts:
    """The compiled facts. ``operator_namespace`` is where polyarch itself runs."""

    def __init__(self, informers: Shares, *, operator_namespace: str, clock: Clock) -> None:
        self._operator_namespace = operator_namespace
        self._short_names_searched = False
        self._cppcs = informers.informer(CPPCS, ClusterPodPlacementConfig)
        self._ppcs = informers.informer(PPCS, PodPlacementConfig)
        self._policies = informers.informer(POLICIES, PlacementPolicy)
        self._namespaces = Refinement(
            informers, NAMESPACES, self._namespace_changed, told=self._list_arrived, clock=clock
        )
        self._nodes = Refinement(informers, NODES, self._node_changed, told=self._list_arrived, clock=clock)
        self._were_complete = False
        self._seal = UNSEALED
        self._handlers: list[Callable[[str | None], None]] = []
        self._table: SettingsTable | None = None
        self._scoring: ScoringTable | None = None
        self._architectures: frozenset[str] | None = None
        self._by_namespace: dict[str, PodFacts] = {}
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._cppcs.add_handler(self._cluster_changed)
        self._policies.add_handler(self._cluster_changed)
        self._ppcs.add_handler(self._ppc_changed)

    # -- for decisions -------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """The configuration is known. Namespaces and nodes may still be on their way: see :meth:`of`."""
        return self._cppcs.has_synced and self._ppcs.has_synced and self._policies.has_synced

    @property
    def is_complete(self) -> bool:
        """Everything that the configuration asks for and that can be had is known, too (PL-301)."""
        return self.is_ready and not self._awaited

    @property
    def problems(self) -> list[str]:
        """Why this process has not been complete yet; shared informers speak for themselves. What a change of the
        configuration asks for later on turns no process unready: pods are gated until it is known or left out."""
        return [] if self._were_complete else [f"the {each.resource} are not known yet" for each in self._awaited]

    @property
    def left_out(self) -> dict[str, str]:
        """What pods are decided without, by resource, as it cannot be had: the sentence that names verb and resource
        (PL-301). For ``Degraded``, the log and the metrics."""
        return {each.resource.plural: each.left_out for each in (self._namespaces, self._nodes) if each.left_out}

    @property
    def _awaited(self) -> list[Refinement]:
        """What pods have to wait for: asked for by the policy, not known, and not left out."""
        wanted = [self._namespaces] if self.table.overrides else []
        wanted += [self._nodes] if self.table.spec.node_aware != "off" else []
        return [each for each in wanted if not each.is_known and not each.left_out]

    @property
    def cppc(self) -> ClusterPodPlacementConfig | None:
        """The ClusterPodPlacementConfig ``cluster``; None: placement is not switched on."""
        return self._cppcs.store.get(SINGLETON)

    @property
    def is_deprovisioning(self) -> bool:
        """Placement is being switched off: nothing is gated any more, nothing held (PL-107, PL-520)."""
        cppc = self.cppc
        return cppc is None or _is_leaving(cppc)

    @property
    def table(self) -> SettingsTable:
        """Settings of all namespaces."""
        if self._table is None:
            policy = self._policies.store.get(SINGLETON)
            self._table = SettingsTable.of(
                policy,
                self.cppc,
                operator_namespace=self._operator_namespace,
                short_names_searched=self._short_names_searched,
            )
        return self._table

    @property
    def scoring(self) -> ScoringTable:
        """Scoring sources of all namespaces."""
        if self._scoring is None:
            self._scoring = ScoringTable.of(self.cppc, self._ppcs.store.values())
        return self._scoring

    def of(self, namespace: str) -> PodFacts:
        """The facts for pods of a namespace; ``settings.provisional`` if something that counts is not known yet."""
        known = self._by_namespace.get(namespace)
        if known is None:
            if len(self._by_namespace) >= REMEMBERED:
                self._by_namespace.clear()
            known = self._by_namespace[namespace] = self._compile(namespace)
        return known

    def settled(self, namespace: str) -> PodFacts:
        """The facts that count once nothing more is waited for: the policy's ``spec`` for a Namespace that does not
        appear (PL-117); and while placement is being switched off nothing is held or waits for long (PL-520)."""
        facts = self.of(namespace)
        if facts.settings.provisional:
            facts = facts._replace(settings=self._with_nodes(self.table.spec))
        return facts._replace(settings=facts.settings.deprovisioning()) if self.is_deprovisioning else facts

    def _compile(self, namespace: str) -> PodFacts:
        table = self.table
        settings = table.spec
        if table.overrides and not self._namespaces.left_out:
            settings = table.of_namespace(self.labels_of(namespace))
        settings = self._with_nodes(settings)
        nodes = self.architectures if settings.node_aware != "off" else frozenset[str]()
        if settings.node_aware != "off" and not self._nodes.is_known:
            settings = msgspec.structs.replace(settings, provisional=True)
        return PodFacts(settings, self.scoring.of_namespace(namespace), nodes, self._seal)

    def _with_nodes(self, settings: Settings) -> Settings:
        """As they are, or without asking for nodes that cannot be had."""
        unread = settings.node_aware != "off" and self._nodes.left_out
        return msgspec.structs.replace(settings, node_aware="off") if unread else settings

    def labels_of(self, namespace: str) -> dict[str, str] | None:
        """The labels of a Namespace; None if it is not in the cache."""
        known = self._namespaces.get(Key("", namespace))
        return (known.metadata.labels or {}) if known is not None else None

    @property
    def architectures(self) -> frozenset[str]:
        """Values of ``kubernetes.io/arch`` on nodes that are not being deleted (PL-218)."""
        if self._architectures is None:
            self._architectures = architectures_of(self._nodes.values())
        return self._architectures

    def take(self, seal: Seal) -> None:
        """Records are signed and told from others' by other keys from now on. No gated pod is decided otherwise."""
        self._seal = seal
        self._by_namespace.clear()

    # -- for those who decide again ------------------------------------------------------------------------------------

    def on_change(self, handler: Callable[[str | None], None]) -> None:
        """Calls ``handler`` with the namespace whose facts changed, or None for all."""
        self._handlers.append(handler)

    def search_short_names(self, searched: bool) -> None:
        """Whether the nodes search several registries for a name that has none (PL-424)."""
        if searched != self._short_names_searched:
            self._short_names_searched = searched
            self._compile_anew()

    async def synced(self) -> None:
        """Returns once everything that the configuration asks for is known; ``run`` has to run meanwhile."""
        for watched in (self._cppcs, self._ppcs, self._policies):
            await watched.synced()
        while not self.is_complete:
            self._arrived.clear()
            await self._arrived.wait()
        self._were_complete = True

    async def run(self) -> None:
        """Keeps watching namespaces and nodes as long as the policy needs them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                if self._policies.has_synced:
                    self._namespaces.want(tasks, wanted=bool(self.table.overrides))
                    self._nodes.want(tasks, wanted=self.table.spec.node_aware != "off")
                    await self._changed.wait()
                else:
                    await self._policies.synced()

    def _cluster_changed(self, change: Change[ClusterPodPlacementConfig] | Change[PlacementPolicy]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec and _is_leaving(old) == _is_leaving(new):
            return  # a status or an annotation
        self._compile_anew()

    def _compile_anew(self) -> None:
        before = self._table
        self._table = self._scoring = None
        self._by_namespace.clear()
        self._changed.set()
        if before != self.table:
            for problem in self.table.problems:
                log.warning("a configured value is not used", problem=problem)
        self._tell(None)

    def _ppc_changed(self, change: Change[PodPlacementConfig]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return  # a status or an annotation
        self._scoring = None
        self._tell_of_selector(change)
        self._by_namespace.pop(change.key.namespace, None)
        if not change.initial:
            self._tell(change.key.namespace)

    def _tell_of_selector(self, change: Change[PodPlacementConfig]) -> None:
        """A selector that does not parse matches no pod: said when it is first seen and when it changes (PL-033)."""
        old, new = change.old, change.new
        if new is None or (old is not None and old.spec.label_selector == new.spec.label_selector):
            return
        if (problem := selector_problem(new)) is not None:
            log.warning(
                "a PodPlacementConfig matches no pod", config=str(change.key), reason=INVALID_SELECTOR, problem=problem
            )

    def _namespace_changed(self, change: Change[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        self._by_namespace.pop(change.key.name, None)
        if change.initial:
            return  # the end of the first list is told once, for all of them
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self._tell(change.key.name)

    def _node_changed(self, change: Change[PartialObjectMetadata]) -> None:
        """Kubelets write their node's status all the time; what counts of it is its architecture alone."""
        if _architecture(change.old) == _architecture(change.new):
            return
        before, self._architectures = self._architectures, None
        if change.initial:
            self._by_namespace.clear()  # the end of the first list is told once, for all of them
        elif before is not None and before != self.architectures:
            self._by_namespace.clear()
            self._tell(None)

    def _list_arrived(self) -> None:
        self._architectures = None
        self._by_namespace.clear()
        self._tell(None)

    def _tell(self, namespace: str | None) -> None:
        self._arrived.set()
        for handler in self._handlers:
            handler(namespace)


def _is_leaving(object_: KubernetesObject) -> bool:
    return object_.metadata.deletion_timestamp is not None


def architectures_of(nodes: Iterable[PartialObjectMetadata]) -> frozenset[str]:
    """Values of ``kubernetes.io/arch`` on the nodes that are not being deleted."""
    return frozenset(value for node in nodes if (value := _architecture(node)) is not None)


def _architecture(node: PartialObjectMetadata | None) -> str | None:
    """What a node adds to them; None if it is gone, being deleted, or does not say."""
    if node is None or _is_leaving(node):
        return None
    return (node.metadata.labels or {}).get(names.ARCH_KEY) or None
