"""The writes of a plan in their order. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import (
    ENDED,
    ENDED_CHILD,
    BuildFacts,
    BuildLookup,
    BuildStep,
    ChildRecord,
    Execution,
    FoundJob,
    JobFacts,
)
from polyarch.builds.jobs.contract import configmap_name, context_name
from polyarch.builds.jobs.manifests import RegistryJobSpec, index_manifests
from polyarch.builds.jobs.results import IndexJobRequest, inputs_name, told_missing
from polyarch.builds.jobs.spec import JobMetadata
from polyarch.builds.names import object_labels
from polyarch.builds.plan.document import CONFIG_MAP, JOB, BuildPlan, Write, uid_placeholder
from polyarch.builds.plan.kind import BuildKind, JobInputs, PlanOutcome
from polyarch.builds.plan.update import PUSH, ExecutionUpdate


def planned_writes(outcome: PlanOutcome, kind: BuildKind) -> tuple[Write, ...]:
    """The writes in their order: each is safe to repeat, and to be cut off before, in, or after."""
    return tuple(_once(_in_order(outcome, kind)))


def _in_order(outcome: PlanOutcome, kind: BuildKind) -> Iterator[Write]:
    update = outcome.update
    adopted = frozenset[str]()
    if update is not None:
        adopted = frozenset(action.adopt.uid for action in update.actions if action.adopt is not None)
        if outcome.before is None:
            yield from kind.create(outcome, update.recorded)
        yield from _adoptions(outcome, kind, update)
    for before, state in outcome.superseded:
        yield from _deletions(_left(outcome, before.name, adopted), step=BuildStep.END_SUPERSEDED)
        yield from kind.supersede(outcome, before, state)
    if update is not None:
        for job_inputs in _job_inputs(outcome, kind, update):
            yield from kind.job_writes(job_inputs)
        yield from _records(outcome, kind, update)
    index_job = update.index_job if update is not None else outcome.tag_job
    if index_job is not None:
        yield from _index_job(outcome, kind, index_job)
    if outcome.retag is not None:
        yield outcome.retag
    finished = _finished_jobs(outcome, adopted)
    yield from _deletions([job for job in finished if job.role != names.INDEX_ROLE], step=BuildStep.DELETE_JOB)
    yield from kind.report(outcome)
    yield from _deletions([job for job in finished if job.role == names.INDEX_ROLE], step=BuildStep.REPORT)


def _once(found: Iterable[Write]) -> Iterator[Write]:
    """No Job is deleted twice."""
    deleted = set()
    for write in found:
        if write.verb == "delete":
            if write.uid in deleted:
                continue
            deleted.add(write.uid)
        yield write


def _execution_owner(kind: BuildKind, execution: str, uid: str) -> dict[str, Any]:
    """The owner reference to an execution, whose UID is not known before it is created."""
    return kind.owner(execution, uid or uid_placeholder(kind.execution_kind, execution))


def _job_inputs(outcome: PlanOutcome, kind: BuildKind, update: ExecutionUpdate) -> Iterator[JobInputs]:
    """The inputs of each Job that is made."""
    target, execution = outcome.target, update.recorded
    if target is None:
        return
    architectures = [action.child.architecture for action in update.actions]
    own = kind.execution_names(outcome.facts, execution.name, architectures)
    for action in update.actions:
        if action.build:
            yield JobInputs(
                facts=outcome.facts,
                target=target,
                inputs=outcome.request.inputs,
                architecture=action.child.architecture,
                execution=execution.name,
                owner=_execution_owner(kind, execution.name, execution.uid),
                job=action.child.job,
                host=action.child.host,
                tag=own.child_tags[action.child.architecture],
                builder=execution.builder,
            )


def _records(outcome: PlanOutcome, kind: BuildKind, update: ExecutionUpdate) -> Iterator[Write]:
    yield from kind.record(outcome, outcome.before, update.recorded)
    yield from _deletions(update.deletes, step=BuildStep.DELETE_JOB)
    if update.published is None:
        return
    if update.body:
        yield Write(
            verb=PUSH,
            namespace=outcome.facts.request.namespace,
            name=update.recorded.name,
            reference=update.reference,
            step=BuildStep.PUBLISH,
            body=update.body,
        )
    yield from kind.record(outcome, outcome.before, update.published)


def _adoptions(outcome: PlanOutcome, kind: BuildKind, update: ExecutionUpdate) -> Iterator[Write]:
    """The Job and its inputs change hands; label and owner decide whose it is."""
    request, state = outcome.facts.request, update.recorded
    labels = object_labels(image_build=request.name, execution=state.name, role=names.ARCH_ROLE)
    metadata = {
        "labels": {key: labels.labels[key] for key in (names.BUILD_LABEL, names.RUN_LABEL)},
        "annotations": {key: labels.annotations.get(key) for key in (names.BUILD_LABEL, names.RUN_LABEL)},
        "ownerReferences": [_execution_owner(kind, state.name, state.uid)],
    }
    for action in update.actions:
        job = action.adopt
        if job is None:
            continue
        for name in _inputs_of(outcome, job):
            body = {"metadata": metadata}
            yield Write.merge(CONFIG_MAP, name, body, namespace=job.namespace, step=BuildStep.ADOPT_JOB)
        yield Write(
            verb="patch",
            kind=JOB,
            namespace=job.namespace,
            name=job.name,
            step=BuildStep.ADOPT_JOB,
            how="merge",
            uid=job.uid,
            resource_version=job.resource_version,
            body={"metadata": metadata},
        )


def _inputs_of(outcome: PlanOutcome, job: JobFacts) -> list[str]:
    """ConfigMaps that a Job mounts and that go with it. One of the same key has a context where the build has."""
    has_context = outcome.facts.request.spec.source.context.type == "ConfigMap"
    return [configmap_name(job.name), *([context_name(job.name)] if has_context else ())]


def _index_job(outcome: PlanOutcome, kind: BuildKind, work: IndexJobRequest) -> Iterator[Write]:
    """The Job that publishes a result, where the builder leaves registries to Jobs."""
    facts, request = outcome.facts, outcome.facts.request
    own = kind.execution_names(facts, work.execution, ())
    labels = object_labels(image_build=request.name, execution=work.execution, role=names.INDEX_ROLE, arch_key=work.key)
    metadata = JobMetadata(
        namespace=request.namespace,
        job=own.index_job,
        owners=(_execution_owner(kind, work.execution, work.uid),),
        labels=labels.labels,
        annotations=labels.annotations,
        execution=work.execution,
        record=own.record,
        inputs=inputs_name(own.index_job, work.key),
    )
    spec = RegistryJobSpec(metadata=metadata, spec=request.spec, settings=facts.settings, document=work.document)
    for body in index_manifests(spec):
        yield Write.create(body, step=BuildStep.PUBLISH)


def _jobs(outcome: PlanOutcome) -> Iterator[JobFacts]:
    """Jobs that plans make; those that delete images are the clean-up's."""
    return (job for job in outcome.facts.jobs if job.role != names.PRUNE_ROLE)


