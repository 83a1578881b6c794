"""What the builder watches, in as few bytes as plans need, and the indexes by which it finds its way (BD-331, BD-348).

Jobs, pods and ConfigMaps are watched with our label only. Of ConfigMaps the record of architectures is kept, not the
Containerfiles and scripts that Jobs mount.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.executions import BuildObject, StoredRun
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.facts.jobs import JobObject, PodObject, job_facts
from polyarch.builds.facts.nodes import NodeObject
from polyarch.builds.machineos.recording.records import EXECUTION_FILE
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS
from polyarch.kube.store import Change
from polyarch.objects import Key, Namespace, ObjectMeta
from polyarch.oci.cache.recent import Recent

RIGHTS: Final = (
    rule((names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS), "get", "list", "watch"),
    rule(JOBS, "list", "watch"),
    rule((CONFIGMAPS, PODS, NODES, NAMESPACES), "list", "watch"),
)
"""RBAC rules in the whole cluster."""
OURS: Final = names.RUN_LABEL
"""The label of everything that is made for an execution (BD-081)."""
CONVERTED: Final = 1024
"""Jobs that are kept in the planner's form."""
BY_BUILD, BY_KEY, BY_NAMESPACE, BY_JOB = "build", "key", "namespace", "job"


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``data`` of the ConfigMap of BD-049."""

    architectures: str = msgspec.field(default="", name=names.ARCHITECTURES_FILE)
    execution: str = msgspec.field(default="", name=EXECUTION_FILE)
    """Of a MachineOSBuild."""


class RecordObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A ConfigMap that is, or may be, the record of an execution's architectures."""

    metadata: ObjectMeta = ObjectMeta()
    data: Record | None = None


class Watches:
    """The informers of the builder."""

    def __init__(
        self,
        *,
        builds: Informer[BuildObject],
        runs: Informer[StoredRun],
        jobs: Informer[JobObject],
        pods: Informer[PodObject],
        records: Informer[RecordObject],
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
        self._converted: Recent[Key, tuple[Sequence[object], JobFacts]] = Recent(CONVERTED)
        runs.store.add_index(BY_BUILD, _build_of)
        runs.store.add_index(BY_KEY, _keys_of)
        jobs.store.add_index(BY_NAMESPACE, _namespace_of)
        pods.store.add_index(BY_JOB, _job_of)
        jobs.add_handler(self._job_changed)

    def job(self, key: Key) -> JobFacts | None:
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

    def _job_changed(self, change: Change[JobObject]) -> None:
        """With a Job go its facts, and the pods that they were made from."""
        if change.new is None:
            self._converted.pop(change.key)

    def jobs_in(self, namespace: str) -> Iterable[JobFacts]:
        """The Jobs of builds in a namespace."""
        found = (self.job(key) for key in self.jobs.store.by_index(BY_NAMESPACE, namespace))
        return (each for each in found if each is not None)

    @property
    def knows_nodes(self) -> bool:
        """Whether the nodes in the cache are all that there are (BD-047)."""
        return self.nodes.has_synced and self.nodes.problem is None

    @classmethod
    def of(cls, process: Process) -> "Watches":
        """Those of a process, shared with its other roles."""
        return cls(
            builds=process.informer(names.IMAGE_BUILDS, BuildObject),
            runs=process.informer(names.IMAGE_BUILD_RUNS, StoredRun),
            jobs=process.informer(JOBS, JobObject, label_selector=OURS),
            pods=process.informer(PODS, PodObject, label_selector=OURS),
            records=process.informer(CONFIGMAPS, RecordObject, label_selector=OURS),
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
