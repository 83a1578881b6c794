"""The controller of nodes: it decides about every node, and writes those whose turn it is.

A change of a node is decided at once, which costs no request: the census counts it, and a node that has to be written
becomes due. ``rollout`` gives turns, in its order and at its pace; only then :meth:`NodeController.reconcile` decides
once more and writes. A write that fails keeps its turn and is repeated with backoff, so no node holds up the others.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.controller import NoRequeue, Result
from polyarch.kube.errors import ApiError, Conflict, Forbidden, Invalid, KubernetesError, NotFound
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import NODES, Resource
from polyarch.kube.store import ObjectChange, Store
from polyarch.objects import Node, ObjectKey, PartialObjectMetadata
from polyarch.taints import events
from polyarch.taints.events import NodeEvent
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.names import MANAGED_TAINTS_ANNOTATION
from polyarch.taints.node_rules import Kind, NodeDecision, decide_node
from polyarch.taints.patch import node_patch
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

# -- the census: how many nodes of each architecture there are, and what became of their taints ------------------------
# It is kept up to date with every decision, so that a status costs no walk over all nodes.


class NodeTaintState(StrEnum):
    """What one node counts as."""

    TAINTED = "tainted"
    WAITING = "waiting"
    UNTAINTED = "untainted"
    """Managed, and not to be tainted: a primary architecture."""
    SKIPPED = "skipped"
    """Not managed."""
    UNKNOWN = "unknown"
    """Its architecture is not known."""


MANAGED = frozenset({NodeTaintState.TAINTED, NodeTaintState.WAITING, NodeTaintState.UNTAINTED})


class IndexedNode(msgspec.Struct, frozen=True, gc=False):
    """What is kept of the decision about one node."""

    architecture: str
    state: NodeTaintState
    marked: bool
    """It carries the desired taint, or one that is ours."""


class TaintedNodeIndex:
    """The nodes by name, and their numbers."""

    def __init__(self) -> None:
        self._nodes: dict[str, IndexedNode] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._marked: dict[str, None] = {}

    def put(self, name: str, decision: NodeDecision) -> None:
        """The node as it was last decided about."""
        seen = IndexedNode(decision.architecture, _state(decision), decision.marked)
        if self._nodes.get(name) == seen:
            return
        self.drop(name)
        self._nodes[name] = seen
        self._counts[seen.architecture, seen.state] += 1
        if seen.marked:
            self._marked[name] = None

    def drop(self, name: str) -> None:
        """The node is gone."""
        seen = self._nodes.pop(name, None)
        if seen is None:
            return
        self._marked.pop(name, None)
        place = seen.architecture, seen.state
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]

    @property
    def architectures(self) -> list[str]:
        """Known architectures of all nodes, sorted."""
        return sorted({architecture for architecture, _ in self._counts if architecture})

    def number(self, *states: NodeTaintState, architecture: str | None = None) -> int:
        """Nodes in these states, of one architecture or of all."""
        return sum(
            count
            for (found, state), count in self._counts.items()
            if state in states and (architecture is None or found == architecture)
        )

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Numbers by architecture and state, as metrics show them."""
        return {(architecture or "unknown", str(state)): count for (architecture, state), count in self._counts.items()}

    @property
    def marked(self) -> int:
        """Number of nodes that carry the desired taint, or one that is ours."""
        return len(self._marked)

    def of(self, architectures: frozenset[str]) -> Iterator[str]:
        """The names of the nodes of these architectures."""
        return (name for name, seen in list(self._nodes.items()) if seen.architecture in architectures)


def _state(decision: NodeDecision) -> NodeTaintState:
    if not decision.architecture:
        return NodeTaintState.UNKNOWN
    if not decision.managed:
        return NodeTaintState.SKIPPED
    if decision.waiting:
        return NodeTaintState.WAITING
    return NodeTaintState.TAINTED if decision.carried else NodeTaintState.UNTAINTED


# -- nodes that are due, in the order of their turns -------------------------------------------------------------------
# What a single event asks for comes first, in the order of the events; then the nodes of a rollout, architecture by
# architecture, in the order of their names.


LOSING: Final = ""
"""In the place of an architecture: nodes that only lose taints. They come first, since pods may have to find a node
among them once others are tainted."""


