"""The plugin's pessimistic cache (NS-130 – NS-134): per node a copy of its object, and what bound pods may hold.

Where a pod will be put is not guessed: all of it counts on every cell, until the copy is replaced by a newer object of
which the fingerprint proves that it accounts for the pods. Events come in, no clock is read: who owns the cache calls
:meth:`Cache.resync` every ``cacheResyncPeriod``.

Better than the plugin: objects that come later than the start are taken, a deleted pod is forgotten at once, and a
bound pod that is still Pending survives a flush (the plugin forgets it, and gives its place away twice).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from polyarch.numa.decide.fingerprint import check
from polyarch.numa.scheduling.compat.filtering import Free
from polyarch.numa.scheduling.compat.options import CacheOptions
from polyarch.numa.scheduling.compat.requests import devices, effective, has_own_cpus_or_memory, is_exclusive, lists_any
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

EXCLUSIVE_METHOD = "with-exclusive-resources"
_RUNNING = "Running"
_PENDING = frozenset({"", "Pending"})


class _Pod(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a bound pod."""

    node: str
    namespace: str
    name: str
    phase: str
    is_foreign: bool
    has_own: bool
    """Whole CPUs, memory or huge pages."""
    devices: frozenset[str]


@dataclass(slots=True)
class _Node:
    """One node: the copy that counts, the newest object, and counters of what speaks against the copy."""

    latest: NodeFacts
    copy: NodeFacts | None = None
    assumed: dict[str, Amounts] = field(default_factory=dict)
    """By uid; of every pod, whatever its quality of service."""
    dirty: int = 0
    foreign: int = 0
    changed: int = 0
    free: Free | None = None


