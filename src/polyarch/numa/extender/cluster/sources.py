"""Nodes, their objects and pods, from three watches into the books (NS-150, NS-171).

Of a pod that can never be aligned the books get name, node and phase alone; of a Node its allocatable amounts. A GET is
never sent: what the watches have not shown is not known, which is not the same as not there.
"""

from collections.abc import Callable, Mapping
from sys import intern
from typing import Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.resources import NODES, PODS
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology, Quantity
from polyarch.numa.extender.cluster.feed import Feed
from polyarch.numa.extender.engine import Books
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.state_document import CacheState
from polyarch.numa.names import EXPORTER_POD_LABELS
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts, amounts, node_facts
from polyarch.numa.scheduling.facts.pods import PodFacts, PodObject, StatusObject, pod_facts
from polyarch.numa.scheduling.ledger.residents import may_align
from polyarch.objects import Key, ObjectMeta
from polyarch.quantity import InvalidQuantity

log = structlog.get_logger(__name__)

UNALIGNED: Final = frozenset({"TopologyAffinityError", "SMTAlignmentError"})
"""``status.reason`` of pods that a kubelet has refused for their alignment."""
TOPOLOGY, NODE, POD = "noderesourcetopologies", "nodes", "pods"


class ConditionObject(msgspec.Struct, frozen=True, gc=False):
    """One condition of a pod."""

    type: str = ""
    status: str = ""


class WatchedStatus(StatusObject, frozen=True, gc=False, rename="camel"):
    """With the conditions, which say whether an exporter is ready."""

    conditions: list[ConditionObject] | None = None


class WatchedPod(PodObject, frozen=True, gc=False):
    """core/v1 Pod as the caches read it."""

    status: WatchedStatus | None = None


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """The part of a Node's status that is read."""

    allocatable: dict[str, Quantity] | None = None


