"""What the builder watches, in as few bytes as plans need, and the indexes by which it finds its way.

Jobs, pods and ConfigMaps are watched with our label only. Of ConfigMaps the record of architectures is kept, not the
Containerfiles and scripts that Jobs mount."""

import itertools
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
from polyarch.builds.places import NamespaceLoad
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


# -- places of Jobs ----------------------------------------------------------------------------------------------------


STARTING: Final = 10.0
"""Seconds that a new Job takes a place without a node. Then it waits for one, though no scheduler says so: its pod may
be forbidden by a quota or by Pod Security, be suspended, or be held by a gate."""


class _PodState(NamedTuple):
    has_node: bool
    is_unschedulable: bool


class ActiveJobs:
    """What is under way, as the watches of Jobs and pods tell it, and what this process has yet to make.

    Anybody who may create Jobs can put our labels on them. So the Jobs of a Run count only as far as the Run knows of
    them, and Runs are made by builders alone.
    """

    def __init__(self, metrics: BuildMetrics, allowed: Callable[[ObjectKey], int]) -> None:
        """``allowed``: how many Jobs the Run of this name has, by its status; 0 if there is no such Run."""
        self._metrics = metrics
        self._allowed = allowed
        self._active: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._jobs: dict[tuple[str, str], tuple[float, ObjectKey, str]] = {}
        """Unfinished Jobs that build an architecture, by namespace and UID: when they were made, their Run, their
        name."""
        self._planned: dict[BuildRef, frozenset[tuple[ObjectKey, str]]] = {}
        """Run and name of the Jobs that the present plan of a build makes."""
        self._pods: dict[tuple[str, str], dict[str, _PodState]] = {}
        """Their pods that have not ended, by name."""
        self._counted: tuple[float, Mapping[str, NamespaceLoad]] | None = None
        """The loads, and until when they hold."""

    def job_changed(self, change: ObjectChange[JobObject]) -> None:
        """Handler of the watch of Jobs."""
        for job, step in ((change.old, -1), (change.new, 1)):
            if job is None or is_finished(job):
                continue
            self._active[_label(job.metadata, names.ARCHITECTURE_LABEL)] += step
            if _label(job.metadata, names.ROLE_LABEL) == names.ARCH_ROLE:
                self._count(job, step)
        self._show()

    def _count(self, job: JobObject, step: int) -> None:
        key = (job.metadata.namespace, job.metadata.uid)
        if step > 0:
            run = _annotation(job.metadata, names.RUN_LABEL) or _label(job.metadata, names.RUN_LABEL)
            made = seconds(job.metadata.creation_timestamp) or 0.0
            self._jobs[key] = (made, ObjectKey(job.metadata.namespace, run), job.metadata.name)
        else:
            self._jobs.pop(key, None)
        self._counted = None

    def planned(self, ref: BuildRef, jobs: Iterable[tuple[ObjectKey, str]] = ()) -> None:
        """Run and name of the Jobs that a build is about to make: they count until its next plan, so that plans of
        other namespaces that are made meanwhile do not take the same places."""
        made = frozenset(jobs)
        if made == self._planned.get(ref, frozenset()):
            return
        if made:
            self._planned[ref] = made
        else:
            del self._planned[ref]
        self._counted = None

    def run_changed(self) -> None:
        """A Run came, went, or knows of other Jobs."""
        self._counted = None

    def pod_changed(self, change: ObjectChange[PodObject]) -> bool:
        """Handler of the watch of pods; whether a Job may have given its place back."""
        for pod, step in ((change.old, -1), (change.new, 1)):
            if pod is not None and pod.status.phase == "Pending" and not pod.spec.node_name:
                self._waiting[_label(pod.metadata, names.ARCHITECTURE_LABEL)] += step
        self._show()
        before, after = (_pod_state(each) for each in (change.old, change.new))
        if before == after:
            return False
        for pod, state in ((change.old, None), (change.new, after)):
            if pod is not None and (owner := pod.metadata.controller) is not None:
                self._put_pod((change.key.namespace, owner.uid), change.key.name, state)
        self._counted = None
        return after is None or after.is_unschedulable

    def _put_pod(self, job: tuple[str, str], name: str, state: _PodState | None) -> None:
        pods = self._pods.setdefault(job, {})
        if state is not None:
            pods[name] = state
        else:
            pods.pop(name, None)
        if not pods:
            del self._pods[job]

    def loads(self, now: float) -> Mapping[str, NamespaceLoad]:
        """The Jobs of each namespace, at a time in seconds since 1970."""
        if self._counted is not None and now < self._counted[0]:
            return self._counted[1]
        until, at_work, waiting = float("inf"), Counter[ObjectKey](), Counter[ObjectKey]()
        planned = {each for made in self._planned.values() for each in made}
        unseen = set(planned)
        for key, (created, run, name) in self._jobs.items():
            pods = self._pods.get(key, {}).values()
            unseen.discard((run, name))
            if any(each.has_node for each in pods):
                at_work[run] += 1
            elif any(each.is_unschedulable for each in pods) or now - created >= STARTING:
                waiting[run] += 1
            else:
                at_work[run] += 1
                until = min(until, created + STARTING)
        making, coming = (Counter(run for run, _ in each) for each in (planned, unseen))
        known, stuck = Counter[str](), Counter[str]()
        for run in {*at_work, *waiting, *coming}:
            most = self._allowed(run) + making[run]
            working = min(at_work[run], most)
            known[run.namespace] += working + coming[run]
            stuck[run.namespace] += min(waiting[run], most - working)
        loads = {each: NamespaceLoad(at_work=known[each], waiting=stuck[each]) for each in {*known, *stuck}}
        self._counted = (until, loads)
        return loads

    def _show(self) -> None:
        self._metrics.show_jobs(
            {each: count for each, count in self._active.items() if each},
            {each: count for each, count in self._waiting.items() if each},
        )