class NodeWriteQueue:
    """Names of nodes, each once. A node that waits in the rollout stays there, whatever happens to it meanwhile."""

    def __init__(self) -> None:
        self._at_once: dict[str, None] = {}
        self._rollout: dict[str, str] = {}
        """Node → architecture."""
        self._names: dict[str, list[str]] = {}
        """Architecture → a heap of names; those that are no longer due are passed over."""

    def put(self, name: str, architecture: str, *, at_once: bool) -> None:
        """The node has to be written; nothing changes if that is known, but for its architecture."""
        if name in self._at_once or self._rollout.get(name) == architecture:
            return
        if at_once and name not in self._rollout:
            self._at_once[name] = None
            return
        self._rollout[name] = architecture
        heapq.heappush(self._names.setdefault(architecture, []), name)

    def drop(self, name: str) -> None:
        """Nothing is to be written."""
        self._at_once.pop(name, None)
        self._rollout.pop(name, None)
        if not self._rollout:
            self._names.clear()

    def take(self, order: Iterable[str]) -> str | None:
        """The next node. ``order``: architectures; those that are not in it come last, by name."""
        if self._at_once:
            name = next(iter(self._at_once))
            del self._at_once[name]
            return name
        known = [LOSING, *order]
        for architecture in (*known, *sorted(self._names.keys() - set(known))):
            if (following := self._next(architecture)) is not None:
                return following
        return None

    @property
    def has_at_once(self) -> bool:
        return bool(self._at_once)

    def __len__(self) -> int:
        return len(self._at_once) + len(self._rollout)

    def _next(self, architecture: str) -> str | None:
        names = self._names.get(architecture, [])
        while names:
            name = heapq.heappop(names)
            if self._rollout.get(name) == architecture:
                del self._rollout[name]
                return name
        self._names.pop(architecture, None)
        return None


# -- the pace of writes ------------------------------------------------------------------------------------------------
# ``nodes.perMinute`` is a ceiling for every write, whatever it is for. Writes of a rollout stand at equal distances, so
# that trouble shows after few nodes. What a single event asks for (a new node, a taint that somebody changed) goes at
# once, as long as the minute before had fewer writes than allowed. A process does not know what the one before it
# wrote: in its first minute there is no going at once, and the first write comes after one whole distance.

MINUTE: Final = 60.0


class NodeRateLimiter:
    """Turns to write; ``per_minute`` may be changed at any time."""

    def __init__(self, clock: Clock, per_minute: int = 60) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._taken: deque[float] = deque()
        self._begun_at = self._turn = clock.monotonic()

    def begin(self) -> None:
        """What was written before now is not known."""
        self._begun_at = self._turn = self._clock.monotonic()

    def rest(self, *, at_once: bool = False) -> float:
        """Seconds until the next turn; 0 if it is now. ``at_once``: for what a single event asks for."""
        now = self._clock.monotonic()
        while self._taken and self._taken[0] <= now - MINUTE:
            self._taken.popleft()
        full = len(self._taken) - self.per_minute
        room_at = self._taken[full] + MINUTE if full >= 0 else now
        if at_once and now - self._begun_at >= MINUTE:
            return max(0.0, room_at - now)
        return max(0.0, room_at - now, self._turn + self._distance - now)

    def take(self) -> None:
        """Takes a turn. A turn that came a little late does not make all later ones late."""
        now = self._clock.monotonic()
        self._taken.append(now)
        self._turn = min(now, max(self._turn + self._distance, now - self._distance))

    @property
    def _distance(self) -> float:
        return MINUTE / self.per_minute


# -- the write of one node ---------------------------------------------------------------------------------------------
# One PATCH, decided again whenever somebody else was faster.

MAX_RETRIES: Final = 5
"""How often a node is read and decided again at once."""


class WritesNodes(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, type: type[Node]) -> Node: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, dry_run: bool = False
    ) -> PartialObjectMetadata: ...


class ConflictRetriesExceeded(KubernetesError):  # noqa: N818 - what happened
    """The node changed between every read and write; it is tried again later."""


class NodeWrite(msgspec.Struct, frozen=True):
    """How it ended: the node as it was decided about, and the decision."""

    node: Node | None
    """None: it is gone."""
    decision: NodeDecision | None = None
    resource_version: str = ""
    """After the write; empty: there was nothing to write."""

    @property
    def is_written(self) -> bool:
        return bool(self.resource_version)