class WatchedNode(msgspec.Struct, frozen=True, gc=False):
    """core/v1 Node as the caches read it."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus | None = None


class Exporters(Protocol):
    """Who wants to know of exporters and of kubelets that refuse pods; the books of exact and advise."""

    def exporter_seen(self, node: str, *, is_ready: bool, now: float) -> None: ...

    def refused_by_kubelet(self, node: str, now: float) -> None: ...


class Sources:
    """The three feeds, and what they have told the books."""

    def __init__(
        self,
        client: Client,
        books: Books,
        settings: ExtenderSettings,
        *,
        clock: Clock,
        exporters: Exporters | None = None,
        forget: Callable[[str], None] = lambda uid: None,
    ) -> None:
        """``forget`` is called with the uid of each pod that is gone."""
        self._books = books
        self._limit = settings.max_staleness
        self._is_exact = settings.mode != "compat"
        self._clock = clock
        self._exporters = exporters
        self._forget = forget
        self._allocatable: dict[str, Amounts] = {}
        self._orphans: dict[str, NodeFacts] = {}
        """By name of the Node that is gone, while its object is still there."""
        self._refused: set[str] = set()
        self._exporters_on: dict[str, dict[str, bool]] = {}
        """By node, whether each is ready: for a moment there are two, the one that goes, and the next."""
        self._exporter_nodes: dict[str, str] = {}
        self._has_started = False
        topologies = Feed(
            client,
            TOPOLOGIES,
            NodeResourceTopology,
            seen=self._see_topology,
            gone=self._lose_topology,
            clock=clock,
            complete=self._complete,
        )
        nodes = Feed(
            client,
            NODES,
            WatchedNode,
            seen=self._see_node,
            gone=self._lose_node,
            clock=clock,
            complete=self._complete,
        )
        self.pods: Final = Feed(
            client,
            PODS,
            WatchedPod,
            seen=self._see_pod,
            gone=self._lose_pod,
            clock=clock,
            complete=self._complete,
        )
        self.feeds: Final[Mapping[str, Feed[NodeResourceTopology] | Feed[WatchedNode] | Feed[WatchedPod]]] = {
            TOPOLOGY: topologies,
            NODE: nodes,
            POD: self.pods,
        }

    @property
    def problem(self) -> str:
        """Why nothing can be answered, naming the cache (NS-085); empty: all are current."""
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
        """The books begin when everything was listed (NS-150)."""
        if not self._has_started and all(each.has_synced for each in self.feeds.values()):
            self._has_started = True
            self._books.start(self._clock.monotonic(), self._clock.now().timestamp())
            log.info("ready", nodes=len(self.feeds[NODE]), pods=len(self.pods))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _see_topology(self, topology: NodeResourceTopology) -> None:
        name = intern(topology.metadata.name)
        facts = node_facts(name, topology, None, exact=self._is_exact)
        facts = msgspec.structs.replace(facts, allocatable=self._allocatable.get(name))
        self._orphans.pop(name, None)
        self._books.node_seen(facts, self._clock.monotonic())

    def _lose_topology(self, key: Key, uid: str) -> None:
        """What is reserved stays, and counts again when the object returns (NS-103)."""
        now, allocatable = self._clock.monotonic(), self._allocatable.get(key.name)
        self._orphans.pop(key.name, None)
        if allocatable is None:
            self._books.node_gone(key.name, now)
        else:
            self._books.node_seen(NodeFacts(name=key.name, has_topology=False, allocatable=allocatable), now)

    def _see_node(self, node: WatchedNode) -> None:
        """Its status changes every few minutes, its allocatable amounts hardly ever."""
        name = intern(node.metadata.name)
        found = amounts((node.status or NodeStatus()).allocatable or {})
        if self._allocatable.get(name) == found and self._books.node(name) is not None:
            return
        self._allocatable[name] = found
        known = self._books.node(name) or self._orphans.pop(name, NodeFacts(name=name, has_topology=False))
        self._books.node_seen(msgspec.structs.replace(known, allocatable=found), self._clock.monotonic())

    def _lose_node(self, key: Key, uid: str) -> None:
        """Its object may outlive it, or be there before it comes back."""
        self._allocatable.pop(key.name, None)
        known = self._books.node(key.name)
        if known is not None and known.has_topology:
            self._orphans[key.name] = known
        self._books.node_gone(key.name, self._clock.monotonic())

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _see_pod(self, pod: WatchedPod) -> None:
        now = self._clock.monotonic()
        try:
            facts = pod_facts(pod)
        except InvalidQuantity as error:
            log.error("pod is not counted", pod=str(pod.metadata.key), problem=str(error))
            return
        self._books.pod_seen(facts if may_align(facts) or not self._is_exact else _bare(facts), now)
        if self._exporters is not None and facts.node_name:
            self._see_exporter(self._exporters, pod, facts, now)
            self._see_refusal(self._exporters, pod, facts, now)

    def _see_exporter(self, exporters: Exporters, pod: WatchedPod, facts: PodFacts, now: float) -> None:
        if not EXPORTER_POD_LABELS.items() <= facts.labels.items():
            return
        conditions = (pod.status or WatchedStatus()).conditions or ()
        is_ready = any(each.type == "Ready" and each.status == "True" for each in conditions)
        self._exporter_nodes[facts.uid] = facts.node_name
        there = self._exporters_on.setdefault(facts.node_name, {})
        if there.get(facts.uid) != is_ready:
            there[facts.uid] = is_ready
            exporters.exporter_seen(facts.node_name, is_ready=any(there.values()), now=now)

    def _see_refusal(self, exporters: Exporters, pod: WatchedPod, facts: PodFacts, now: float) -> None:
        reason = pod.status.reason if pod.status is not None else None
        if facts.phase == "Failed" and reason in UNALIGNED and facts.uid not in self._refused:
            self._refused.add(facts.uid)
            if self._has_started:  # what was refused before us says nothing of what we know
                exporters.refused_by_kubelet(facts.node_name, now)

    def _lose_pod(self, key: Key, uid: str) -> None:
        now = self._clock.monotonic()
        self._refused.discard(uid)
        self._books.pod_gone(uid, now)
        self._forget(uid)
        node = self._exporter_nodes.pop(uid, None)
        if node is not None and self._exporters is not None:
            there = self._exporters_on[node]
            del there[uid]
            self._exporters.exporter_seen(node, is_ready=any(there.values()), now=now)
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