def _pod_state(pod: PodObject | None) -> _PodState | None:
    """None: there is none, or it has ended."""
    if pod is None or pod.status.phase in ("Succeeded", "Failed"):
        return None
    has_node = bool(pod.spec.node_name)
    told = any((each.type, each.status) == ("PodScheduled", "False") for each in pod.status.conditions or ())
    return _PodState(has_node, told and not has_node)


def _annotation(metadata: ObjectMeta, key: str) -> str:
    return (metadata.annotations or {}).get(key, "")


def _label(metadata: ObjectMeta, key: str) -> str:
    return (metadata.labels or {}).get(key, "")


NO_LIMIT: Final = 0
AT_WORK: Final = frozenset({"Building", "WaitingForNode"})

Limit = Callable[[ObjectKey], int | None]
"""Gives the limit of a build: its ``maxParallel`` (``NO_LIMIT``: none); None if it does not wait for Jobs any more."""


class _WaitingRun(msgspec.Struct, frozen=True):
    """An unfinished ImageBuildRun of which an architecture has no Job yet."""

    build: ObjectKey
    created: float
    """Seconds since 1970."""
    queued: int
    """Architectures without a Job."""
    at_work: int
    """Architectures with one."""


class JobQueue:
    """All Runs that wait for a Job, by namespace."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[ObjectKey, _WaitingRun]] = {}
        self._sorted: dict[str, list[tuple[float, ObjectKey, _WaitingRun]]] = {}

    def run_changed(self, key: ObjectKey, run: RunReader | None) -> None:
        """A Run as it is now; None: it is gone."""
        waiting = _waiting_run(run) if run is not None else None
        runs = self._waiting.get(key.namespace, {})
        if waiting == runs.get(key):
            return
        if waiting is not None:
            self._waiting.setdefault(key.namespace, {})[key] = waiting
        else:
            del runs[key]
            if not runs:
                del self._waiting[key.namespace]
        self._sorted.pop(key.namespace, None)

    def before(self, namespace: str, active: Execution | None, limit: Limit, most: int) -> tuple[int, str]:
        """How many architectures of older Runs of the namespace get a Job before one of this Run, ``most`` at the
        most, and the name of the last of these Runs; without a Run, before a new one."""
        own = (active.created, ObjectKey(active.namespace, active.name)) if active is not None else None
        count, last = 0, ""
        for created, key, run in self._oldest_first(namespace):
            if own is not None and (created, key) >= own:
                break
            if places := _places(run, limit(run.build)):
                count, last = count + places, key.name
        return min(count, most), last

    def queued(self, limit: Limit, most: int) -> Mapping[str, tuple[int, float]]:
        """For each namespace how many architectures wait, ``most`` at the most, and since when."""
        found: dict[str, tuple[int, float]] = {}
        for namespace in self._waiting:
            count, oldest = 0, 0.0
            for created, _, run in self._oldest_first(namespace):
                if places := _places(run, limit(run.build)):
                    count, oldest = count + places, oldest or created
                if count >= most:
                    break
            if count:
                found[namespace] = (min(count, most), oldest)
        return found

    def next_builds(self, limit: Limit, most: int) -> Sequence[ObjectKey]:
        """The builds that may get a Job next: of each namespace as many as could have one at the same time."""
        found: list[ObjectKey] = []
        for namespace in self._waiting:
            line = (run.build for _, _, run in self._oldest_first(namespace) if _places(run, limit(run.build)))
            found += itertools.islice(line, most)
        return found

    def _oldest_first(self, namespace: str) -> Sequence[tuple[float, ObjectKey, _WaitingRun]]:
        known = self._sorted.get(namespace)
        if known is None:
            runs = self._waiting.get(namespace, {})
            known = sorted(((run.created, key, run) for key, run in runs.items()), key=lambda each: each[:2])
            self._sorted[namespace] = known
        return known

    def oldest_seconds(self, now: float) -> float:
        """Age of the oldest Run that waits; 0 without any. ``now``: seconds since the epoch."""
        return max((now - run.created for runs in self._waiting.values() for run in runs.values()), default=0.0)


def jobs_known(run: RunReader) -> int:
    """How many Jobs a Run has, by its status."""
    return sum(each.get("phase") in AT_WORK for each in _architectures(run.status or {}))


def _architectures(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    architectures = status.get("architectures")
    return [each for each in (architectures if isinstance(architectures, list) else ()) if isinstance(each, Mapping)]


def _places(waiting: _WaitingRun, limit: int | None) -> int:
    if limit is None:
        return 0
    return waiting.queued if limit == NO_LIMIT else min(waiting.queued, max(0, limit - waiting.at_work))


def _waiting_run(run: RunReader) -> _WaitingRun | None:
    status = run.status or {}
    if status.get("phase") in ENDED:
        return None
    found = _architectures(status)
    queued = sum(_is_queued(each) for each in found)
    if not queued:
        return None
    metadata = run.metadata
    return _WaitingRun(
        build=ObjectKey(metadata.namespace, run.spec.image_build.name),
        created=seconds(metadata.creation_timestamp) or 0.0,
        queued=queued,
        at_work=jobs_known(run),
    )


def _is_queued(architecture: Mapping[str, Any]) -> bool:
    return architecture.get("phase") == "Pending" and architecture.get("reason") == "Queued"
