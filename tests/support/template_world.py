"""A leader that reconciles templates of DaemonSets, against fakes, and a clock that is moved by hand."""

import asyncio
from typing import Any

from fake_pods import FakeDaemonSets
from leader_world import FakeFacts
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.kube.controller import Controller
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.objects import DaemonSet, Node, ObjectKey
from polyarch.taints.daemonsets import TemplateController
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.pod_rules import TemplateFacts


class TemplateFactsOf(FakeFacts):
    """The configuration, for templates."""

    def about_template(self, daemon_set: DaemonSet, namespace: str) -> TemplateFacts | None:
        if self.settings is None:
            return None
        return TemplateFacts(
            daemon_set=daemon_set,
            namespace=namespace,
            settings=self.settings,
            namespace_labels=self.labels.get(namespace, {}),
            existing=self.existing,
        )


class TemplateWorld:
    """A replica of the role, leading or not."""

    def __init__(self, *, leading: bool = True, cluster: FakeDaemonSets | None = None, **spec: Any) -> None:
        self.clock = ManualClock(start=0)
        self.facts = TemplateFactsOf(**spec)
        self.cluster = cluster or FakeDaemonSets()
        self.api = self.cluster.api
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.nodes: list[Node] = []
        self.events: list[tuple[str, str, str]] = []
        self.leading = leading
        metrics = Metrics()
        self.queue: WorkQueue[ObjectKey] = WorkQueue("templates", self.clock)
        self.images = ImageWaiting(
            pods=WorkQueue("pods", self.clock),
            templates=self.queue,
            inspector=self.registry,
            secrets=self.secrets,
            metrics=LookupMetrics(metrics),
            is_leading=lambda: self.leading,
            clock=self.clock,
        )
        self.controller = TemplateController(
            daemon_sets=self.cluster,
            nodes=lambda: self.nodes,
            facts=self.facts,
            images=self.images,
            client=self.api,
            post=self._post,
            note_write=lambda key, version: None,
            enqueue=self.queue.add,
            clock=self.clock,
            metrics=TaintMetrics(metrics),
            is_leading=lambda: self.leading,
            uniform=lambda: 0.5,
        )
        self.cluster.on_event = self.queue.add
        passes = Controller("templates", self.controller.reconcile, queue=self.queue, workers=2, clock=self.clock)
        self._tasks = [
            asyncio.create_task(run()) for run in (self.images.attempts.run, self.images.reads.run, passes.run)
        ]

    def _post(self, daemon_set: DaemonSet, *, reason: str, note: str, action: str) -> None:
        self.events.append((daemon_set.metadata.name, reason, note))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    async def run(self, seconds: float = 0.0) -> None:
        await self.clock.run(seconds)

    async def lead(self) -> None:
        """The Lease is won."""
        self.leading = True
        await self.controller.started_leading()
        await self.run()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.secrets.aclose()