class Cache:
    """Of all nodes."""

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}
        self._bound: dict[str, set[str]] = {}
        """Uids of pods by the name of their node, whether that is known yet or not."""
        self._awaited: set[str] = set()
        """Pods that were seen, or answered about, before they were bound."""
        self.generation = 0

    def node_seen(self, facts: NodeFacts) -> None:
        """A node or its object has changed. What the Node itself says counts at once; the rest when it is proved."""
        node = self._nodes.get(facts.name)
        if node is None:
            node = self._nodes[facts.name] = _Node(facts)
        node.latest = facts
        if not facts.has_topology:
            self._reset(node, None)
            node.assumed.clear()
        elif node.copy is None:
            self._reset(node, facts)
        else:
            if _configuration(facts) != _configuration(node.copy):
                node.changed += 1
            node.copy = msgspec.structs.replace(node.copy, allocatable=facts.allocatable)

    def node_gone(self, name: str) -> None:
        self._nodes.pop(name, None)

    def answered(self, pod: PodFacts) -> None:
        """Filter has named nodes for it."""
        if not pod.node_name:
            self._awaited.add(pod.uid)

    def rejected(self, name: str) -> None:
        """Filter has rejected the node for want of room (NS-024)."""
        if (node := self._nodes.get(name)) is not None and node.copy is not None:
            node.dirty += 1

    def pod_seen(self, pod: PodFacts) -> None:
        """Of every pod, on every event."""
        if not pod.node_name:
            if self._is_ours(pod):
                self._awaited.add(pod.uid)
            return
        node = self._nodes.get(pod.node_name)
        self._keep(pod, node)
        if node is not None and node.copy is not None:
            node.foreign += self._pods[pod.uid].is_foreign
            if pod.has_ended:
                self._forget(node, pod.uid)
            elif pod.uid in self._awaited:
                node.assumed[pod.uid] = effective(pod)
                node.free = None
                node.dirty = 0
        self._awaited.discard(pod.uid)

    def pod_gone(self, uid: str) -> None:
        self._awaited.discard(uid)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        on_node = self._bound[pod.node]
        on_node.discard(uid)
        if not on_node:
            del self._bound[pod.node]
        if (node := self._nodes.get(pod.node)) is not None and node.copy is not None:
            self._forget(node, uid)
            node.foreign += pod.is_foreign

    def node(self, name: str) -> NodeFacts | None:
        """What Filter and Score decide from; None: the node is not known."""
        found = self._nodes.get(name)
        return (found.copy or found.latest) if found is not None else None

    def is_foreign(self, name: str) -> bool:
        return (node := self._nodes.get(name)) is not None and node.foreign > 0

    def free(self, name: str) -> Free:
        """The copy without all that is assumed, on every cell that lists it, not below 0."""
        node = self._nodes.get(name)
        if node is None or node.copy is None:
            return {}
        if node.free is None:
            total: dict[str, int] = {}
            for amounts in node.assumed.values():
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + amount
            node.free = {cell.id: _less(cell.available, total) for cell in node.copy.cells}
        return node.free

    def assumed(self, name: str) -> Mapping[str, Amounts]:
        """By namespace and name of the pod."""
        node = self._nodes.get(name)
        found = node.assumed if node is not None else {}
        return {f"{self._pods[uid].namespace}/{self._pods[uid].name}": amounts for uid, amounts in found.items()}

    def resync(self) -> tuple[str, ...]:
        """Take the newest objects that are proved to account for the pods of their nodes; returns these nodes."""
        flushed = []
        for name, node in self._nodes.items():
            if node.copy is None:
                continue
            doubted = (node.dirty or node.foreign) and self._explains(name, node)
            if doubted or node.changed:
                self._flush(node)
                flushed.append(name)
        self.generation += bool(flushed)
        return tuple(flushed)

    def _explains(self, name: str, node: _Node) -> bool:
        relevant = [pod for uid in self._bound.get(name, ()) if self._is_relevant(pod := self._pods[uid])]
        fingerprint = node.latest.fingerprint
        if not relevant or not fingerprint:
            return False
        if node.latest.fingerprint_method == EXCLUSIVE_METHOD:
            relevant = [pod for pod in relevant if pod.has_own or lists_any(node.latest, pod.devices)]
        return check(fingerprint, ((pod.namespace, pod.name) for pod in relevant)) == "ok"

    def _is_relevant(self, pod: _Pod) -> bool:
        if self._options.informer == "Shared":
            return pod.phase == _RUNNING
        return pod.phase not in _PENDING

    def _flush(self, node: _Node) -> None:
        if self._options.strict:
            kept = {}
        else:
            kept = {uid: each for uid, each in node.assumed.items() if self._pods[uid].phase in _PENDING}
        node.assumed = kept
        self._reset(node, node.latest)

    def _reset(self, node: _Node, copy: NodeFacts | None) -> None:
        node.copy, node.free = copy, None
        node.dirty = node.foreign = node.changed = 0

    def _forget(self, node: _Node, uid: str) -> None:
        if node.assumed.pop(uid, None) is not None:
            node.free = None

    def _keep(self, pod: PodFacts, node: _Node | None) -> None:
        self._bound.setdefault(pod.node_name, set()).add(pod.uid)
        self._pods[pod.uid] = _Pod(
            node=pod.node_name,
            namespace=pod.namespace,
            name=pod.name,
            phase=pod.phase,
            is_foreign=not self._is_ours(pod)
            and (self._options.detection == "Aggressive" or (node is not None and is_exclusive(pod, node.latest))),
            has_own=has_own_cpus_or_memory(pod),
            devices=devices(pod),
        )

    def _is_ours(self, pod: PodFacts) -> bool:
        return pod.scheduler_name in self._options.scheduler_names


def _configuration(facts: NodeFacts) -> tuple[str, str, int]:
    return facts.settings.policy, facts.settings.scope, facts.settings.most_cells


def _less(available: Amounts, total: Amounts) -> dict[str, int]:
    return {name: max(0, amount - total.get(name, 0)) for name, amount in available.items()}
