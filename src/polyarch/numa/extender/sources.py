"""Keeps the scheduler cache current from three watches: NodeResourceTopologies, Nodes and Pods.

An informer keeps every object in its store: 5 000 topologies and 100 000 pods take a gigabyte. Here only keys, uids and
versions stay; the scheduler cache keeps what it needs. What vanished while the watch was broken is told when the next
list is complete, as an informer does. :class:`FailoverBarrier` waits until the watches show what another replica bound.
"""

from collections.abc import Callable, Mapping, Sequence
from sys import intern
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.informer import Reflector, WatchClient
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.kube.store import older
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone, KubernetesObject, Output
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.bound_pods import may_align
from polyarch.numa.extender.engine import SchedulerCache
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import CacheState
from polyarch.numa.fit import demand
from polyarch.numa.fit.facts import (
    Amounts,
    ContainerFacts,
    NodeFacts,
    NodeStatusObject,
    PodFacts,
    PodObject,
    StatusObject,
    node_amounts,
    node_facts,
    pod_facts,
)
from polyarch.numa.names import EXPORTER_POD_LABELS
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.quantity import InvalidQuantity

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubernetesObject)

BOOKMARKS: Final = 75.0
"""Seconds within which a watch of an API server says something, if only a bookmark."""


class UncachedInformer(Generic[T]):
    """Calls ``seen`` with each version of an object and ``gone`` with its key and uid, in the order of the watch."""

    def __init__(
        self,
        client: WatchClient,
        resource: Resource,
        type: type[T],
        *,
        seen: Callable[[T], None],
        gone: Callable[[ObjectKey, str], None],
        clock: Clock,
        complete: Callable[[], None] = lambda: None,
    ) -> None:
        """``complete`` is called once, when the first list has been handed on."""
        self.resource = resource
        self.type = type
        self._seen = seen
        self._gone = gone
        self._complete = complete
        self._known: dict[ObjectKey, tuple[str, str]] = {}
        self._listed: set[ObjectKey] | None = None
        self._has_synced = False
        self._reflector = Reflector(client, resource, ListOptions(), clock=clock)
        self._reflector.add(self)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_synced(self) -> bool:
        return self._has_synced

    @property
    def problem(self) -> str:
        """What keeps it from being current, for people; empty: nothing."""
        if self._reflector.problem is not None:
            return self._reflector.problem
        if not self._has_synced:
            return f"the cache of {self.resource} is not complete yet"
        return ""

    @property
    def last_error(self) -> str:
        """Why the watch is broken; empty while it is open."""
        return self._reflector.last_error or ""

    @property
    def stale_seconds(self) -> float:
        """Since when something may have happened that is not known here: since the watch broke, or has not even sent
        the bookmark that was due."""
        return self._reflector.broken_seconds or max(0.0, self._reflector.silent_seconds - BOOKMARKS)

    def has(self, key: ObjectKey, version: str) -> bool:
        """Whether this version of the object, or a later one, was handed on."""
        known = self._known.get(key)
        return known is not None and not older(known[1], version)

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._reflector.run()

    def take(self, output: Output[T]) -> None:
        """Called by the reflector."""
        match output:
            case Apply(object=object_):
                self._see(object_)
            case InitApply(object=object_):
                if self._listed is not None:
                    self._listed.add(object_.metadata.key)
                self._see(object_)
            case Delete(key=key, resource_version=version):
                if self._listed is not None:
                    self._listed.discard(key)
                self._lose(key, version)
            case Init():
                self._listed = set()
            case InitDone():
                self._listed_all()

    def _listed_all(self) -> None:
        listed, self._listed = self._listed or set(), None
        for key in [key for key in self._known if key not in listed]:
            self._lose(key, "")
        if not self._has_synced:
            self._has_synced = True
            log.info("cache is complete", resource=str(self.resource), objects=len(self._known))
            self._complete()

    def _see(self, object_: T) -> None:
        metadata = object_.metadata
        known = self._known.get(metadata.key)
        if known is not None:
            uid, version = known
            if version == metadata.resource_version or older(metadata.resource_version, version):
                return
            if uid != metadata.uid:
                self._tell(self._gone, metadata.key, uid)
        self._known[metadata.key] = metadata.uid, metadata.resource_version
        self._tell(self._seen, object_)

    def _lose(self, key: ObjectKey, version: str) -> None:
        known = self._known.get(key)
        if known is None or older(version, known[1]):
            return
        del self._known[key]
        self._tell(self._gone, key, known[0])

    def _tell(self, handler: Callable[..., None], *what: object) -> None:
        try:
            handler(*what)
        except Exception:
            log.exception("object could not be taken in", resource=str(self.resource))


# -- the cache ---------------------------------------------------------------------------------------------------------


UNALIGNED: Final = frozenset({"TopologyAffinityError", "SMTAlignmentError"})
"""``status.reason`` of pods that a kubelet has refused for their alignment."""
TOPOLOGY, NODE, POD = "noderesourcetopologies", "nodes", "pods"


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """What filters of kube-scheduler read of it."""

    unschedulable: bool | None = None
    taints: list[dict[str, str]] | None = None