def _left(outcome: PlanOutcome, execution: str, adopted: frozenset[str]) -> list[JobFacts]:
    """The Jobs that are still an execution's own after others were taken over."""
    return sorted(
        (job for job in _jobs(outcome) if job.run == execution and job.uid not in adopted and not job.deleting),
        key=lambda job: job.name,
    )


def _finished_jobs(outcome: PlanOutcome, adopted: frozenset[str]) -> Sequence[JobFacts]:
    """Jobs of what has succeeded or was superseded are not needed any more; those of failures are, for their logs.

    An index Job is all that tells where the tags are, until the status of the build does.
    """
    done = {
        each.name
        for each in outcome.facts.executions
        if each.phase in ("Succeeded", "Superseded") and each.owner_uid == outcome.facts.request.uid
    }
    if outcome.update is not None and outcome.update.published is not None:
        done.add(outcome.update.published.name)
    jobs = [
        job
        for job in _jobs(outcome)
        if job.run in done and job.uid not in adopted and not job.deleting and not _is_needed(outcome, job)
    ]
    return sorted(jobs, key=lambda job: job.name)


def _is_needed(outcome: PlanOutcome, job: JobFacts) -> bool:
    """An index Job that still publishes, or all that is known of images that are gone."""
    if job.role != names.INDEX_ROLE:
        return False
    return job.uid == outcome.tag_job_uid or bool(told_missing([job], job.run))


def _deletions(jobs: Iterable[JobFacts], *, step: BuildStep) -> Iterator[Write]:
    for job in jobs:
        if not job.deleting:
            yield Write(
                verb="delete",
                kind=JOB,
                namespace=job.namespace,
                name=job.name,
                step=step,
                how="foreground" if job.role == names.INDEX_ROLE else "",
                uid=job.uid,
            )


# -- labels that somebody took from a live Job are put back ------------------------------------------------------------


_OF_KUBERNETES: Final = ("controller-uid", "job-name")
"""Labels that the API server adds to pod templates of Jobs, with and without a prefix."""
_LATE: Final = 1.0
"""Seconds until it is looked again whether the cache shows a Job that has its labels."""
_REFUSED: Final = 60.0


