"""Facts of the cluster that pods are decided with, watched and compiled once per change.

Watches the ClusterPodPlacementConfig, PodPlacementConfigs and the PlacementPolicy; metadata of Namespaces only while
the policy has overrides, of Nodes only while it is node-aware, with their details (``node_details.py``). Facts of a pod
are dictionary lookups that never wait.

Handlers registered with ``on_change`` are called with the namespace whose facts changed, or with None for all.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images.pull_secrets import PullSecretNames
from polyarch.images.resolver import PodImageRequest
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.resources import NAMESPACES, NODES, Resource
from polyarch.kube.store import ObjectChange
from polyarch.kube.watch import KubernetesObject
from polyarch.objects import ObjectKey, PartialObjectMetadata, Pod
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS, ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.decision import NO_SIGNER, RecordSigner
from polyarch.placement.node_details import NodeDetails, NodeDetailsClient
from polyarch.placement.rules import ExaminedPod, PodFacts, assess
from polyarch.placement.settings import (
    INVALID_SELECTOR,
    ScoringSource,
    ScoringTable,
    Settings,
    SettingsTable,
    selector_problem,
)
from polyarch.platforms import NO_RUNTIMES, NodePlatform, NodeRuntimes

log = structlog.get_logger(__name__)

# -- optional resources ------------------------------------------------------------------------------------------------
# RBAC for nodes is granted only while settings ask for nodes, and RBAC for namespaces can be removed. If the API
# server denies access for a minute, pods are decided as if the setting that needs the resource were off. This is
# logged, and ends when the resource can be read again.

FORBIDDEN_TIMEOUT: Final = 60.0
"""Seconds of denied access after which pods are decided without the resource."""
LIST_TIMEOUT: Final = 600.0
"""The same for any other reason. It is longer, because an outage or a slow list is no reason to decide without facts
that exist, and finite, because every wait has an end."""
CHECK_INTERVAL: Final = 5.0


class OptionalResource:
    """Metadata of objects of one kind, watched while :meth:`want` is on."""

    def __init__(
        self,
        informers: Shares,
        resource: Resource,
        handler: Callable[[ObjectChange[PartialObjectMetadata]], None],
        *,
        told: Callable[[], None],
        clock: Clock,
    ) -> None:
        """``told`` is called after the first list, and when the objects are left out."""
        self.left_out = ""
        """Why pods are decided without the resource, naming verb and resource; empty if they are not."""
        self.objects = OnDemandInformer(informers, resource, PartialObjectMetadata, handler)
        self._told = told
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def want(self, tasks: asyncio.TaskGroup, *, wanted: bool) -> None:
        """Starts or ends the watch."""
        self.objects.want(wanted)
        if wanted and self._task is None:
            self._task = tasks.create_task(self._wait(), name=f"wait for {self.objects.resource}")
        elif not wanted and self._task is not None:
            self._task.cancel()
            self._task = None
            self.left_out = ""

    async def _wait(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            patience = tasks.create_task(self._lose_patience())
            await self.objects.synced()
            patience.cancel()
        if self.left_out:
            log.info("resource is readable again and used for decisions", resource=str(self.objects.resource))
        self.left_out = ""
        self._told()

    async def _lose_patience(self) -> None:
        started = self._clock.monotonic()
        await self._clock.sleep(FORBIDDEN_TIMEOUT)
        while self.objects.problem is None and self._clock.monotonic() - started < LIST_TIMEOUT:
            await self._clock.sleep(CHECK_INTERVAL)
        self.left_out = (
            self.objects.problem or f"{self.objects.resource} could not be listed for {LIST_TIMEOUT / 60:.0f} minutes"
        )
        log.error("pods are decided without a resource that the policy requires", problem=self.left_out)
        self._told()


# -- the compiled facts ------------------------------------------------------------------------------------------------

MAX_NAMESPACES: Final = 20_000
"""Namespaces whose compiled facts are cached."""
SINGLETON: Final = ObjectKey("", names.SINGLETON)


class NamespaceFacts(NamedTuple):
    """Facts for the pods of one namespace."""

    settings: Settings
    sources: tuple[ScoringSource, ...]
    nodes: frozenset[NodePlatform]
    coming: frozenset[NodePlatform] = frozenset()
    runtimes: NodeRuntimes = NO_RUNTIMES
    signer: RecordSigner = NO_SIGNER
    """Verifies our own records on pods."""

    def about(
        self, pod: Pod, namespace: str, *, stored: bool, record_was_sent: bool = True, is_proven: bool = True
    ) -> PodFacts:
        """The facts for one pod of that namespace. Not ``is_proven``: nothing is signed for it."""
        return PodFacts(
            pod=pod,
            namespace=namespace,
            settings=self.settings,
            sources=self.sources,
            stored=stored,
            nodes=self.nodes,
            coming=self.coming,
            runtimes=self.runtimes,
            signer=self.signer if is_proven else RecordSigner(self.signer.keys, signing=None),
            record_was_sent=record_was_sent,
        )


class ClusterFacts:
    """The compiled facts. ``operator_namespace`` is where polyarch itself runs. Without a ``client`` nothing is known
    of nodes but their labels."""

    def __init__(
        self, informers: Shares, *, operator_namespace: str, clock: Clock, client: NodeDetailsClient | None = None
    ) -> None:
        self._operator_namespace = operator_namespace
        self._short_names_searched = False
        self._cppcs = informers.informer(CPPCS, ClusterPodPlacementConfig)
        self._ppcs = informers.informer(PPCS, PodPlacementConfig)
        self._policies = informers.informer(POLICIES, PlacementPolicy)
        self._namespaces = OptionalResource(
            informers, NAMESPACES, self._namespace_changed, told=self._list_arrived, clock=clock
        )
        self._nodes = OptionalResource(informers, NODES, self._node_changed, told=self._list_arrived, clock=clock)
        self._details = None if client is None else NodeDetails(client, told=self._list_arrived, clock=clock)
        self._reading: asyncio.Task[None] | None = None
        self.cppc: ClusterPodPlacementConfig | None = None
        """The ClusterPodPlacementConfig ``cluster``; None: placement is off."""
        self._were_complete = False
        self._signer = NO_SIGNER
        self._handlers: list[Callable[[str | None], None]] = []
        self._table: SettingsTable | None = None
        self._scoring: ScoringTable | None = None
        self._platforms: frozenset[NodePlatform] | None = None
        self._runtimes: NodeRuntimes | None = None
        self._by_namespace: dict[str, NamespaceFacts] = {}
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._cppcs.add_handler(self._cppc_changed)
        self._policies.add_handler(self._cluster_changed)
        self._ppcs.add_handler(self._ppc_changed)

    # -- for decisions -------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """The configuration has synced. Namespaces and nodes may not have synced yet: see :meth:`of`."""
        return self._cppcs.has_synced and self._ppcs.has_synced and self._policies.has_synced

    @property
    def is_complete(self) -> bool:
        """The configuration and all Namespaces and Nodes that it needs and may read have synced."""
        return self.is_ready and not self._awaited

    @property
    def problems(self) -> list[str]:
        """Reasons why this process is not ready, until all facts have synced once. A later change of the
        configuration never makes a process unready: pods are gated until the new facts have synced or are left out."""
        return (
            [] if self._were_complete else [f"the {each.objects.resource} are not known yet" for each in self._awaited]
        )

    @property
    def left_out(self) -> dict[str, str]:
        """Resources that pods are decided without because they cannot be read, with a sentence that names verb and
        resource. For ``Degraded``, the log and the metrics."""
        return {
            each.objects.resource.plural: each.left_out for each in (self._namespaces, self._nodes) if each.left_out
        }

    @property
    def _awaited(self) -> list[OptionalResource]:
        """Resources that the policy needs, that have not synced and are not left out."""
        wanted = [self._namespaces] if self.table.overrides else []
        awaited = [each for each in wanted if not each.objects.is_known and not each.left_out]
        if self.table.asks_for_nodes and not self._nodes.left_out and not self._are_nodes_known:
            awaited.append(self._nodes)
        return awaited

    @property
    def _are_nodes_known(self) -> bool:
        return self._nodes.objects.is_known and (self._details is None or self._details.is_known)

    @property
    def is_deprovisioning(self) -> bool:
        """Placement is being uninstalled: pods are no longer gated or held."""
        return self.cppc is None or _is_terminating(self.cppc)

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

    def of(self, namespace: str) -> NamespaceFacts:
        """The facts for pods of a namespace; ``settings.provisional`` if some that matter have not synced."""
        known = self._by_namespace.get(namespace)
        if known is None:
            if len(self._by_namespace) >= MAX_NAMESPACES:
                self._by_namespace.clear()
            known = self._by_namespace[namespace] = self._compile(namespace)
        return known

    def settled(self, namespace: str) -> NamespaceFacts:
        """The facts after waiting has ended: for a Namespace that did not appear the policy's ``spec``. While
        placement is being uninstalled, pods are not held and retry windows are short."""
        facts = self.of(namespace)
        if facts.settings.provisional:
            facts = facts._replace(settings=self._with_nodes(self.table.spec))
        return facts._replace(settings=facts.settings.deprovisioning()) if self.is_deprovisioning else facts

    def _compile(self, namespace: str) -> NamespaceFacts:
        table = self.table
        settings = table.spec
        if table.overrides and not self._namespaces.left_out:
            settings = table.of_namespace(self.labels_of(namespace))
        settings = self._with_nodes(settings)
        if settings.node_aware != "off" and not self._are_nodes_known:
            settings = msgspec.structs.replace(settings, provisional=True)
        sources = self.scoring.of_namespace(namespace)
        if not settings.asks_for_nodes:
            return NamespaceFacts(settings, sources, frozenset(), signer=self._signer)
        return NamespaceFacts(settings, sources, self.platforms, self.coming, self.runtimes, self._signer)

    def _with_nodes(self, settings: Settings) -> Settings:
        """As they are, or without asking for nodes that cannot be had."""
        unread = settings.node_aware != "off" and self._nodes.left_out
        return msgspec.structs.replace(settings, node_aware="off") if unread else settings

    def labels_of(self, namespace: str) -> dict[str, str] | None:
        """The labels of a Namespace; None if it is not in the cache."""
        known = self._namespaces.objects.get(ObjectKey("", namespace))
        return (known.metadata.labels or {}) if known is not None else None

    @property
    def platforms(self) -> frozenset[NodePlatform]:
        """Platforms of the nodes that are not being deleted."""
        if self._platforms is None:
            self._platforms = platforms_of(self._nodes.objects.values())
        return self._platforms

    @property
    def coming(self) -> frozenset[NodePlatform]:
        """Platforms of nodes that templates may make."""
        return self._details.coming if self._details is not None else frozenset()

    @property
    def runtimes(self) -> NodeRuntimes:
        """The runtimes of the nodes that are not being deleted."""
        if self._details is None:
            return NO_RUNTIMES
        if self._runtimes is None:
            known = ((node.metadata.name, _platform(node)) for node in self._nodes.objects.values())
            nodes = [(name, platform) for name, platform in known if platform is not None]
            self._runtimes = self._details.runtimes(nodes)
        return self._runtimes

    def take(self, signer: RecordSigner) -> None:
        """Replaces the keys that sign and verify records. Decisions about gated pods do not depend on them."""
        self._signer = signer
        self._by_namespace.clear()

    # -- for those who decide again ------------------------------------------------------------------------------------

    def on_change(self, handler: Callable[[str | None], None]) -> None:
        """Calls ``handler`` with the namespace whose facts changed, or None for all namespaces."""
        self._handlers.append(handler)

    def search_short_names(self, searched: bool) -> None:
        """Sets whether nodes search several registries for image names without a registry."""
        if searched != self._short_names_searched:
            self._short_names_searched = searched
            self._compile_anew()

    async def synced(self) -> None:
        """Returns once all facts that the configuration needs have synced; ``run`` must be running."""
        for watched in (self._cppcs, self._ppcs, self._policies):
            await watched.synced()
        while not self.is_complete:
            self._arrived.clear()
            await self._arrived.wait()
        self._were_complete = True

    async def run(self) -> None:
        """Watches namespaces and nodes while the policy needs them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                if self._policies.has_synced:
                    self._namespaces.want(tasks, wanted=bool(self.table.overrides))
                    self._nodes.want(tasks, wanted=self.table.asks_for_nodes)
                    self._want_details(tasks)
                    await self._changed.wait()
                else:
                    await self._policies.synced()

    def _want_details(self, tasks: asyncio.TaskGroup) -> None:
        wanted = self.table.asks_for_nodes
        if wanted and self._reading is None and self._details is not None:
            self._reading = tasks.create_task(self._details.run(), name="details of nodes")
        elif not wanted and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _cppc_changed(self, change: ObjectChange[ClusterPodPlacementConfig]) -> None:
        if change.key == SINGLETON:
            self.cppc = change.new
        self._cluster_changed(change)

    def _cluster_changed(self, change: ObjectChange[ClusterPodPlacementConfig] | ObjectChange[PlacementPolicy]) -> None:
        old, new = change.old, change.new
        if (
            old is not None
            and new is not None
            and old.spec == new.spec
            and _is_terminating(old) == _is_terminating(new)
        ):
            return  # a status or an annotation
        self._compile_anew()

    def _compile_anew(self) -> None:
        before = self._table
        self._table = self._scoring = None
        self._by_namespace.clear()
        self._changed.set()
        if before != self.table:
            for problem in self.table.problems:
                log.warning("invalid configuration value ignored", problem=problem)
        self._tell(None)

    def _ppc_changed(self, change: ObjectChange[PodPlacementConfig]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return  # a status or an annotation
        self._scoring = None
        self._tell_of_selector(change)
        self._by_namespace.pop(change.key.namespace, None)
        if not change.initial:
            self._tell(change.key.namespace)

    def _tell_of_selector(self, change: ObjectChange[PodPlacementConfig]) -> None:
        """Logs an invalid selector, which matches no pod, when it is first seen and when it changes."""
        old, new = change.old, change.new
        if new is None or (old is not None and old.spec.label_selector == new.spec.label_selector):
            return
        if (problem := selector_problem(new)) is not None:
            log.warning(
                "a PodPlacementConfig matches no pod", config=str(change.key), reason=INVALID_SELECTOR, problem=problem
            )

    def _namespace_changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        old, new = change.old, change.new
        self._by_namespace.pop(change.key.name, None)
        if change.initial:
            return  # handlers are called once after the first list
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self._tell(change.key.name)

    def _node_changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        """Kubelets update their node's status all the time; only a change of its platform matters."""
        if _platform(change.old) == _platform(change.new):
            return
        if self._details is not None:
            (self._details.left if change.new is None else self._details.joined)(change.key.name)
        before, self._platforms, self._runtimes = self._platforms, None, None
        if change.initial:
            self._by_namespace.clear()  # handlers are called once after the first list
        elif before is not None and before != self.platforms:
            self._by_namespace.clear()
            self._tell(None)

    def _list_arrived(self) -> None:
        self._platforms = self._runtimes = None
        self._by_namespace.clear()
        self._tell(None)

    def _tell(self, namespace: str | None) -> None:
        self._arrived.set()
        for handler in self._handlers:
            handler(namespace)


def _is_terminating(object_: KubernetesObject) -> bool:
    return object_.metadata.deletion_timestamp is not None


def platforms_of(nodes: Iterable[PartialObjectMetadata]) -> frozenset[NodePlatform]:
    """Platforms of the nodes that are not being deleted, by their labels."""
    return frozenset(platform for node in nodes if (platform := _platform(node)) is not None)


def _platform(node: PartialObjectMetadata | None) -> NodePlatform | None:
    """The platform that the node's labels say; None if it is deleted, being deleted, or has no label for the
    architecture. Without one for the operating system it is linux."""
    if node is None or _is_terminating(node):
        return None
    labels = node.metadata.labels or {}
    architecture = labels.get(names.ARCH_KEY)
    return NodePlatform(labels.get(names.OS_KEY) or "linux", architecture) if architecture else None


def image_request(case: ExaminedPod) -> PodImageRequest:
    """The images of an examined pod, as they are looked up."""
    return PodImageRequest(
        case.images,
        PullSecretNames.of(case.pod, case.facts.namespace),
        case.settings.images_stale_for,
        lambda inspections: assess(case, inspections).is_impossible,
    )
