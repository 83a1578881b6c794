"""The facts of a cluster that a decision needs, kept in memory and compiled once per change (PL-042, PL-044, PL-301).

Watched are the ClusterPodPlacementConfig, the PodPlacementConfigs and the PlacementPolicy; the metadata of Namespaces
only while the policy has overrides, that of Nodes only while it is node-aware (PL-218), and, for who gates pods, the
controller's Lease (PL-107). Asking for the facts of a pod is a few look-ups; nothing here waits.

Whoever must decide anew after a change registers with ``on_change``: it is called with the namespace concerned, or with
None for all of them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from polyarch.kube.client.watch_event import KubernetesObject
from polyarch.kube.resources import NAMESPACES, NODES, Resource
from polyarch.kube.runtime.store import Change, Store
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

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

REMEMBERED: Final = 20_000
"""Namespaces whose facts are kept compiled."""
SINGLETON: Final = Key("", names.SINGLETON)


class Watched(Protocol[T]):
    """What is needed of an informer."""

    store: Store[T]
    problem: str | None

    @property
    def has_synced(self) -> bool: ...

    def add_handler(self, handler: Callable[[Change[T]], None], /) -> None: ...

    async def synced(self) -> None: ...

    async def run(self) -> None: ...


class Watches(Protocol):
    """Where informers come from. ``shared`` ones are run by the process, ``own`` ones by who asked for them."""

    def shared(self, resource: Resource, type: type[T], /) -> Watched[T]: ...

    def own(self, resource: Resource, type: type[T], /) -> Watched[T]: ...


class PodFacts(NamedTuple):
    """What is known for the pods of one namespace."""

    settings: Settings
    sources: tuple[Source, ...]
    nodes: frozenset[str]


class ClusterFacts:
    """The compiled facts. ``operator_namespace`` is where polyarch itself runs."""

    def __init__(self, watches: Watches, *, operator_namespace: str) -> None:
        self._watches = watches
        self._operator_namespace = operator_namespace
        self._cppcs = watches.shared(CPPCS, ClusterPodPlacementConfig)
        self._ppcs = watches.shared(PPCS, PodPlacementConfig)
        self._policies = watches.shared(POLICIES, PlacementPolicy)
        self._namespaces = _Optional(watches, NAMESPACES, self._namespace_changed)
        self._nodes = _Optional(watches, NODES, self._node_changed)
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
        """Everything that the configuration asks for is known, too (PL-301)."""
        return self.is_ready and self._namespaces_are_known and self._nodes_are_known

    @property
    def problems(self) -> list[str]:
        """Why it is not complete; shared informers speak for themselves."""
        return [
            watched.problem or f"the {what} are not known yet"
            for what, watched in (("namespaces", self._namespaces), ("nodes", self._nodes))
            if watched.is_wanted and not watched.is_known
        ]

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
            self._table = SettingsTable.of(policy, self.cppc, operator_namespace=self._operator_namespace)
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

    def _compile(self, namespace: str) -> PodFacts:
        table = self.table
        labels = self.labels_of(namespace) if table.overrides else {}
        settings = table.of_namespace(labels)
        nodes: frozenset[str] = frozenset()
        if settings.node_aware != "off":
            nodes = self.architectures
            if not self._nodes.is_known:
                settings = msgspec.structs.replace(settings, provisional=True)
        return PodFacts(settings, self.scoring.of_namespace(namespace), nodes)

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

    # -- for those who decide again ------------------------------------------------------------------------------------

    def on_change(self, handler: Callable[[str | None], None]) -> None:
        """Calls ``handler`` with the namespace whose facts changed, or None for all."""
        self._handlers.append(handler)

    async def synced(self) -> None:
        """Returns once everything that the configuration asks for is known; ``run`` has to run meanwhile."""
        for watched in (self._cppcs, self._ppcs, self._policies):
            await watched.synced()
        while not self.is_complete:
            self._arrived.clear()
            await self._arrived.wait()

    async def run(self) -> None:
        """Keeps watching namespaces and nodes as long as the policy needs them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                if self._policies.has_synced:
                    self._namespaces.want(tasks, wanted=bool(self.table.overrides), told=self._list_arrived)
                    self._nodes.want(tasks, wanted=self.table.spec.node_aware != "off", told=self._list_arrived)
                    await self._changed.wait()
                else:
                    await self._policies.synced()

    @property
    def _namespaces_are_known(self) -> bool:
        return not self.table.overrides or self._namespaces.is_known

    @property
    def _nodes_are_known(self) -> bool:
        return self.table.spec.node_aware == "off" or self._nodes.is_known

    def _cluster_changed(self, change: Change[ClusterPodPlacementConfig] | Change[PlacementPolicy]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec and _is_leaving(old) == _is_leaving(new):
            return  # a status or an annotation
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


class _Optional:
    """A watch of objects' metadata that is there only while something needs it."""

    def __init__(
        self, watches: Watches, resource: Resource, handler: Callable[[Change[PartialObjectMetadata]], None]
    ) -> None:
        self._watches = watches
        self._resource = resource
        self._handler = handler
        self._watched: Watched[PartialObjectMetadata] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        return self._watched is not None

    @property
    def is_known(self) -> bool:
        return self._watched is not None and self._watched.has_synced

    @property
    def problem(self) -> str | None:
        return self._watched.problem if self._watched is not None else None

    def get(self, key: Key) -> PartialObjectMetadata | None:
        return self._watched.store.get(key) if self._watched is not None else None

    def values(self) -> list[PartialObjectMetadata]:
        return list(self._watched.store.values()) if self._watched is not None else []

    def want(self, tasks: asyncio.TaskGroup, *, wanted: bool, told: Callable[[], None]) -> None:
        """Starts or ends the watch; ``told`` is called once its first list is there."""
        if wanted and self._task is None:
            self._watched = self._watches.own(self._resource, PartialObjectMetadata)
            self._watched.add_handler(self._handler)
            self._task = tasks.create_task(
                self._watch(self._watched, told), name=f"watch {self._resource} while needed"
            )
        elif not wanted and self._task is not None:
            self._task.cancel()
            self._task = self._watched = None

    async def _watch(self, watched: Watched[PartialObjectMetadata], told: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watched.run())
            await watched.synced()
            told()


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
