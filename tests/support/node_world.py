"""A cluster of nodes in memory with the controller that taints them, on a clock that tests move."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
from fake_api import FakeApi
from manual_clock import ManualClock
from taint_nodes import Json, document, node, taints_of

from polyarch.kube.controller import Controller
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import NODES
from polyarch.kube.store import Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone
from polyarch.objects import Node, ObjectKey, ObjectMeta
from polyarch.taints.api import ArchitectureTaints, ArchitectureTaintsStatus
from polyarch.taints.events import NodeEvent
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.node_rules import RolloutPreconditions
from polyarch.taints.nodes import NodeController, NodeRateLimiter
from polyarch.taints.rollout import TaintRollout
from polyarch.taints.settings import TaintSettings
from polyarch.taints.status import NodeStatusPart

KEY = ObjectKey("", "cluster")


class Facts:
    """The configuration, as the tests set it."""

    def __init__(self, settings: TaintSettings | None) -> None:
        self.settings = settings
        self.configuration: ArchitectureTaints | None = ArchitectureTaints(
            metadata=ObjectMeta(name="cluster", uid="u", generation=1)
        )

    def changed(self, *, generation: int = 1, annotations: dict[str, str] | None = None, **status: Any) -> None:
        metadata = ObjectMeta(name="cluster", uid="u", generation=generation, annotations=annotations)
        self.configuration = ArchitectureTaints(metadata=metadata, status=ArchitectureTaintsStatus(**status))


class NodeWorld:
    """``safety`` and ``pending`` are what the other rooms would say; ``posted`` are the events."""

    def __init__(self, *nodes: Json, settings: TaintSettings | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.api = FakeApi()
        self.facts = Facts(settings or TaintSettings(**options))
        self.store: Store[Node] = Store()
        self.writes: WriteExpectations[Node] = WriteExpectations(self.store, clock=self.clock)
        self.metrics = Metrics()
        self.leading = True
        self.safety: dict[str, RolloutPreconditions] = {}
        self.pending: dict[str, dict[str, str]] = {}
        self.posted: list[tuple[str, NodeEvent]] = []
        self.asked: list[str] = []
        """Architectures whose safety was asked about."""
        self.released: list[frozenset[str]] = []
        self.written_at: list[float] = []
        self.order: list[str] = []
        self.deliver: Callable[[str], None] = self.show
        self._tasks: list[asyncio.Task[None]] = []
        self.queue: WorkQueue[ObjectKey] = WorkQueue("nodes", self.clock)
        self.passes: WorkQueue[ObjectKey] = WorkQueue("rollout", self.clock)
        taint_metrics = TaintMetrics(self.metrics)
        self.controller = NodeController(
            nodes=self,
            facts=self.facts,
            client=self,
            post=lambda seen, event: self.posted.append((seen.metadata.name, event)),
            enqueue=self.queue.add,
            wake=lambda: self.passes.add(KEY),
            is_leading=lambda: self.leading,
            clock=self.clock,
            metrics=taint_metrics,
        )
        self.rollout = TaintRollout(
            nodes=self.controller,
            facts=self.facts,
            safety=SimpleNamespace(of=self._safety_of),
            pending=lambda settings: self.pending,
            pace=NodeRateLimiter(self.clock),
            released=lambda: self.released.append(self.controller.released),
            clock=self.clock,
            metrics=taint_metrics,
        )
        self.registration = SimpleNamespace(is_served=True, problem="")
        self.admission = ""
        self.report = NodeStatusPart(
            facts=self.facts,
            nodes=self.controller,
            rollout=self.rollout,
            registration=self.registration,
            admission=lambda: self.admission,
        )
        self._workers = (
            Controller("nodes", self.controller.reconcile, queue=self.queue, clock=self.clock, writes=self.writes),
            Controller("rollout", self.rollout.reconcile, queue=self.passes, workers=1, clock=self.clock),
        )
        for each in nodes:
            self.api.put(NODES, each)
        self._list()

    # -- the client ----------------------------------------------------------------------------------------------------

    async def get(self, *arguments: Any, **options: Any) -> Any:
        return await self.api.get(*arguments, **options)

    async def patch(self, resource: Any, name: str, patch: Any, *, dry_run: bool = False) -> Any:
        written = await self.api.patch(resource, name, patch)
        self.written_at.append(self.clock.monotonic())
        self.order.append(name)
        asyncio.get_running_loop().call_soon(self.deliver, name)
        return written

    def _safety_of(self, architecture: str) -> RolloutPreconditions:
        self.asked.append(architecture)
        return self.safety.get(architecture, RolloutPreconditions())

    # -- the watch -----------------------------------------------------------------------------------------------------

    def _list(self) -> None:
        found = [msgspec.convert(each, Node) for each in self.api.objects.values()]
        for output in (Init(), *(InitApply(each) for each in found), InitDone()):
            self._take(output)

    def show(self, name: str) -> None:
        """The watch tells of the node as it is stored."""
        self._take(Apply(node(self.api.read(NODES, name))))

    def _take(self, output: Any) -> None:
        for change in self.store.take(output):
            self.writes.observe(change)
            self.controller.seen(change)

    # -- what happens in the cluster -----------------------------------------------------------------------------------

    def add(self, name: str, *arguments: Any, **options: Any) -> None:
        self.api.put(NODES, document(name, *arguments, **options))
        self.show(name)

    def edit(self, name: str, change: Callable[[Json], object], *, unseen: bool = False) -> None:
        """Somebody else writes the node; ``unseen``: the watch is late."""
        changed = self.api.read(NODES, name)
        change(changed)
        self.api.put(NODES, changed)
        if not unseen:
            self.show(name)

    def remove(self, name: str, *, unseen: bool = False) -> None:
        version = self.api.read(NODES, name)["metadata"]["resourceVersion"]
        self.api.remove(NODES, name)
        if not unseen:
            self._take(Delete(ObjectKey("", name), str(int(version) + 1)))

    def configure(self, settings: TaintSettings | None) -> None:
        self.facts.settings = settings
        self.rollout.settings_changed()
        self.passes.add(KEY)

    # -- running -------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self.rollout.started_leading()
        self.passes.add(KEY)
        self._tasks = [asyncio.create_task(each.run()) for each in self._workers]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, seconds: float) -> None:
        await self.clock.run(seconds)

    # -- what is there -------------------------------------------------------------------------------------------------

    def taints(self) -> Mapping[str, list[str]]:
        return {name: taints_of(each) for (_, _, name), each in sorted(self.api.objects.items(), key=lambda x: x[0][2])}

    def reasons(self) -> list[tuple[str, str]]:
        return [(name, str(event.reason)) for name, event in self.posted]
