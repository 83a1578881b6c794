"""Taints nodes where no controller does: by architecture, in batches, and with an eye on the pods (TN-026).

The order, the pace and what stops it are those of the controller. Between two batches, and for a while after the last
node of an architecture, pods are listed: if some appear that only the new taint keeps pending, nothing else is tainted.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from polyarch.kube.resources import NAMESPACES, NODES, PODS
from polyarch.objects import Node, PartialObjectMetadata, Pod
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.decide.node_taints import Kind, NodeDecision, decide_node
from polyarch.taints.decide.rollout import SETTLED, WINDOW, PendingWatch, in_order
from polyarch.taints.nodes.pace import Pace
from polyarch.taints.plan.pending import Pending, pending_because_of_taints
from polyarch.taints.result.node_patch import node_patch
from polyarch.taints.steps.removal import WITHOUT_NODE
from polyarch.taints.steps.writing import Outcome, Proposal, Writer

Register = Callable[[frozenset[str]], Awaitable[Outcome]]

BATCH: Final = 5
LOOK_EVERY: Final = 1.0


class Tainted(msgspec.Struct, frozen=True):
    """How it ended."""

    outcome: Outcome = Outcome()
    stopped_at: str = ""
    """The architecture whose taint made pods pending; empty: none did."""
    pods: tuple[str, ...] = ()
    """Those pods."""


class Tainting:
    """One run over all nodes."""

    def __init__(
        self,
        writer: Writer,
        settings: TaintSettings,
        *,
        batch: int = BATCH,
        watch: float = WINDOW,
        register: Register | None = None,
        started: Callable[[str, int], None] = lambda architecture, nodes: None,
    ) -> None:
        """``watch``: seconds in which pods are looked for after the last node of an architecture. ``register`` has new
        nodes of these architectures tainted when they join. ``started`` is told of an architecture whose nodes are
        tainted now, and how many these are."""
        self._writer = writer
        self._settings = settings
        self._batch = batch
        self._window = watch
        self._register = register
        self._started = started
        self._pace = Pace(writer.clock, settings.per_minute)
        self._labels: Mapping[str, Mapping[str, str]] = {}

    async def taint(self) -> Tainted:
        """Taints every node that lacks its taint, and corrects and removes what is ours and wrong."""
        nodes = (await self._writer.api.list(NODES, type=Node)).items
        by_architecture: dict[str, list[Node]] = {}
        for node in nodes:
            decision = self._decision(node)
            if decision.kind is not Kind.NONE:
                by_architecture.setdefault(decision.architecture, []).append(node)
        numbers = {each: sum(self._decision(node).architecture == each for node in nodes) for each in by_architecture}
        outcomes: list[Outcome] = []
        released = {self._decision(node).architecture for node in nodes if self._decision(node).carried}
        for architecture in in_order(numbers, self._settings.primary):
            found = sorted(by_architecture[architecture], key=lambda node: node.metadata.name)
            self._started(architecture, len(found))
            released.add(architecture)
            if self._register is not None:
                outcomes.append(await self._register(frozenset(released)))
            outcome, pods = await self._architecture(architecture, found)
            outcomes.append(outcome)
            if pods:
                return Tainted(Outcome.of(outcomes), architecture, pods)
        return Tainted(Outcome.of(outcomes))

    async def _architecture(self, architecture: str, nodes: list[Node]) -> tuple[Outcome, tuple[str, ...]]:
        """The outcome, and the pods that became pending."""
        clock, outcomes = self._writer.clock, []
        watch = await self._looked(PendingWatch(), architecture)
        for at in range(0, len(nodes), self._batch):
            for node in nodes[at : at + self._batch]:
                if not self._writer.dry_run:
                    await clock.sleep(self._pace.rest())
                    self._pace.take()
                outcomes.append(await self._writer.patch(NODES, node, self._proposal))
            watch = watch.tainted(clock.monotonic())
            watch = await self._settled(await self._looked(watch, architecture), architecture)
            if watch.stopped:
                return Outcome.of(outcomes), watch.names
        until = clock.monotonic() + self._window
        while not self._writer.dry_run and clock.monotonic() < until:
            await clock.sleep(LOOK_EVERY)
            watch = await self._settled(await self._looked(watch, architecture), architecture)
            if watch.stopped:
                return Outcome.of(outcomes), watch.names
        return Outcome.of(outcomes), ()

    async def _settled(self, watch: PendingWatch, architecture: str) -> PendingWatch:
        """Looks until the pods that are pending count, or are pending no more."""
        until = self._writer.clock.monotonic() + SETTLED + LOOK_EVERY
        while watch.since and not watch.stopped and self._writer.clock.monotonic() < until:
            await self._writer.clock.sleep(LOOK_EVERY)
            watch = await self._looked(watch, architecture)
        return watch

    async def _looked(self, watch: PendingWatch, architecture: str) -> PendingWatch:
        pending = await self._pending()
        return watch.looked(self._writer.clock.monotonic(), pending.get(architecture, {}))

    async def _pending(self) -> Pending:
        """Costs one small list while no pod waits for a node."""
        api = self._writer.api
        pods = (await api.list(PODS, type=Pod, field_selector=WITHOUT_NODE)).items
        if not pods:
            return {}
        nodes = (await api.list(NODES, type=Node)).items
        namespaces = (await api.list(NAMESPACES, type=PartialObjectMetadata)).items
        labels = {each.metadata.name: each.metadata.labels or {} for each in namespaces}
        return pending_because_of_taints(pods, nodes, self._settings, labels.get)

    def _decision(self, node: Node) -> NodeDecision:
        return decide_node(node, self._settings)

    def _proposal(self, node: Node) -> Proposal:
        decision = self._decision(node)
        what = f"gets {decision.desired}" if decision.desired is not None else "loses our taint"
        return Proposal(node_patch(node, decision), what)