class WatchedNode(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node as the caches read it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec | None = None
    status: NodeStatusObject | None = None


class CacheUpdater:
    """The three feeds, and what they have told the books."""

    def __init__(
        self,
        client: Client,
        books: SchedulerCache,
        settings: ExtenderSettings,
        *,
        clock: Clock,
        forget: Callable[[str], None] = lambda uid: None,
    ) -> None:
        """``forget`` is called with the uid of each pod that is gone."""
        self._books = books
        self._limit = settings.max_staleness
        self._evicts = settings.evicts
        self._clock = clock
        self._forget = forget
        self._nodes: dict[str, tuple[Amounts, str]] = {}
        """What is allocatable, and the kubelet's version."""
        self._filtered_by: dict[str, int] = {}
        """By node, what filters of kube-scheduler read of it, as a hash."""
        self._orphans: dict[str, NodeFacts] = {}
        """By name of the Node that is gone, while its object is still there."""
        self._refused: set[str] = set()
        self._exporters_on: dict[str, dict[str, bool]] = {}
        """By node, whether each is ready: for a moment there are two, the one that goes, and the next."""
        self._exporter_nodes: dict[str, str] = {}
        self._has_started = False
        topologies = UncachedInformer(
            client,
            TOPOLOGIES,
            NodeResourceTopology,
            seen=self._see_topology,
            gone=self._lose_topology,
            clock=clock,
            complete=self._complete,
        )
        nodes = UncachedInformer(
            client,
            NODES,
            WatchedNode,
            seen=self._see_node,
            gone=self._lose_node,
            clock=clock,
            complete=self._complete,
        )
        self.pods: Final = UncachedInformer(
            client,
            PODS,
            PodObject,
            seen=self._see_pod,
            gone=self._lose_pod,
            clock=clock,
            complete=self._complete,
        )
        self.feeds: Final[
            Mapping[
                str,
                UncachedInformer[NodeResourceTopology] | UncachedInformer[WatchedNode] | UncachedInformer[PodObject],
            ]
        ] = {
            TOPOLOGY: topologies,
            NODE: nodes,
            POD: self.pods,
        }

    @property
    def problem(self) -> str:
        """Why nothing can be answered, naming the cache; empty: all are current."""
        for each in self.feeds.values():
            if not each.has_synced:
                return each.problem
        for name, each in self.feeds.items():
            if each.stale_seconds > self._limit:
                return (
                    f"the cache of {name} has not been current for {each.stale_seconds:.0f} s, and at most "
                    f"{self._limit:.0f} s are allowed (--max-staleness): {each.problem or each.last_error}"
                ).removesuffix(": ")
        return ""

    def not_ready(self) -> str | None:
        """The readiness check."""
        return self.problem or None

    def states(self) -> dict[str, CacheState]:
        return {
            name: CacheState(objects=len(each), stale_seconds=round(each.stale_seconds, 1), problem=each.problem)
            for name, each in self.feeds.items()
        }

    def _complete(self) -> None:
        """The books begin when everything was listed."""
        if not self._has_started and all(each.has_synced for each in self.feeds.values()):
            self._has_started = True
            self._books.start(self._clock.monotonic(), self._clock.now().timestamp())
            log.info("ready", nodes=len(self.feeds[NODE]), pods=len(self.pods))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _see_topology(self, topology: NodeResourceTopology) -> None:
        name = intern(topology.metadata.name)
        allocatable, kubelet = self._nodes.get(name, (None, ""))
        facts = msgspec.structs.replace(node_facts(name, topology, None, kubelet), allocatable=allocatable)
        self._orphans.pop(name, None)
        self._books.node_seen(facts, self._clock.monotonic())

    def _lose_topology(self, key: ObjectKey, uid: str) -> None:
        """What is reserved stays, and counts again when the object returns."""
        now, (allocatable, kubelet) = self._clock.monotonic(), self._nodes.get(key.name, (None, ""))
        self._orphans.pop(key.name, None)
        if allocatable is None:
            self._books.node_gone(key.name, now)
        else:
            facts = NodeFacts(name=key.name, has_topology=False, allocatable=allocatable, kubelet=kubelet)
            self._books.node_seen(facts, now)

    def _see_node(self, node: WatchedNode) -> None:
        """Its status changes every few minutes, its allocatable amounts hardly ever."""
        name = intern(node.metadata.name)
        if self._evicts:
            read = hash(msgspec.msgpack.encode((node.spec, node.metadata.labels), order="deterministic"))
            if self._filtered_by.get(name) != read:
                self._filtered_by[name] = read
                self._books.node_altered(name)
        status = node.status or NodeStatusObject()
        found, kubelet = node_amounts(status.allocatable or {}), intern(status.kubelet)
        if self._nodes.get(name) == (found, kubelet) and self._books.node(name) is not None:
            return
        self._nodes[name] = found, kubelet
        known = self._books.node(name) or self._orphans.pop(name, NodeFacts(name=name, has_topology=False))
        facts = msgspec.structs.replace(known, allocatable=found, kubelet=kubelet)
        self._books.node_seen(facts, self._clock.monotonic())

    def _lose_node(self, key: ObjectKey, uid: str) -> None:
        """Its object may outlive it, or be there before it comes back."""
        self._nodes.pop(key.name, None)
        self._filtered_by.pop(key.name, None)
        known = self._books.node(key.name)
        if known is not None and known.has_topology:
            self._orphans[key.name] = known
        self._books.node_gone(key.name, self._clock.monotonic())

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _see_pod(self, pod: PodObject) -> None:
        now = self._clock.monotonic()
        try:
            facts = pod_facts(pod)
        except InvalidQuantity as error:
            log.error("pod is not counted", pod=str(pod.metadata.key), problem=str(error))
            return
        self._books.pod_seen(self._kept(facts), now)
        if facts.node_name:
            self._see_exporter(pod, facts, now)
            self._see_refusal(pod, facts, now)

    def _kept(self, pod: PodFacts) -> PodFacts:
        if may_align(pod):
            return pod
        return _summed(pod) if self._evicts else _bare(pod)

    def _see_exporter(self, pod: PodObject, facts: PodFacts, now: float) -> None:
        if not EXPORTER_POD_LABELS.items() <= facts.labels.items():
            return
        conditions = (pod.status or StatusObject()).conditions or ()
        is_ready = any(each.type == "Ready" and each.status == "True" for each in conditions)
        self._exporter_nodes[facts.uid] = facts.node_name
        there = self._exporters_on.setdefault(facts.node_name, {})
        if there.get(facts.uid) != is_ready:
            there[facts.uid] = is_ready
            self._books.exporter_seen(facts.node_name, is_ready=any(there.values()), now=now)

    def _see_refusal(self, pod: PodObject, facts: PodFacts, now: float) -> None:
        reason = pod.status.reason if pod.status is not None else None
        if facts.phase == "Failed" and reason in UNALIGNED and facts.uid not in self._refused:
            self._refused.add(facts.uid)
            if self._has_started:  # what was refused before us says nothing of what we know
                self._books.refused_by_kubelet(facts.node_name, now)

    def _lose_pod(self, key: ObjectKey, uid: str) -> None:
        now = self._clock.monotonic()
        self._refused.discard(uid)
        self._books.pod_gone(uid, now)
        self._forget(uid)
        node = self._exporter_nodes.pop(uid, None)
        if node is not None:
            there = self._exporters_on[node]
            del there[uid]
            self._books.exporter_seen(node, is_ready=any(there.values()), now=now)
            if not there:
                del self._exporters_on[node]


def _bare(pod: PodFacts) -> PodFacts:
    """What fingerprints need of a pod that is never aligned."""
    return PodFacts(
        namespace=intern(pod.namespace),
        name=pod.name,
        uid=pod.uid,
        resource_version=pod.resource_version,
        node_name=intern(pod.node_name),
        scheduler_name=intern(pod.scheduler_name),
        phase=intern(pod.phase),
        started_at=pod.started_at,
        terminating=pod.terminating,
    )


def _summed(pod: PodFacts) -> PodFacts:
    """What preemption needs of a pod that is never aligned: what it takes of the sums of its node, and who it is."""
    request = {name: amount for name, amount in demand.whole_request(pod).items() if name != demand.PODS}
    return msgspec.structs.replace(
        pod,
        namespace=intern(pod.namespace),
        node_name=intern(pod.node_name),
        scheduler_name=intern(pod.scheduler_name),
        phase=intern(pod.phase),
        qos="BestEffort",
        containers=(ContainerFacts("", "app", request, request),),
        overhead={},
        pod_requests=None,
        annotations={},
    )


# -- failover ----------------------------------------------------------------------------------------------------------


BARRIER_SILENCE: Final = 30.0
"""Seconds without a filter call."""
BARRIER_TIMEOUT: Final = 1.5
"""Seconds that a filter call waits; with the answer itself it stays below the limit of a verb."""
_STEP: Final = 0.01


class FailoverBarrier:
    """Call :meth:`passed` at each filter call."""

    def __init__(self, client: Client, pods: UncachedInformer[Any], scheduler_name: str, *, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._selector = f"spec.schedulerName={scheduler_name}"
        self._clock = clock
        self._last: float | None = None

    async def passed(self) -> None:
        """Returns at once, but for the first call after a silence."""
        now = self._clock.monotonic()
        last, self._last = self._last, now
        if last is not None and now - last < BARRIER_SILENCE:
            return
        try:
            async with deadline(self._clock, BARRIER_TIMEOUT):
                await self._reached(await self._present())
        except KubernetesError as error:
            log.warning("pods could not be read before the first answer", error=str(error))
        except TimeoutError:
            log.warning("the watch is not as far as the pods that were read", waited=BARRIER_TIMEOUT)

    async def _present(self) -> Sequence[PartialObjectMetadata]:
        found = await self._client.list(PODS, type=PartialObjectMetadata, field_selector=self._selector, retry=False)
        return found.items

    async def _reached(self, pods: Sequence[PartialObjectMetadata]) -> None:
        for each in pods:
            while not self._pods.has(each.metadata.key, each.metadata.resource_version):
                await self._clock.sleep(_STEP)
