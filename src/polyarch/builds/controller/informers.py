"""What the builder watches, in as few bytes as plans need, and the indexes by which it finds its way.

Jobs, pods and ConfigMaps are watched with our label only. Of ConfigMaps the record of architectures is kept, not the
Containerfiles and scripts that Jobs mount."""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import ENDED, BuildFacts, Execution, JobFacts, RequestKind, seconds
from polyarch.builds.facts.objects import (
    NODE_IMAGES,
    BuildObject,
    JobObject,
    NodeObject,
    PodObject,
    RunReader,
    StoredRun,
    job_facts,
)
from polyarch.builds.machineos.records import EXECUTION_FILE
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS, Resource
from polyarch.kube.store import ObjectChange, Store, WriteExpectations
from polyarch.objects import Namespace, ObjectKey, ObjectMeta
from polyarch.oci.lru_cache import LRUCache

INFORMER_RIGHTS: Final = (
    rule((names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS), "get", "list", "watch"),
    rule(JOBS, "list", "watch"),
    rule((CONFIGMAPS, PODS, NODES, NAMESPACES), "list", "watch"),
)
"""RBAC rules in the whole cluster."""
OURS: Final = names.RUN_LABEL
"""The label of everything that is made for an execution."""
CONVERTED: Final = 1024
"""Jobs that are kept in the planner's form."""
BY_BUILD, BY_KEY, BY_NAMESPACE, BY_JOB = "build", "key", "namespace", "job"


class BuildRef(NamedTuple):
    """One build, of either kind: what a queue holds."""

    kind: RequestKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class WrittenCache(NamedTuple):
    """The cache of a kind that plans write: its objects, and the own writes that it has not seen yet."""

    resource: Resource
    store: Store[Any]
    writes: WriteExpectations[Any]


class BuildReader(Protocol):
    """Reads the caches of one kind of build: gives facts, and says which builds a change concerns."""

    @property
    def kind(self) -> RequestKind: ...

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Every kind that plans of these builds write, by its name."""
        ...

    @property
    def caches(self) -> Mapping[str, WrittenCache]:
        """The caches of those of these kinds that are watched."""
        ...

    def facts(self, key: BuildRef) -> BuildFacts | None:
        """The facts as the caches show them, without answers; None if the build is gone or going."""
        ...

    def plan(self, facts: BuildFacts) -> BuildPlan: ...

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """A status was written over the one that was ``stored``: for who counts what has ended."""
        ...

    def subscribe(self, enqueue: Callable[[BuildRef], None]) -> None:
        """Calls ``enqueue`` with every build that something has changed for."""
        ...


class ConfigMapData(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``data`` of the ConfigMap with an execution's record."""

    architectures: str = msgspec.field(default="", name=names.ARCHITECTURES_FILE)
    execution: str = msgspec.field(default="", name=EXECUTION_FILE)
    """The record of a MachineOSBuild."""


