"""A leader of the role ``taints`` against fakes: pods without a node, images, and a clock that is moved by hand.

Only the API server, the configuration and the registry client are fakes; everything between is real.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from manual_clock import ManualClock
from placement_world import FakeApi, FakeInspector, FakeSecrets, pod

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.kube.controller import Controller
from polyarch.kube.errors import NotFound, TooManyRequests
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.objects import ObjectKey, Pod
from polyarch.taints import names
from polyarch.taints.events import PodEvent
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.pod_rules import PodFacts
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


class TaintApi(FakeApi):
    """The watch shows pods without a node, and those that the admission labelled."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[ObjectKey] = []
        self.budget = 1000
        """Evictions that budgets allow."""
        self.synced = True

    def tell(self, key: ObjectKey) -> None:
        found = self.pods.get(key)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        if found is None or (found["spec"].get("nodeName") and labels.get(names.GATED_LABEL) != names.CHANGED):
            self.store.pop(key, None)
        else:
            self.store[key] = msgspec.convert(found, Pod)
        self.on_event(key)

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None) -> None:
        if ObjectKey(namespace, pod) not in self.pods:
            raise NotFound(404, reason="NotFound", verb="create", resource="pods/eviction", name=pod)
        if not self.budget:
            raise TooManyRequests(429, reason="TooManyRequests")
        self.budget -= 1
        self.evicted.append(ObjectKey(namespace, pod))
        self.delete(ObjectKey(namespace, pod))

    def known(self) -> list[ObjectKey]:
        return list(self.store)

    def unscheduled(self) -> list[Pod] | None:
        return [each for each in self.store.values() if not each.spec.node_name] if self.synced else None

    def tolerations(self, key: ObjectKey) -> list[dict[str, str]]:
        return self.pods[key]["spec"].get("tolerations") or []

    def tolerated(self, key: ObjectKey) -> list[str]:
        """Architectures whose taint with our key the pod tolerates, in order."""
        return [each["value"] for each in self.tolerations(key) if each.get("key") == KEY]

    def has_gate(self, key: ObjectKey) -> bool:
        return any(gate["name"] == names.GATE for gate in self.pods[key]["spec"].get("schedulingGates") or ())

    def annotations(self, key: ObjectKey) -> dict[str, str]:
        return self.pods[key]["metadata"].get("annotations") or {}


class Heard:
    """The events that were posted, all of them Warnings."""

    def __init__(self) -> None:
        self.events: list[tuple[str, PodEvent]] = []

    def __call__(self, pod: Pod, event: PodEvent) -> None:
        self.events.append((pod.metadata.name, event))

    @property
    def reasons(self) -> list[str]:
        return [event.reason.value for _, event in self.events]


class World:
    """A replica of the role, leading or not; ``await world.run(seconds)`` lets time pass."""

    def __init__(self, *, leading: bool = True, api: TaintApi | None = None, **spec: Any) -> None:
        self.clock = ManualClock(start=0)
        self.facts = FakeFacts(**spec)
        self.api = api or TaintApi()
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.heard = Heard()
        self.leading = leading
        self.held: set[str] = set()
        """Names of pods that placement keeps."""
        self.registry_of_metrics = Metrics()
        self.metrics = TaintMetrics(self.registry_of_metrics)
        self.pods: WorkQueue[ObjectKey] = WorkQueue("pods", self.clock)
        self.templates: WorkQueue[ObjectKey] = WorkQueue("templates", self.clock)
        self.images = ImageWaiting(
            pods=self.pods,
            templates=self.templates,
            inspector=self.registry,
            secrets=self.secrets,
            metrics=LookupMetrics(self.registry_of_metrics),
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
            pods=self.api,
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
        self.api.on_event = self.pods.add
        passes = Controller("pods", self.controller.reconcile, queue=self.pods, workers=4, clock=self.clock)
        self._tasks = [
            asyncio.create_task(run())
            for run in (
                self.images.attempts.run,
                self.images.reads.run,
                self.images.look_for_new_secrets,
                passes.run,
            )
        ]

    async def run(self, seconds: float = 0.0) -> None:
        await self.clock.run(seconds)

    async def create(self, *images: str, gated: bool = False, age: float = 0.0, **options: Any) -> ObjectKey:
        """A pod appears without a node and is looked at; ``gated``: with our gate."""
        key = self.api.create(self.document(*images, gated=gated, age=age, **options))
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
        return sum(each == key for each, _ in self.api.patches)

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
