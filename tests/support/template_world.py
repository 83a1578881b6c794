"""A leader that reconciles templates of DaemonSets, against fakes, and a clock that is moved by hand."""

import asyncio
from typing import Any

import msgspec
from leader_world import FakeFacts
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.kube.controller import Controller
from polyarch.kube.errors import NO_FIT, Invalid
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import JsonPatch, TestFailed, apply_patch
from polyarch.kube.queue import WorkQueue
from polyarch.kube.requests import ListOptions
from polyarch.kube.watch import Page
from polyarch.objects import DaemonSet, Node, ObjectKey, PartialObjectMetadata, Pod
from polyarch.taints import names
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


class DaemonSetApi:
    """DaemonSets as the API server and their controller keep them: a change of the template begins a rollout, which
    goes on when the test says so."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, dict[str, Any]] = {}
        self.patched: list[ObjectKey] = []
        self.refuse: Exception | None = None
        self.on_event = lambda key: None
        self.pods: list[Pod] = []
        self.lists = 0
        self._version = 100

    async def list_page(
        self, resource: Any, selection: ListOptions, *, type: Any, continue_token: str = "", limit: int = 500
    ) -> Page[Pod]:
        self.lists += 1
        labels = dict(pair.split("=") for pair in selection.label_selector.split(","))
        found = [each for each in self.pods if (each.metadata.labels or {}).items() >= labels.items()]
        return Page(found[:limit], "1")

    def create(self, name: str, *images: str, namespace: str = "team", pods: int = 3, **options: Any) -> ObjectKey:
        key = ObjectKey(namespace, name)
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1}
        metadata |= {"annotations": options.pop("annotations")} if "annotations" in options else {}
        strategy = options.pop("strategy", "RollingUpdate")
        containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
        self.objects[key] = {
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {}, "spec": {"containers": containers, **options}},
                "updateStrategy": {"type": strategy},
            },
            "status": {"observedGeneration": 1, "desiredNumberScheduled": pods, "updatedNumberScheduled": pods},
        }
        self._changed(key)
        return key

    def advance(self, key: ObjectKey, *, updated: int = 3, unavailable: int = 0) -> None:
        """The DaemonSet controller replaces pods."""
        found = self.objects[key]
        status = {
            **found["status"],
            "observedGeneration": found["metadata"]["generation"],
            "updatedNumberScheduled": updated,
            "numberUnavailable": unavailable,
        }
        self.objects[key] = {**found, "status": status}
        self._changed(key)

    def annotate(self, key: ObjectKey, **annotations: str) -> None:
        found = self.objects[key]
        metadata = {**found["metadata"], "annotations": {**found["metadata"].get("annotations", {}), **annotations}}
        self.objects[key] = {**found, "metadata": metadata}
        self._changed(key)

    def sync(self, key: ObjectKey) -> None:
        """A tool applies the original manifest again, which has no tolerations; all pods are replaced at once."""
        found = self.objects[key]
        spec, generation = found["spec"], found["metadata"]["generation"] + 1
        pod = {name: value for name, value in spec["template"]["spec"].items() if name != "tolerations"}
        self.objects[key] = {
            **found,
            "metadata": {**found["metadata"], "generation": generation},
            "spec": {**spec, "template": {**spec["template"], "spec": pod}},
        }
        self.advance(key)

    def begin_to_delete(self, key: ObjectKey) -> None:
        """Finalizers keep it, such as that of a deletion in the foreground."""
        found = self.objects[key]
        metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.objects[key] = {**found, "metadata": metadata}
        self._changed(key)

    def delete(self, key: ObjectKey) -> None:
        del self.objects[key]
        self.on_event(key)

    async def patch(self, resource: Any, name: str, patch: JsonPatch, *, namespace: str = "") -> PartialObjectMetadata:
        key = ObjectKey(namespace, name)
        self.patched.append(key)
        if self.refuse is not None:
            raise self.refuse
        before = self.objects[key]
        try:
            after = apply_patch(before, [msgspec.convert(each, type(each)) for each in patch.operations])
        except TestFailed:
            raise Invalid(422, reason="Invalid", message=NO_FIT) from None
        if after["spec"] != before["spec"]:
            generation = before["metadata"]["generation"] + 1
            after = {**after, "metadata": {**after["metadata"], "generation": generation}}
            status = {**after["status"], "updatedNumberScheduled": 0}
            after = {**after, "status": status}
        self.objects[key] = after
        self._changed(key)
        return msgspec.convert({"metadata": self.objects[key]["metadata"]}, PartialObjectMetadata)

    def _changed(self, key: ObjectKey) -> None:
        self._version += 1
        found = self.objects[key]
        self.objects[key] = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}
        self.on_event(key)

    # the view of the controller
    def get(self, key: ObjectKey) -> DaemonSet | None:
        found = self.objects.get(key)
        return msgspec.convert(found, DaemonSet) if found is not None else None

    def known(self) -> list[ObjectKey]:
        return list(self.objects)

    def tolerated(self, key: ObjectKey) -> list[str]:
        return [each["value"] for each in self.objects[key]["spec"]["template"]["spec"].get("tolerations") or ()]

    def record(self, key: ObjectKey) -> str | None:
        return (self.objects[key]["metadata"].get("annotations") or {}).get(names.ADDED_TOLERATIONS_ANNOTATION)


class TemplateWorld:
    """A replica of the role, leading or not."""

    def __init__(self, *, leading: bool = True, api: DaemonSetApi | None = None, **spec: Any) -> None:
        self.clock = ManualClock(start=0)
        self.facts = TemplateFactsOf(**spec)
        self.api = api or DaemonSetApi()
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
            daemon_sets=self.api,
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
        self.api.on_event = self.queue.add
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