async def write_node(
    client: WritesNodes,
    node: Node,
    decide: Callable[[Node], NodeDecision],
    *,
    dry_run: bool = False,
    changed: Callable[[], Any] = lambda: None,
) -> NodeWrite:
    """Decides about the node and writes it. ``changed`` is called when somebody else's write came in between.

    Raises :class:`ConflictRetriesExceeded` after six tries, and ``KubernetesError`` for what the API server rejects.
    """
    name = node.metadata.name
    for attempt in range(MAX_RETRIES + 1):
        decision = decide(node)
        operations = node_patch(node, decision)
        if not operations:
            return NodeWrite(node, decision)
        try:
            written = await client.patch(NODES, name, JsonPatch(operations), dry_run=dry_run)
        except NotFound:
            return NodeWrite(None)
        except Conflict:
            changed()
        except Invalid as error:
            if not error.is_failed_test:
                raise
            changed()
        else:
            return NodeWrite(node, decision, written.metadata.resource_version)
        if attempt == MAX_RETRIES:
            break
        try:
            node = await client.get(NODES, name, type=Node)
        except NotFound:
            return NodeWrite(None)
    raise ConflictRetriesExceeded(
        f"node {name} changed between every read and write, {MAX_RETRIES + 1} times; it is tried again later"
    )


# -- the controller ----------------------------------------------------------------------------------------------------

TURN: Final = 200
"""Nodes that are decided before other work of the event loop gets its turn."""

Posts = Callable[[Node, NodeEvent], None]


class Watched(Protocol):
    """The part of an informer of nodes that is needed here."""

    store: Store[Node]

    @property
    def writes(self) -> "Writes": ...


class Writes(Protocol):
    """Our own writes that the cache does not show yet."""

    def is_stale(self, key: ObjectKey) -> bool: ...

    def note_write(self, key: ObjectKey, resource_version: str) -> None: ...


class NodeController:
    """Every replica decides, so that a standby takes over at once; only the leader writes and posts.

    ``enqueue`` hands a node to :meth:`reconcile`; ``wake`` tells the rollout that something changed.
    """

    def __init__(
        self,
        *,
        nodes: Watched,
        facts: TaintFacts,
        client: WritesNodes,
        post: Posts,
        enqueue: Callable[[ObjectKey], None],
        wake: Callable[[], None],
        is_leading: Callable[[], bool],
        clock: Clock,
        metrics: TaintMetrics,
    ) -> None:
        self.census = TaintedNodeIndex()
        self.due = NodeWriteQueue()
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

    def seen(self, change: ObjectChange[Node]) -> None:
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
            node = self._nodes.store.get(ObjectKey("", name))
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
        self._enqueue(ObjectKey("", name))
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

    async def reconcile(self, key: ObjectKey) -> Result:
        """Writes one node that has its turn."""
        name = key.name
        node = self._nodes.store.get(key)
        if node is None or self._facts.settings is None:
            self._done(name)
            return NoRequeue()
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
        return NoRequeue()

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
            group = LOSING if decision.kind is Kind.REMOVE else decision.architecture
            self.due.put(name, group, at_once=at_once)

    def _decision(self, node: Node) -> NodeDecision:
        settings = self._facts.settings
        if settings is None:  # without a configuration nothing is ours to judge
            settings = _NOTHING
        return decide_node(node, settings, released=self.released)

    def _wrote(self, node: Node, decision: NodeDecision) -> None:
        name = node.metadata.name
        event = events.written(node, decision)
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
        self._metrics.wrote("node", "changed" if isinstance(error, ConflictRetriesExceeded) else result)
        if refused and name not in self._unwritten and isinstance(error, ApiError):
            self._post(node, events.refused(self._decision(node), error.message or error.reason))
        self._unwritten[name] = str(error)

    def _done(self, name: str) -> None:
        self._in_hand.discard(name)
        self._unwritten.pop(name, None)
        self._wake()

    def _warn(self, node: Node, decision: NodeDecision) -> None:
        """Posts what somebody has to look at, once as long as it lasts."""
        if self._facts.settings is None:
            return
        found = events.warnings(decision)
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
