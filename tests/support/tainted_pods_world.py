"""A leader of the role ``taints`` against fakes: pods, templates of DaemonSets, images, and a clock moved by hand.

Only the API server, the configuration and the registry client are fakes; everything between is real.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from fake_pods import FakeDaemonSets, FakePods
from fake_recorder import EventLog
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets, pod

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.controller import Controller
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import DaemonSet, Node, ObjectKey, Pod
from polyarch.taints import names
from polyarch.taints.bound_pods import BoundPods
from polyarch.taints.daemonsets import TemplateController
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.pod_rules import PodFacts, TemplateFacts
from polyarch.taints.pods import ImageChangeHandler, PodController, PodWrites
from polyarch.taints.settings import TaintSettings

KEY = "supported-arch"


class FakeFacts:
    """The configuration, as ``TaintFacts`` gives it."""

    def __init__(self, **spec: Any) -> None:
        self.settings: TaintSettings | None = settings_of(**spec)
        self.is_ready = True
        self.existing = frozenset({"amd64", "arm64"})
        self.labels: dict[str, dict[str, str]] = {}
        self._handlers: list[Callable[[str | None], None]] = []

    def about(self, pod: Pod, namespace: str, *, stored: bool) -> PodFacts | None:
        if self.settings is None:
            return None
        return PodFacts(
            pod=pod,
            namespace=namespace,
            settings=self.settings,
            namespace_labels=self.labels.get(namespace, {}),
            existing=self.existing,
            stored=stored,
            is_own=namespace == DEFAULT_NAMESPACE,
        )

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

    def on_change(self, handler: Callable[[str | None], None]) -> None:
        self._handlers.append(handler)

    def configure(self, **spec: Any) -> None:
        self.become(settings_of(**spec))

    def become(self, settings: TaintSettings | None) -> None:
        """None: the object is deleted."""
        self.settings = settings
        for handler in self._handlers:
            handler(None)


def settings_of(**spec: Any) -> TaintSettings:
    """As the object's ``spec`` has them."""
    settings = TaintSettings.of(spec)
    assert not settings.problems, settings.problems
    return settings


def is_watched(pod: Pod) -> bool:
    """The watch shows pods without a node, and those that the admission labelled."""
    return not pod.spec.node_name or (pod.metadata.labels or {}).get(names.GATED_LABEL) == names.CHANGED


class TaintedPodsWorld:
    """A replica of the role, leading or not; ``await world.run(seconds)`` lets time pass."""

    def __init__(
        self,
        *,
        leading: bool = True,
        cluster: FakePods | None = None,
        daemon_sets: FakeDaemonSets | None = None,
        **spec: Any,
    ) -> None:
        self.clock = ManualClock(start=0)
        self.facts = FakeFacts(**spec)
        self.cluster = cluster or FakePods(daemon_sets.api if daemon_sets else None, shows=is_watched)
        self.api = self.cluster.api
        self.daemon_sets = daemon_sets or FakeDaemonSets(self.api)
        self.nodes: list[Node] = []
        self.events: list[tuple[str, str, str]] = []
        """Of DaemonSets; those of pods are ``heard``."""
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.heard = EventLog()
        self.leading = leading
        self.held: set[str] = set()
        """Names of pods that placement keeps."""
        self.registry_of_metrics = Metrics()
        self.metrics = TaintMetrics(self.registry_of_metrics)
        self.pods: WorkQueue[ObjectKey] = WorkQueue("pods", self.clock)
        self.templates: WorkQueue[ObjectKey] = WorkQueue("templates", self.clock)
        lookup_metrics = LookupMetrics(self.registry_of_metrics)
        self.images = ImageWaiting(
            pods=self.pods,
            templates=self.templates,
            inspector=self.registry,
            secrets=self.secrets,
            metrics=lookup_metrics,
            is_leading=lambda: self.leading,
            clock=self.clock,
        )
        writes = PodWrites(
            self.api,
            post=self.heard,
            note_write=lambda key, version: None,
            wake=self.pods.add,
            is_connected=lambda: True,
            clock=self.clock,
            metrics=self.metrics,
            uniform=lambda: 0.5,
        )
        self.controller = PodController(
            pods=self.cluster,
            facts=self.facts,
            images=self.images,
            writes=writes,
            changed=ImageChangeHandler(
                self.api,
                images=self.images,
                writes=writes,
                post=self.heard,
                is_leading=lambda: self.leading,
                metrics=self.metrics,
            ),
            enqueue=self.pods.add,
            clock=self.clock,
            metrics=self.metrics,
            is_leading=lambda: self.leading,
            is_held=lambda pod: pod.metadata.name in self.held,
            uniform=lambda: 0.5,
        )
        self.template_controller = TemplateController(
            daemon_sets=self.daemon_sets,
            nodes=lambda: self.nodes,
            facts=self.facts,
            images=self.images,
            client=self.api,
            post=self._post,
            note_write=lambda key, version: None,
            enqueue=self.templates.add,
            clock=self.clock,
            metrics=self.metrics,
            is_leading=lambda: self.leading,
            uniform=lambda: 0.5,
        )
        self.bound = BoundPods(
            self.api,
            facts=self.facts,
            images=LowPriorityLookups(self.registry, self.secrets, self.clock, lookup_metrics),
            clock=self.clock,
            metrics=self.metrics,
        )
        self.cluster.on_event = self.pods.add
        self.daemon_sets.on_event = self.templates.add
        reconcile = self.template_controller.reconcile
        self._tasks = [
            asyncio.create_task(run())
            for run in (
                self.images.attempts.run,
                self.images.reads.run,
                self.images.look_for_new_secrets,
                Controller("pods", self.controller.reconcile, queue=self.pods, workers=4, clock=self.clock).run,
                Controller("templates", reconcile, queue=self.templates, workers=2, clock=self.clock).run,
            )
        ]

    def _post(self, daemon_set: DaemonSet, *, reason: str, note: str, action: str) -> None:
        self.events.append((daemon_set.metadata.name, reason, note))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    async def look_at_bound_pods(self) -> None:
        self._tasks.append(asyncio.create_task(self.bound.run()))
        await self.run()

    async def run(self, seconds: float = 0.0) -> None:
        await self.clock.run(seconds)

    async def create(self, *images: str, gated: bool = False, age: float = 0.0, **options: Any) -> ObjectKey:
        """A pod appears without a node and is looked at; ``gated``: with our gate."""
        key = self.cluster.create(self.document(*images, gated=gated, age=age, **options))
        await self.run()
        return key

    def document(self, *images: str, gated: bool = False, age: float = 0.0, **options: Any) -> dict[str, Any]:
        if gated:
            options["schedulingGates"] = [*options.get("schedulingGates", ()), {"name": names.GATE}]
            options["labels"] = {**options.get("labels", {}), names.GATED_LABEL: names.GATED}
        document = pod(*images, **options)
        created = self.clock.now().timestamp() - age
        moment = type(self.clock.now()).fromtimestamp(created, tz=self.clock.now().tzinfo)
        document["metadata"]["creationTimestamp"] = moment.isoformat().replace("+00:00", "Z")
        return document

    def patches(self, key: ObjectKey) -> int:
        return self.cluster.patched.count(key)

    async def lead(self) -> None:
        """The Lease is won."""
        self.leading = True
        await self.controller.started_leading()
        await self.template_controller.started_leading()
        await self.run()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.secrets.aclose()
