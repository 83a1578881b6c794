"""Decides about every node, and writes those whose turn it is (TN-020 to TN-024).

A change of a node is decided at once, which costs no request: the census counts it, and a node that has to be written
becomes due. ``taint_rollout`` gives turns, in its order and at its pace; only then :meth:`NodeController.reconcile`
decides once more and writes. A write that fails keeps its turn and is repeated with backoff, so no node holds up the
others.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Literal, Protocol

import structlog

from polyarch.clock import Clock
from polyarch.kube.controller import Done, Result
from polyarch.kube.errors import ApiError, Forbidden, Invalid, KubernetesError
from polyarch.kube.store import Change, Store
from polyarch.objects import Key, Node
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.node_taints import Kind, NodeDecision, decide_node
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION
from polyarch.taints.nodes.census import Census
from polyarch.taints.nodes.due import Due
from polyarch.taints.nodes.writing import Contended, WritesNodes, write_node
from polyarch.taints.result import node_events
from polyarch.taints.result.node_events import NodeEvent

log = structlog.get_logger(__name__)

TURN: Final = 200
"""Nodes that are decided before other work of the event loop gets its turn."""

Posts = Callable[[Node, NodeEvent], None]


class Configured(Protocol):
    """The part of ``TaintFacts`` that is needed here."""

    @property
    def settings(self) -> TaintSettings | None: ...


class Watched(Protocol):
    """The part of an informer of nodes that is needed here."""

    store: Store[Node]

    @property
    def writes(self) -> "Writes": ...


class Writes(Protocol):
    """Our own writes that the cache does not show yet."""

    def is_stale(self, key: Key) -> bool: ...

    def note_write(self, key: Key, resource_version: str) -> None: ...


class NodeController:
    """Every replica decides, so that a standby takes over at once; only the leader writes and posts.

    ``enqueue`` hands a node to :meth:`reconcile`; ``wake`` tells the rollout that something changed.
    """

    def __init__(
        self,
        *,
        nodes: Watched,
        facts: Configured,
        client: WritesNodes,
        post: Posts,
        enqueue: Callable[[Key], None],
        wake: Callable[[], None],
        is_leading: Callable[[], bool],
        clock: Clock,
        metrics: TaintMetrics,
    ) -> None:
        self.census = Census()
        self.due = Due()
        self.released: frozenset[str] = frozenset()
        """Architectures whose nodes may be tainted now."""
        self._nodes = nodes
        self._facts = facts
        self._client = client
        self._post = post
        self._enqueue = enqueue
        self._wake = wake
        self._is_leading = is_leading
        self._clock = clock
        self._metrics = metrics
        self._in_hand: set[str] = set()
        """Nodes that had their turn and are not written yet."""
        self._unwritten: dict[str, str] = {}
        self._warned: dict[str, frozenset[str]] = {}
        self._new_since: dict[str, float] = {}
        self.on_tainted: Callable[[str], None] = lambda architecture: None
        """Called with the architecture when a node got the taint that had none."""

    # -- changes -------------------------------------------------------------------------------------------------------

    def seen(self, change: Change[Node]) -> None:
        """A node came, changed or went. Kubelets change their node's status all the time, which is none of this."""
        name = change.key.name
        if change.new is None:
            self._forget(name)
            self._wake()
            return
        if change.old is not None and _relevant(change.old) == _relevant(change.new):
            return
        if change.old is None and not change.initial:
            self._new_since[name] = self._clock.monotonic()
        self._decide(change.new, at_once=not change.initial)
        self._wake()

    async def decide_all(self) -> None:
        """Decides about every node again: settings have changed, or this replica leads now."""
        for number, key in enumerate(list(self._nodes.store.keys()), 1):
            node = self._nodes.store.get(key)
            if node is not None:
                self._decide(node, at_once=False)
            if number % TURN == 0:
                await asyncio.sleep(0)

    async def release(self, architectures: frozenset[str]) -> None:
        """The nodes of these architectures may be tainted, and those of no other."""
        changed = self.released ^ architectures
        self.released = architectures
        for number, name in enumerate(self.census.of(changed), 1):
            node = self._nodes.store.get(Key("", name))
            if node is not None:
                self._decide(node, at_once=False)
            if number % TURN == 0:
                await asyncio.sleep(0)

    def give_turn(self, order: Collection[str]) -> bool:
        """Hands the next node to a worker; False if none is due."""
        name = self.due.take(order)
        if name is None:
            return False
        self._in_hand.add(name)
        self._enqueue(Key("", name))
        return True

    @property
    def unwritten(self) -> dict[str, str]:
        """Nodes whose last write failed, each with the error."""
        return dict(self._unwritten)

    @property
    def is_busy(self) -> bool:
        """Nodes are due, or being written."""
        return bool(self._in_hand) or len(self.due) > 0

    # -- one node ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        """Writes one node that has its turn."""
        name = key.name
        node = self._nodes.store.get(key)
        if node is None or self._facts.settings is None:
            self._done(name)
            return Done()
        try:
            write = await write_node(
                self._client, node, self._decision, changed=lambda: self._metrics.wrote("node", "changed")
            )
        except KubernetesError as error:
            self._failed(node, error)
            raise
        if write.is_written and write.node is not None and write.decision is not None:
            self._nodes.writes.note_write(key, write.resource_version)
            self._metrics.wrote("node", "done")
            self._wrote(write.node, write.decision)
        self._done(name)
        return Done()

    def _decide(self, node: Node, *, at_once: bool) -> None:
        name = node.metadata.name
        decision = self._decision(node)
        self.census.put(name, decision)
        if self._is_leading():
            self._warn(node, decision)
        if decision.kind is Kind.NONE:
            self.due.drop(name)
            self._unwritten.pop(name, None)
            self._reacted(name, decision)
        elif name not in self._in_hand and not self._nodes.writes.is_stale(node.metadata.key):
            self.due.put(name, decision.architecture, at_once=at_once)

    def _decision(self, node: Node) -> NodeDecision:
        settings = self._facts.settings
        if settings is None:  # without a configuration nothing is ours to judge
            settings = _NOTHING
        return decide_node(node, settings, released=self.released)

    def _wrote(self, node: Node, decision: NodeDecision) -> None:
        name = node.metadata.name
        event = node_events.written(node, decision)
        if event is not None:
            self._post(node, event)
        log.info("node written", node=name, change=decision.kind, why=decision.reason)
        if decision.kind is Kind.APPLY:
            self.on_tainted(decision.architecture)
        began = self._new_since.pop(name, None)
        if began is not None:
            self._metrics.node_reaction_seconds.observe(self._clock.monotonic() - began)

    def _reacted(self, name: str, decision: NodeDecision) -> None:
        """A new node that came with its taint, or that needs none, was reacted to."""
        if decision.carried and (began := self._new_since.pop(name, None)) is not None:
            self._metrics.node_reaction_seconds.observe(self._clock.monotonic() - began)
        elif decision.desired is None:
            self._new_since.pop(name, None)

    def _failed(self, node: Node, error: KubernetesError) -> None:
        name = node.metadata.name
        refused = isinstance(error, Forbidden | Invalid)
        result: Literal["changed", "refused", "unanswered"] = "refused" if refused else "unanswered"
        self._metrics.wrote("node", "changed" if isinstance(error, Contended) else result)
        if refused and name not in self._unwritten and isinstance(error, ApiError):
            self._post(node, node_events.refused(self._decision(node), error.message or error.reason))
        self._unwritten[name] = str(error)

    def _done(self, name: str) -> None:
        self._in_hand.discard(name)
        self._unwritten.pop(name, None)
        self._wake()

    def _warn(self, node: Node, decision: NodeDecision) -> None:
        """Posts what somebody has to look at, once as long as it lasts."""
        if self._facts.settings is None:
            return
        found = node_events.warnings(decision)
        reasons = frozenset(str(event.reason) for event in found)
        name = node.metadata.name
        known = self._warned.get(name, frozenset())
        if reasons:
            self._warned[name] = reasons
        else:
            self._warned.pop(name, None)
        for event in found:
            if event.reason not in known:
                self._post(node, event)

    def _forget(self, name: str) -> None:
        self.census.drop(name)
        self.due.drop(name)
        self._warned.pop(name, None)
        self._unwritten.pop(name, None)
        self._new_since.pop(name, None)


_NOTHING: Final = TaintSettings(state="paused", given=frozenset())


def _relevant(node: Node) -> tuple[object, ...]:
    """All that decisions depend on."""
    metadata = node.metadata
    record = (metadata.annotations or {}).get(MANAGED_TAINTS_ANNOTATION)
    return metadata.uid, metadata.labels, record, node.spec.taints, node.status.node_info