class RecordConfigMap(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A ConfigMap that is, or may be, the record of an execution's architectures."""

    metadata: ObjectMeta = ObjectMeta()
    data: ConfigMapData | None = None


class BuildInformers:
    """The informers of the builder."""

    def __init__(
        self,
        *,
        builds: Informer[BuildObject],
        runs: Informer[StoredRun],
        jobs: Informer[JobObject],
        pods: Informer[PodObject],
        records: Informer[RecordConfigMap],
        nodes: Informer[NodeObject],
        namespaces: Informer[Namespace],
    ) -> None:
        self.builds = builds
        self.runs = runs
        self.jobs = jobs
        self.pods = pods
        self.records = records
        self.nodes = nodes
        self.namespaces = namespaces
        self._converted: LRUCache[ObjectKey, tuple[Sequence[object], JobFacts]] = LRUCache(CONVERTED)
        runs.store.add_index(BY_BUILD, _build_of)
        runs.store.add_index(BY_KEY, _keys_of)
        jobs.store.add_index(BY_NAMESPACE, _namespace_of)
        pods.store.add_index(BY_JOB, _job_of)
        jobs.add_handler(self._job_changed)

    def job(self, key: ObjectKey) -> JobFacts | None:
        """A Job with what its pods say."""
        job, pods = self.jobs.store.get(key), self.pods.store
        if job is None:
            return None
        its = [pod for each in pods.by_index(BY_JOB, job.metadata.uid) if (pod := pods.get(each)) is not None]
        seen = [job, *its]
        known = self._converted.get(key)
        if known is not None and len(known[0]) == len(seen) and all(map(operator.is_, known[0], seen)):
            return known[1]
        facts = job_facts(job, its)
        self._converted.put(key, (seen, facts))
        return facts

    def _job_changed(self, change: ObjectChange[JobObject]) -> None:
        """Forgets the facts of a deleted Job, and the pods that they were made from."""
        if change.new is None:
            self._converted.pop(change.key)

    def jobs_in(self, namespace: str) -> Iterable[JobFacts]:
        """The Jobs of builds in a namespace."""
        found = (self.job(key) for key in self.jobs.store.by_index(BY_NAMESPACE, namespace))
        return (each for each in found if each is not None)

    @property
    def knows_nodes(self) -> bool:
        """Whether the nodes in the cache are all that there are."""
        return self.nodes.has_synced and self.nodes.problem is None

    @classmethod
    def of(cls, process: Process) -> "BuildInformers":
        """The informers of a process, shared with its other roles."""
        return cls(
            builds=process.informer(names.IMAGE_BUILDS, BuildObject),
            runs=process.informer(names.IMAGE_BUILD_RUNS, StoredRun),
            jobs=process.informer(JOBS, JobObject, label_selector=OURS),
            pods=process.informer(PODS, PodObject, label_selector=OURS),
            records=process.informer(CONFIGMAPS, RecordConfigMap, label_selector=OURS),
            nodes=process.informer(NODES, NodeObject),
            namespaces=process.informer(NAMESPACES, Namespace),
        )


def is_finished(job: JobObject) -> bool:
    """Whether a Job is Complete or Failed."""
    return any(each.type in ("Complete", "Failed") and each.status == "True" for each in job.status.conditions or ())


def _build_of(run: StoredRun) -> Iterable[str]:
    return (f"{run.metadata.namespace}/{run.spec.image_build.name}",)


def _keys_of(run: StoredRun) -> Iterable[str]:
    return (f"{run.metadata.namespace}/{each.key}" for each in run.spec.architectures or ())


def _namespace_of(job: JobObject) -> Iterable[str]:
    return (job.metadata.namespace,)


def _job_of(pod: PodObject) -> Iterable[str]:
    owner = pod.metadata.controller
    return (owner.uid,) if owner is not None else ()


# -- images that run ---------------------------------------------------------------------------------------------------


POD_RIGHTS: Final = (rule(PODS, "list"),)
"""RBAC rules in the whole cluster."""
SHARED: Final = 10.0
"""Seconds for which one list of all pods serves several builds."""


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container asks for."""

    image: str = ""


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The image that a container runs."""

    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Containers of a pod, of every sort."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a kubelet says of them."""

    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class PodImages(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a pod says of images."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def texts(self) -> Iterable[str]:
        spec, status = self.spec, self.status
        for wanted in (spec.containers, spec.init_containers, spec.ephemeral_containers):
            yield from (each.image for each in wanted or ())
        for seen in (
            status.container_statuses,
            status.init_container_statuses,
            status.ephemeral_container_statuses,
        ):
            for each in seen or ():
                yield each.image
                yield each.image_id


class RunningImages:
    """Images that run or are wanted anywhere in the cluster."""

    def __init__(self, client: Client, informers: BuildInformers, clock: Clock) -> None:
        self._client = client
        self._informers = informers
        self._clock = clock
        self._known: tuple[float, tuple[str, ...]] | None = None

    async def texts(self) -> tuple[str, ...]:
        """What pods and nodes say of images, at most some seconds ago."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known[0] > SHARED:
            pods = await self._client.list(PODS, type=PodImages)
            texts = {text for pod in pods.items for text in pod.texts() if text}
            self._known = (now, tuple(sorted(texts)))
        nodes = self._informers.nodes.store.values()
        wanted = ((node.metadata.annotations or {}).get(name, "") for node in nodes for name in NODE_IMAGES)
        return (*self._known[1], *(text for text in wanted if text))


# -- active Jobs -------------------------------------------------------------------------------------------------------


class ActiveJobs:
    """What is under way, as the watches of Jobs and pods tell it."""

    def __init__(self, metrics: BuildMetrics) -> None:
        self._metrics = metrics
        self._active: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self.active_jobs = 0
        """Unfinished Jobs that build an architecture, in the whole cluster."""

    def job_changed(self, change: ObjectChange[JobObject]) -> None:
        """Handler of the watch of Jobs."""
        for job, step in ((change.old, -1), (change.new, 1)):
            if job is None or is_finished(job):
                continue
            self._active[_label(job.metadata, names.ARCHITECTURE_LABEL)] += step
            if _label(job.metadata, names.ROLE_LABEL) == names.ARCH_ROLE:
                self.active_jobs += step
        self._show()

    def pod_changed(self, change: ObjectChange[PodObject]) -> None:
        """Handler of the watch of pods."""
        for pod, step in ((change.old, -1), (change.new, 1)):
            if pod is not None and pod.status.phase == "Pending" and not pod.spec.node_name:
                self._waiting[_label(pod.metadata, names.ARCHITECTURE_LABEL)] += step
        self._show()

    def _show(self) -> None:
        self._metrics.show_jobs(
            {each: count for each, count in self._active.items() if each},
            {each: count for each, count in self._waiting.items() if each},
        )


def _label(metadata: ObjectMeta, key: str) -> str:
    return (metadata.labels or {}).get(key, "")


# -- Runs that wait for a Job ------------------------------------------------------------------------------------------


NO_LIMIT: Final = 0
AT_WORK: Final = frozenset({"Building", "WaitingForNode"})

Limit = Callable[[ObjectKey], int | None]
"""Gives the limit of a build: its ``maxParallel`` (``NO_LIMIT``: none); None if it does not wait for Jobs any more."""


class _Waiting(msgspec.Struct, frozen=True):
    build: ObjectKey
    created: float
    queued: int
    at_work: int


class JobQueue:
    """All Runs that wait."""

    def __init__(self) -> None:
        self._waiting: dict[ObjectKey, _Waiting] = {}

    def run_changed(self, key: ObjectKey, run: RunReader | None) -> None:
        """A Run as it is now; None: it is gone."""
        waiting = _waiting(run) if run is not None else None
        if waiting is not None:
            self._waiting[key] = waiting
        else:
            self._waiting.pop(key, None)

    def before(self, active: Execution | None, limit: Limit) -> int:
        """How many architectures of older Runs get a Job before one of this Run; without one, of all."""
        own = ObjectKey(active.namespace, active.name) if active is not None else None
        return sum(
            _places(each, limit(each.build))
            for key, each in self._waiting.items()
            if key != own and (active is None or (each.created, key) < (active.created, own))
        )


def _places(waiting: _Waiting, limit: int | None) -> int:
    if limit is None:
        return 0
    return waiting.queued if limit == NO_LIMIT else min(waiting.queued, max(0, limit - waiting.at_work))


def _waiting(run: RunReader) -> _Waiting | None:
    status = run.status or {}
    if status.get("phase") in ENDED:
        return None
    architectures = status.get("architectures")
    found = [each for each in (architectures if isinstance(architectures, list) else ()) if isinstance(each, Mapping)]
    queued = sum(_is_queued(each) for each in found)
    if not queued:
        return None
    metadata = run.metadata
    return _Waiting(
        build=ObjectKey(metadata.namespace, run.spec.image_build.name),
        created=seconds(metadata.creation_timestamp) or 0.0,
        queued=queued,
        at_work=sum(each.get("phase") in AT_WORK for each in found),
    )


def _is_queued(architecture: Mapping[str, Any]) -> bool:
    return architecture.get("phase") == "Pending" and architecture.get("reason") == "Queued"
