"""Jobs made for builds, each with the pod that says the most about it (BD-081, BD-149, BD-150)."""

from collections.abc import Iterable
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.facts import FoundJob, JobFacts, PodFacts
from polyarch.builds.facts.times import seconds
from polyarch.objects import ObjectMeta

_DISRUPTED: Final = "DisruptionTarget"
_SCHEDULED: Final = "PodScheduled"


class JobCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """batch/v1 JobCondition and core/v1 PodCondition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class UncountedPods(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 UncountedTerminatedPods: UIDs."""

    succeeded: list[str] | None = None
    failed: list[str] | None = None


class JobStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """batch/v1 JobStatus."""

    conditions: list[JobCondition] | None = None
    start_time: str | None = None
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    uncounted_terminated_pods: UncountedPods | None = None


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 Container: what it is told."""

    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodSpec: where it may run, or runs, and what its containers are told."""

    node_selector: dict[str, str] | None = None
    node_name: str = ""
    containers: list[Container] | None = None


class JobTemplate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpec = PodSpec()


class JobSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 JobSpec."""

    template: JobTemplate = JobTemplate()


class JobObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 ContainerState."""

    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 ContainerStatus."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodStatus."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: list[JobCondition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a core/v1 Pod of a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def job_facts(job: JobObject, pods: Iterable[PodObject] = ()) -> JobFacts:
    """The facts of a Job; of ``pods`` only its own count. Labels that somebody took off it are read from its pods'."""
    metadata, template, status = job.metadata, job.spec.template, job.status
    complete, failed = _condition(status.conditions, "Complete"), _condition(status.conditions, "Failed")
    uncounted = status.uncounted_terminated_pods or UncountedPods()
    return JobFacts(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        architecture=_mark(job, names.ARCHITECTURE_LABEL),
        role=_mark(job, names.ROLE_LABEL) or names.ARCH_ROLE,
        key=_annotation(job, names.KEY_ANNOTATION),
        run=_mark(job, names.RUN_LABEL),
        build=_mark(job, names.BUILD_LABEL),
        owners=tuple(sorted((each.kind, each.name, each.uid) for each in metadata.owner_references or ())),
        created=seconds(metadata.creation_timestamp) or 0.0,
        started=seconds(status.start_time),
        active=status.active,
        failed=status.failed,
        succeeded=status.succeeded,
        uncounted=len(uncounted.succeeded or ()) + len(uncounted.failed or ()),
        complete=_since(complete),
        failure=_since(failed),
        failure_reason=failed.reason if failed is not None else "",
        failure_message=failed.message if failed is not None else "",
        deleting=metadata.deletion_timestamp is not None,
        pod=_telling([each for each in pods if _is_of(each, metadata)]),
        repository=_annotation(job, names.REPOSITORY_ANNOTATION),
        tag=_argument(job, "--tag="),
        host=(template.spec.node_selector or {}).get(names.ARCH_KEY, ""),
    )


def found_job(job: JobObject) -> FoundJob | None:
    """A Job that was read by its name; None for one that is being deleted."""
    metadata = job.metadata
    if metadata.deletion_timestamp is not None:
        return None
    return FoundJob(uid=metadata.uid, labels=metadata.labels or {}, template_labels=_template(job).labels or {})


def pod_facts(pod: PodObject) -> PodFacts:
    """The facts of a pod: where it is, why it is not anywhere, and what its containers said at the end.

    Meshes and security agents put containers of their own into pods: those are heard only where none of ours failed.
    """
    status = pod.status
    scheduled = _condition(status.conditions, _SCHEDULED)
    waiting = _condition(status.conditions, _SCHEDULED, "False")
    ended = [
        (each.name, each.state.terminated)
        for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        if each.state.terminated is not None
    ]
    own = [(name, end) for name, end in ended if name in names.CONTAINERS]
    failed = next(((name, end) for name, end in (*own, *ended) if end.exit_code), None)
    last = failed or (own[-1] if own and status.phase == "Succeeded" else None)
    return PodFacts(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        unscheduled_since=_since(waiting) if waiting is not None and not pod.spec.node_name else None,
        unscheduled_message=waiting.message if waiting is not None and not pod.spec.node_name else "",
        phase=status.phase,
        started=seconds(status.start_time),
        scheduled=_since(scheduled),
        ends={name: time for name, end in ended if (time := seconds(end.finished_at)) is not None},
        message=last[1].message if last is not None else status.message,
        exit_code=last[1].exit_code if last is not None else None,
        container=failed[0] if failed is not None else "",
        disrupted=_condition(status.conditions, _DISRUPTED) is not None,
    )


def _telling(pods: list[PodObject]) -> PodFacts | None:
    """The pod that succeeded if one did, else the newest."""
    succeeded = [each for each in pods if each.status.phase == "Succeeded"]
    newest = max(
        succeeded or pods, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None
    )
    return pod_facts(newest) if newest is not None else None


def _is_of(pod: PodObject, job: ObjectMeta) -> bool:
    owner = pod.metadata.controller
    return (
        pod.metadata.namespace == job.namespace
        and owner is not None
        and (owner.uid == job.uid if job.uid else (owner.kind, owner.name) == ("Job", job.name))
    )


def _mark(job: JobObject, key: str) -> str:
    """A label's full value: where that is too long for a label, the annotation of the same key has it (BD-079)."""
    return _annotation(job, key) or (job.metadata.labels or {}).get(key) or (_template(job).labels or {}).get(key) or ""


def _annotation(job: JobObject, key: str) -> str:
    return (job.metadata.annotations or {}).get(key) or (_template(job).annotations or {}).get(key) or ""


def _argument(job: JobObject, flag: str) -> str:
    """What a container is told by this flag."""
    containers = job.spec.template.spec.containers or ()
    told = (each for container in containers for each in (*(container.command or ()), *(container.args or ())))
    return next((each.removeprefix(flag) for each in told if each.startswith(flag)), "")


def _template(job: JobObject) -> ObjectMeta:
    return job.spec.template.metadata or ObjectMeta()


def _condition(conditions: Iterable[JobCondition] | None, type: str, status: str = "True") -> JobCondition | None:
    return next((each for each in conditions or () if (each.type, each.status) == (type, status)), None)


def _since(condition: JobCondition | None) -> float | None:
    """0 for a condition without a time: it is true, since when is not known."""
    return (seconds(condition.last_transition_time) or 0.0) if condition is not None else None
