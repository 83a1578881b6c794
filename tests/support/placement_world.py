"""A cluster and registries in memory for tests of placement's effects: facts that change, images that fail.

Fakes stand at the seams only (informers, secrets' reader, inspector, client, recorder); everything between is real.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fake_informer import FakeInformer
from manual_clock import ManualClock

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pod_mutation import MutationContext, PodMutation
from polyarch.kube.errors import Invalid, NotFound, StatusCause
from polyarch.kube.metrics import Metrics
from polyarch.objects import DOCKER_CONFIG_JSON, Pod, Secret
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import Reference, parse
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.metrics import PlacementMetrics
from polyarch.platforms import Platform

OPERATOR = "polyarch-system"


class FakeWatches:
    """Informers by resource; those that are not required come and go, and are made anew each time."""

    def __init__(self) -> None:
        self.informers: dict[str, FakeInformer] = {}
        self.owned: Counter[str] = Counter()
        self.selected: dict[str, dict[str, str]] = {}
        """What the last informer that is not required selects, by resource."""
        self.refused: dict[str, str] = {}
        """Why the API server does not serve an informer that is not required, by resource."""
        self.nodes_are_listed = True
        """Nodes, which nearly every policy asks for, have been listed as soon as they are watched."""

    def informer(self, resource: Any, type: Any, *, required: bool = True, **selection: str) -> FakeInformer:
        if required:
            return self.informers.setdefault(resource.plural, FakeInformer(type))
        self.owned[resource.plural] += 1
        self.selected[resource.plural] = {field: value for field, value in selection.items() if value}
        self.informers[resource.plural] = FakeInformer(type)
        self.informers[resource.plural].running = True
        self.informers[resource.plural].last_error = self.refused.get(resource.plural)
        if resource.plural == "nodes" and self.nodes_are_listed and resource.plural not in self.refused:
            self.informers[resource.plural].sync()
        return self.informers[resource.plural]

    def release(self, informer: FakeInformer) -> None:
        informer.running = False

    def __getitem__(self, plural: str) -> FakeInformer:
        return self.informers[plural]

    def sync(self) -> None:
        for informer in self.informers.values():
            informer.sync()


def cppc(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cluster"}, "spec": spec}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cluster"}, "spec": spec}


class FakeSecrets:
    """``GET`` of secrets, counted; a name that is not there is a 404, an exception put there is raised."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, str], Secret | Exception] = {}
        self.gets: Counter[tuple[str, str]] = Counter()
        self.wait: asyncio.Event | None = None

    def put(self, namespace: str, name: str, host: str = "registry.example", password: str = "s3cr3t") -> None:
        auths = {host: {"username": "user", "password": password}}
        self.content[namespace, name] = Secret(
            type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": msgspec.json.encode({"auths": auths})}
        )

    async def __call__(self, namespace: str, name: str) -> Secret:
        self.gets[namespace, name] += 1
        if self.wait is not None:
            await self.wait.wait()
        found = self.content.get((namespace, name))
        if found is None:
            raise NotFound(404, reason="NotFound", verb="get", resource="secrets", name=name)
        if isinstance(found, Exception):
            raise found
        return found


def resolved(reference: Reference, *platforms: str, kind: str = "index", checked_at: float | None = None) -> Inspection:
    digest = "sha256:" + "0123456789ab" + "0" * 52
    entries = tuple(Entry(Platform.parse(platform), digest) for platform in platforms)
    return Inspection(
        reference, Status.RESOLVED, kind=kind, digest=digest, entries=entries, checked_at=checked_at, public=True
    )


def failed(
    reference: Reference, code: str, *, status: int | None = None, retry_after: float | None = None
) -> Inspection:
    error = InspectionError.of(
        code, f"{reference}: {code}", status=status, retry_after=retry_after, host=reference.registry
    )
    return Inspection(reference, Status.ERROR, error=error)