def relabelling(facts: BuildFacts) -> BuildPlan | None:
    """The plan that asks for such Jobs, or puts their labels back; None where there are none."""
    missing = _missing(facts)
    return _asking(facts, missing) or _restoring(
        facts,
        [
            (execution, child, job)
            for execution, child in missing
            if (job := facts.found_jobs[child.job]) is not None and job.uid == child.job_uid
        ],
    )


def unrecorded(facts: BuildFacts, kind: BuildKind, ending: Iterable[Execution]) -> BuildPlan | None:
    """The plan for Jobs that were made before the builder was stopped, and not recorded yet.

    An execution that goes on finds them when it makes its Jobs. One that ends makes none: what it left would go on
    without anybody knowing, beside a second Job for the same key. Its pods' labels, which nobody can take off, tell
    that such a Job is its own.
    """
    missing = _unrecorded(facts, kind, ending)
    return _asking(facts, missing) or _restoring(
        facts,
        [
            (execution, child, job)
            for execution, child in missing
            if (job := facts.found_jobs[child.job]) is not None
            and job.template_labels.get(names.RUN_LABEL) == _marks(execution)[names.RUN_LABEL]
        ],
    )


def _asking(facts: BuildFacts, missing: Iterable[tuple[Execution, ChildRecord]]) -> BuildPlan | None:
    unknown = [child.job for _, child in missing if child.job not in facts.found_jobs]
    if not unknown:
        return None
    return BuildPlan(
        decision="Wait",
        reason="Asking",
        message=f"{', '.join(unknown)} has to be looked up first.",
        lookups=tuple(BuildLookup(reference=each, what="job") for each in unknown),
    )


def _restoring(facts: BuildFacts, alive: Sequence[tuple[Execution, ChildRecord, FoundJob]]) -> BuildPlan | None:
    if not alive:
        return None
    what = ", ".join(child.job for _, child, _ in alive)
    refusal = next(
        (
            each
            for each in facts.failures
            if (each.step, each.verb, each.kind) == (BuildStep.RESTORE_LABELS, "patch", JOB)
        ),
        None,
    )
    if refusal is not None:
        message = f"Job {refusal.name} had lost labels, which cannot be put back: {refusal.message}"
        return BuildPlan(decision="Wait", reason=refusal.code, message=message, requeue_after=_REFUSED)
    return BuildPlan(
        decision="Wait",
        reason="LabelsRestored",
        message=f"{what} had lost labels, which are put back.",
        execution=alive[0][0].name,
        writes=tuple(each for one in alive if (each := _patch(*one)) is not None),
        requeue_after=_LATE,
    )


def _missing(facts: BuildFacts) -> list[tuple[Execution, ChildRecord]]:
    """What is recorded as being at work, by name of the Job, where no Job of that name is known."""
    there = {job.name for job in facts.jobs}
    found = {
        child.job: (execution, child)
        for execution in facts.executions
        if execution.phase not in ENDED and not execution.deleting
        for child in execution.children
        if child.job_uid and child.phase not in ENDED_CHILD and child.job not in there
    }
    return [found[name] for name in sorted(found)]


def _unrecorded(facts: BuildFacts, kind: BuildKind, ending: Iterable[Execution]) -> list[tuple[Execution, ChildRecord]]:
    """Architectures of which no Job is known, with the name that it would have."""
    there = {job.name for job in facts.jobs}
    found = []
    for execution in ending:
        records = {each.architecture: each for each in execution.children}
        own = kind.execution_names(facts, execution.name, [each.architecture for each in execution.keys])
        for each in execution.keys:
            name = own.jobs[each.architecture]
            child = records.get(each.architecture) or ChildRecord(architecture=each.architecture)
            if name not in there and not child.job_uid and child.phase not in ENDED_CHILD:
                found.append((execution, msgspec.structs.replace(child, job=name)))
    return found


def _marks(execution: Execution) -> Mapping[str, str]:
    return object_labels(image_build=execution.owner_name, execution=execution.name, role="").labels


def _patch(execution: Execution, child: ChildRecord, job: FoundJob) -> Write | None:
    """The Job gets the labels of its pods; that of its execution it may have got when it was taken over."""
    labels = {
        name: value
        for name, value in {**job.template_labels, **_marks(execution)}.items()
        if name.rpartition("/")[2] not in _OF_KUBERNETES and job.labels.get(name) != value
    }
    if not labels:
        return None
    body = {"metadata": {"labels": labels}}
    step = BuildStep.RESTORE_LABELS
    return Write.merge(JOB, child.job, body, namespace=execution.namespace, step=step, uid=job.uid)
