"""What the builder watches, in as few bytes as plans need, and the indexes by which it finds its way (BD-331, BD-348).

Jobs, pods and ConfigMaps are watched with our label only. Of ConfigMaps the record of architectures is kept, not the
Containerfiles and scripts that Jobs mount.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.executions import BuildObject, RunObject
from polyarch.builds.facts.jobs import JobObject, PodObject
from polyarch.builds.facts.nodes import NodeObject
from polyarch.kube.process.roles import Process
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS
from polyarch.kube.rights import rule
from polyarch.kube.runtime.informer import Informer
from polyarch.model.meta import ObjectMeta
from polyarch.model.namespace import Namespace

RIGHTS: Final = (
    rule((names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS), "get", "list", "watch"),
    rule(JOBS, "list", "watch"),
    rule((CONFIGMAPS, PODS, NODES, NAMESPACES), "list", "watch"),
)
"""RBAC rules in the whole cluster."""
OURS: Final = names.RUN_LABEL
"""The label of everything that is made for an execution (BD-081)."""
BY_BUILD, BY_KEY, BY_NAMESPACE, BY_JOB = "build", "key", "namespace", "job"


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``data`` of the ConfigMap of BD-049."""

    architectures: str = msgspec.field(default="", name=names.ARCHITECTURES_FILE)


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
        runs: Informer[RunObject],
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
        runs.store.add_index(BY_BUILD, _build_of)
        runs.store.add_index(BY_KEY, _keys_of)
        jobs.store.add_index(BY_NAMESPACE, _namespace_of)
        pods.store.add_index(BY_JOB, _job_of)

    @classmethod
    def of(cls, process: Process) -> "Watches":
        """Those of a process, shared with its other roles."""
        return cls(
            builds=process.informer(names.IMAGE_BUILDS, BuildObject),
            runs=process.informer(names.IMAGE_BUILD_RUNS, RunObject),
            jobs=process.informer(JOBS, JobObject, label_selector=OURS),
            pods=process.informer(PODS, PodObject, label_selector=OURS),
            records=process.informer(CONFIGMAPS, RecordObject, label_selector=OURS),
            nodes=process.informer(NODES, NodeObject),
            namespaces=process.informer(NAMESPACES, Namespace),
        )


def is_finished(job: JobObject) -> bool:
    """Whether a Job is Complete or Failed."""
    return any(each.type in ("Complete", "Failed") and each.status == "True" for each in job.status.conditions or ())


def _build_of(run: RunObject) -> Iterable[str]:
    return (f"{run.metadata.namespace}/{run.spec.image_build.name}",)


def _keys_of(run: RunObject) -> Iterable[str]:
    return (f"{run.metadata.namespace}/{each.key}" for each in run.spec.architectures or ())


def _namespace_of(job: JobObject) -> Iterable[str]:
    return (job.metadata.namespace,)


def _job_of(pod: PodObject) -> Iterable[str]:
    owner = pod.metadata.controller
    return (owner.uid,) if owner is not None else ()