class FakeInspector:
    """Images by canonical reference: platforms, an error code, a function, or an exception of ours.

    Answers to ``inspect`` are kept like those of the real one: ``peek`` finds them for the tag's time to live.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.images: dict[str, Any] = {}
        self.asked: list[str] = []
        self.asked_at: list[tuple[str, float]] = []
        self.kept: dict[str, Inspection] = {}
        self.bundles: dict[str, Inspection] = {}
        """What is found when an index is looked at for an operator bundle; by default, the index itself."""
        self.busy: set[str] = set()
        self.low: set[str] = set()
        self.needs_credentials: set[str] = set()
        self.accepts: dict[str, str] = {}
        """The password that counts, for those of them that take one only."""
        self.under_way = 0
        self.seconds = 0.0
        self.tag_ttl = 600.0

    def set(self, image: str, *answer: str, **options: Any) -> str:
        """``set("app", "linux/amd64")``, ``set("app", error="not-found")``; returns the canonical reference."""
        canonical = parse(image).canonical
        self.images[canonical] = options.get("error") or options.get("raises") or answer
        return canonical

    def know(self, image: str, *platforms: str, age: float = 0.0, **options: Any) -> None:
        """The answer is in memory already."""
        reference = parse(image)
        self.set(image, *platforms)
        checked = None if reference.digest else self.clock.monotonic() - age
        self.kept[reference.canonical] = resolved(reference, *platforms, checked_at=checked, **options)

    def count(self, image: str) -> int:
        return self.asked.count(parse(image).canonical)

    async def inspect(
        self, reference: Reference, *, credentials: Any = None, bundle: str = "auto", **_: Any
    ) -> Inspection:
        canonical = reference.canonical
        self.asked.append(canonical)
        started = self.clock.monotonic()
        self.asked_at.append((canonical, started))
        if self.seconds:
            self.under_way += 1
            try:
                await self.clock.sleep(self.seconds)
            finally:
                self.under_way -= 1
        if bundle == "always":
            return self.bundles.setdefault(canonical, self.kept[canonical])
        answer = self.images.get(canonical, "not-found")
        if canonical in self.needs_credentials:
            source = type("Source", (), {"host": reference.registry, "repository": reference.repository})()
            shown = [each.password for each in await credentials.candidates(reference, source) if not each.is_anonymous]
            if not shown or self.accepts.get(canonical, shown[0]) not in shown:
                answer = "unauthorized"
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(reference)
        if isinstance(answer, Inspection):
            return answer
        if isinstance(answer, str):
            error = failed(reference, answer)
            kept = self.kept.get(canonical)
            if kept is not None and kept.checked_at is not None:
                return msgspec.structs.replace(error, last_good=kept, last_good_age=started - kept.checked_at)
            return error
        checked = None if reference.digest else started
        found = resolved(reference, *answer, checked_at=checked)
        self.kept[canonical] = found = msgspec.structs.replace(found, public=canonical not in self.needs_credentials)
        return found

    def peek(
        self, reference: Reference, credentials: Any = None, *, bundle: str = "auto", **_: Any
    ) -> Inspection | None:
        kept = (self.bundles if bundle == "always" else self.kept).get(reference.canonical)
        if kept is None or reference.canonical in self.needs_credentials:
            return None
        if kept.checked_at is not None and self.clock.monotonic() - kept.checked_at > self.tag_ttl:
            return None
        return kept

    def host_busy(self, reference: Reference, tenant: str = "") -> bool:
        return reference.registry in self.busy

    def host_low(self, reference: Reference) -> bool:
        return reference.registry in self.low


class FakeMutator:
    """Another feature: it adds ``addition`` to every pod, and remembers what it was asked."""

    def __init__(self, addition: PodMutation) -> None:
        self.addition = addition
        self.asked: list[tuple[str, list[str], MutationContext]] = []
        """Name of the pod, the images that had an answer, and what placement writes."""
        self.until: list[float] = []

    async def at_admission(
        self, request: Any, answers: Mapping[str, Inspection], alongside: MutationContext, *, until: float
    ) -> PodMutation:
        self.until.append(until)
        return self.at_release(request.object, answers, alongside)

    def at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        self.asked.append((pod.metadata.name, sorted(answers), alongside))
        return self.addition


def refused_by_validation() -> Invalid:
    cause = StatusCause("FieldValueForbidden", "Forbidden: pod updates may not change fields", "spec")
    return Invalid(422, reason="Invalid", message='Pod "app" is invalid: spec: Forbidden', causes=(cause,))


def pod(
    *images: str,
    name: str = "app",
    namespace: str = "team",
    pull: str = "",
    secrets: Iterable[str] = (),
    gated: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod as the API server hands it to admission, or with ``gated`` as it is stored after it."""
    containers = [
        {
            "name": f"c{at}",
            "image": image,
            "imagePullPolicy": pull or "IfNotPresent",
            "env": [{"name": "A", "value": "b"}],
        }
        for at, image in enumerate(images)
    ]
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    labels = dict(labels or {})
    spec = {"containers": containers, "dnsPolicy": "ClusterFirst", **spec}
    if secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in secrets]
    if gated:
        labels |= {names.SCHEDULING_GATE_LABEL: names.GATED, names.NODE_AFFINITY_LABEL: names.NOT_SET}
        spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": names.GATE}]
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def facts_of(watches: FakeWatches, clock: ManualClock | None = None, **configuration: Any) -> ClusterFacts:
    """Facts that are ready: a ClusterPodPlacementConfig, and what else ``configuration`` names."""
    facts = ClusterFacts(watches, operator_namespace=OPERATOR, clock=clock or ManualClock())
    watches[CPPCS.plural].put(cppc(**configuration.get("cppc", {})))
    if "policy" in configuration:
        watches[POLICIES.plural].put(policy(**configuration["policy"]))
    for each in configuration.get("ppcs", ()):
        watches[PPCS.plural].put(each)
    watches.sync()
    return facts


def placement_metrics() -> tuple[Metrics, PlacementMetrics]:
    metrics = Metrics()
    return metrics, PlacementMetrics(metrics, LookupMetrics(metrics))


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """The value of a metric as a scrape would see it; 0.0 if there is none."""
    return metrics.registry.get_sample_value(name, labels) or 0.0
