"""Statuses and events of MachineOSConfigs, MachineOSBuilds and their pools. Pure.

Configs and pools have other writers: of their statuses only our own conditions change, of the rest only our own
members.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Any, Final, Literal, NamedTuple

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildFacts, BuildStep, Execution, JobFacts, written
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import Document, MachineOSConfigFacts, name_of, stored_condition, uid_of
from polyarch.builds.machineos.job_objects import machine_object_labels
from polyarch.builds.machineos.records import (
    SEEDED,
    TERMINAL,
    Stage,
    build_end,
    build_start,
    job_reference,
    observed_stage,
    read_record,
    related_objects,
    stage_conditions,
    stage_of,
    stages_between,
)
from polyarch.builds.machineos.request import rebuild_request
from polyarch.builds.plan import conditions
from polyarch.builds.plan.document import (
    BuildPlan,
    EventObject,
    PlannedArchitecture,
    PlannedEvent,
    Write,
    uid_placeholder,
)
from polyarch.builds.plan.failures import causes_of
from polyarch.builds.plan.kind import PlanOutcome
from polyarch.objects import Condition

DEGRADED: Final = "ImageBuildDegraded"
_THERE: Final = ("UpToDate", "Retag", "Repoint")


def report_writes(config: MachineOSConfigFacts, outcome: PlanOutcome, chosen: str) -> Iterator[Write]:
    """``chosen``: the build for the pool's current configuration, as far as there is one."""
    yield from _config_status(config, outcome)
    yield from _config_annotations(config, outcome, chosen)
    yield from _pool(config, outcome, chosen)


def is_settled(outcome: PlanOutcome) -> bool:
    """Whether inputs are wrong for good, and not only being tried still."""
    return any(each.type == conditions.INPUTS_VALID and each.status == "False" for each in outcome.conditions)


def is_refused(outcome: PlanOutcome) -> bool:
    """Whether what is wrong is told as a build that has failed: the config is right enough to name one."""
    translated = any(each.severity == "Error" for each in outcome.facts.request.problems)
    return bool(outcome.problems) and is_settled(outcome) and not translated


def _config_status(config: MachineOSConfigFacts, outcome: PlanOutcome) -> Iterator[Write]:
    stored: Mapping[str, Any] = config.document.get("status") or {}
    generation, now = outcome.facts.request.generation, floor(outcome.facts.now)
    ours = conditions.merged(outcome.conditions, stored.get("conditions"), generation=generation, now=now)
    types = {each["type"] for each in ours}
    status: dict[str, Any] = {
        **stored,
        "observedGeneration": max(int(stored.get("observedGeneration") or 0), generation),
        "conditions": [*(each for each in stored.get("conditions") or () if each.get("type") not in types), *ours],
    }
    if outcome.current is not None and outcome.current.result:
        status["currentImagePullSpec"] = outcome.current.result
        status["machineOSBuild"] = {
            "group": api.GROUP,
            "resource": api.BUILDS.plural,
            "name": outcome.current.name,
        }
    if status != stored:
        kind, uid = api.CONFIGS.kind, uid_of(config.document)
        yield Write.status(kind, config.name, status, step=BuildStep.REPORT, uid=uid)


def _config_annotations(config: MachineOSConfigFacts, outcome: PlanOutcome, chosen: str) -> Iterator[Write]:
    wanted: dict[str, str | None] = {}
    if outcome.architectures:
        wanted[names.ARCHITECTURES_ANNOTATION] = ",".join(outcome.architectures)
    if chosen:
        wanted[api.CURRENT_BUILD] = chosen
    if api.REBUILD in config.annotations and _is_honoured(config, outcome):
        wanted[api.REBUILD] = None
    if api.PRE_BUILT in config.annotations and config.builds and outcome.current is not None:
        wanted[api.PRE_BUILT] = None
    change = {key: text for key, text in wanted.items() if config.annotations.get(key) != text}
    if change:
        body = {"metadata": {"annotations": change}}
        yield Write.merge(api.CONFIGS.kind, config.name, body, step=BuildStep.REPORT, uid=uid_of(config.document))


def _is_honoured(config: MachineOSConfigFacts, outcome: PlanOutcome) -> bool:
    """The build that was asked for is there, or what is asked for is none of this pool's architectures."""
    if any(read_record(config.record(each)).rebuild for each in config.builds):
        return True
    asking = rebuild_request(config.annotations)
    listed = set(asking.architectures) if asking is not None else set()
    return bool(listed) and outcome.architectures is not None and not listed & set(outcome.architectures)


def _pool(config: MachineOSConfigFacts, outcome: PlanOutcome, chosen: str) -> Iterator[Write]:
    pool = config.pool
    if pool is None:
        return
    kind, name, uid = api.POOLS.kind, name_of(pool), uid_of(pool)
    if outcome.architectures:
        text = ",".join(outcome.architectures)
        known = (pool.get("metadata") or {}).get("annotations") or {}
        if known.get(names.ARCHITECTURES_ANNOTATION) != text:
            body = {"metadata": {"annotations": {names.ARCHITECTURES_ANNOTATION: text}}}
            yield Write.merge(kind, name, body, step=BuildStep.REPORT, uid=uid)
    said = _degraded(config, outcome, chosen)
    if said is None:
        return
    status: Mapping[str, Any] = pool.get("status") or {}
    known_conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    stored: Mapping[str, Any] = next((each for each in known_conditions if each.get("type") == DEGRADED), {})
    if all(stored.get(key) == text for key, text in said.items()):
        return
    since = stored.get("lastTransitionTime") if stored.get("status") == said["status"] else None
    ours = {"type": DEGRADED, **said, "lastTransitionTime": since or written(floor(outcome.facts.now))}
    others = [each for each in known_conditions if each.get("type") != DEGRADED]
    status = {**status, "conditions": [*others, ours]}
    yield Write.status(kind, name, status, step=BuildStep.REPORT, uid=uid)


def _degraded(config: MachineOSConfigFacts, outcome: PlanOutcome, chosen: str) -> dict[str, str] | None:
    """Status, reason and message of the pool's condition; None where it stays as it is."""
    state = outcome.execution
    if is_refused(outcome):
        return _failed(config, chosen, "; ".join(f"{each.reason}: {each.message}" for each in outcome.problems))
    if state is not None and state.phase in ("Failed", "Interrupted"):
        return _failed(config, state.name, "; ".join(each.text for each in causes_of(state)))
    if state is not None and not state.finished:
        return {"status": "False", "reason": "Building", "message": f"{state.name} is being built."}
    if outcome.decision in _THERE or (state is not None and state.phase == "Succeeded"):
        return {"status": "False", "reason": "BuildSuccess", "message": ""}
    return None


def _failed(config: MachineOSConfigFacts, build: str, why: str) -> dict[str, str]:
    message = f"Failed to build OS image for pool {config.pool_name} (MachineOSBuild: {build}): {why}"
    return {"status": "True", "reason": "BuildFailed", "message": conditions.within(message)}


# -- MachineOSBuild ----------------------------------------------------------------------------------------------------


DIGEST: Final = "digest"
_TIMED: Final = frozenset({"Building", *TERMINAL})


def build_status_writes(config: MachineOSConfigFacts, outcome: PlanOutcome, state: Execution) -> Iterator[Write]:
    """One write for each stage of the conditions; what is published is written in one, after what was before it."""
    stored = _stored(config, state)
    jobs = [job for job in outcome.facts.jobs if job.run == state.name]
    wanted, now = observed_stage(state, jobs), outcome.facts.now
    before = stage_of(stored)
    if wanted == "Succeeded" and state.reason != SEEDED:
        todo: tuple[Stage, ...] = () if before in TERMINAL else (wanted,)
    else:
        todo = stages_between(before, wanted) or ((before,) if before is not None and before not in TERMINAL else ())
    for stage in todo:
        status = _status(config, state, stage, stored, jobs, now=now)
        if status != stored:
            yield _write(state.name, build_uid(state), status, is_last=stage in TERMINAL)
        stored = status
    yield from _job_uid(config, state)


def refusal_writes(
    config: MachineOSConfigFacts, name: str, existing: Document | None, *, now: float
) -> Iterator[Write]:
    """A build that has failed before it began."""
    stored: Mapping[str, Any] = (existing or {}).get("status") or {}
    state = Execution(
        namespace=config.namespace, name=name, uid=uid_of(existing) if existing is not None else "", phase="Failed"
    )
    for stage in stages_between(stage_of(stored), "Failed"):
        stored = _status(config, state, stage, stored, (), now=now)
        yield _write(name, build_uid(state), stored, is_last=stage in TERMINAL)


def digest_writes(config: MachineOSConfigFacts, state: Execution, owner: Mapping[str, Any]) -> tuple[Write, ...]:
    """The ConfigMap in which stock tools look for the digest of a result."""
    own = machine_object_labels(config, state.name, "")
    name = api.ephemeral_name(state.name)[DIGEST]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": config.namespace,
            "labels": own.labels,
            "annotations": own.annotations,
            "ownerReferences": [dict(owner)],
        },
        "data": {DIGEST: state.result.partition("@")[2]},
    }
    return (Write.apply(body, step=BuildStep.RECORD_END),)


def _stored(config: MachineOSConfigFacts, state: Execution) -> Mapping[str, Any]:
    existing = config.build(state.name)
    if existing is None or (uid_of(existing) != state.uid and config.record(existing) is not None):
        return {}
    if uid_of(existing) != state.uid and stage_of(existing.get("status") or {}) in TERMINAL:
        return {}
    return existing.get("status") or {}


def _status(
    config: MachineOSConfigFacts,
    state: Execution,
    stage: Stage,
    stored: Mapping[str, Any],
    jobs: Sequence[JobFacts],
    *,
    now: float,
) -> dict[str, Any]:
    names = [each.job for each in state.children if each.job]
    reason = state.reason if state.reason == SEEDED else ""
    written = stage_conditions(stage, stored.get("conditions"), now=now, reason=reason)
    status: dict[str, Any] = {**stored, "conditions": written}
    if names:
        first = next(each.job for each in state.children if each.job)
        status["builder"] = {"imageBuilderType": "Job", "job": job_reference(config.namespace, first)}
        status["relatedObjects"] = related_objects(config.namespace, names)
    if stage in _TIMED:
        status["buildStart"] = build_start(stored, jobs, now=now)
    if stage in TERMINAL:
        status["buildEnd"] = build_end(status["buildStart"], now=now)
    if stage == "Succeeded":
        status["digestedImagePushSpec"] = state.result
    return status


def _write(name: str, uid: str, status: Mapping[str, Any], *, is_last: bool) -> Write:
    step = BuildStep.RECORD_END if is_last else BuildStep.RECORD_PROGRESS
    return Write.status(api.BUILDS.kind, name, dict(status), step=step, uid=uid)


def _job_uid(config: MachineOSConfigFacts, state: Execution) -> Iterator[Write]:
    uid = next((each.job_uid for each in state.children if each.job and each.job_uid), "")
    existing = config.build(state.name)
    known = ((existing or {}).get("metadata") or {}).get("annotations") or {}
    if uid and known.get(api.JOB_UID) != uid:
        body = {"metadata": {"annotations": {api.JOB_UID: uid}}}
        kind, owner = api.BUILDS.kind, build_uid(state)
        yield Write.merge(kind, state.name, body, step=BuildStep.RECORD_PROGRESS, uid=owner)


def build_uid(state: Execution) -> str:
    """The UID of a MachineOSBuild, which is not known before the build is created."""
    return state.uid or uid_placeholder(api.BUILDS.kind, state.name)


# -- events of stock builders ------------------------------------------------------------------------------------------


BUILD: Final = api.BUILDS.kind
CONFIG: Final = api.CONFIGS.kind
POOL: Final = api.POOLS.kind
JOB: Final = "Job"
CONFIG_DELETED: Final = "ConfigDeleted"
"""Told by whoever sees it: a config that is gone has no plan."""
_COMPLETED: Final = "Succeeded"


class _Told(NamedTuple):
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


_STAGES: Final[Mapping[Stage, _Told]] = {
    "Prepared": _Told("Normal", "BuildPreparing", "Its Jobs are made; none of them has a pod that runs yet."),
    "Building": _Told("Normal", "BuildBuilding", "The image is being built."),
    "Failed": _Told("Warning", "BuildFailed", "The build failed: see the condition ImageBuildDegraded of its pool."),
    "Interrupted": _Told("Warning", "BuildInterrupted", "A Job of the build was deleted before it had ended."),
}
"""``BuildCompleted`` names the image."""


def stock_events(facts: BuildFacts, config: MachineOSConfigFacts, found: BuildPlan) -> Iterator[PlannedEvent]:
    """What became of the Jobs, then what follows from it, in the order of the writes."""
    yield from _jobs(facts, config, found)
    stages: dict[str, Stage | None] = {name_of(each): stage_of(each.get("status") or {}) for each in config.builds}
    for write in found.writes:
        match write.verb, write.kind:
            case "create", "MachineOSBuild":
                yield from _started(config, write)
            case "status", "MachineOSBuild":
                before, stages[write.name] = stages.get(write.name), stage_of(write.body["status"])
                yield from _moved(write, before, stages[write.name])
            case "delete", "MachineOSBuild":
                about = EventObject(BUILD, write.name, write.uid)
                message = f"{write.name} gives way to another build of {config.name}; what it has made is used again."
                yield _event(_Told("Normal", "BuildDeleted", message), about)
            case "create", "Job":
                told = _Told("Normal", "JobCreated", f"Job {write.name} is made.")
                yield _event(told, _about_build(config, found.execution))
            case "delete", "Job":
                yield from _deleted(facts, config, write)
            case "status", "MachineOSConfig":
                yield from _reconciled(facts, config, write)
            case "status", "MachineConfigPool":
                yield from _degraded_events(config, write)
            case _:
                pass


def _started(config: MachineOSConfigFacts, write: Write) -> Iterator[PlannedEvent]:
    latest = max(
        config.builds, key=lambda each: str((each.get("metadata") or {}).get("creationTimestamp") or ""), default=None
    )
    before = str((((latest or {}).get("spec") or {}).get("machineConfig") or {}).get("name") or "")
    if before and before != config.rendered_name and config.pool is not None:
        message = f"The rendered MachineConfig changed from {before} to {config.rendered_name}."
        yield _event(
            _Told("Normal", "PoolConfigChanged", message), EventObject(POOL, config.pool_name, uid_of(config.pool))
        )
    message = f"The image of pool {config.pool_name} is built with MachineConfig {config.rendered_name}."
    about = EventObject(BUILD, write.name, uid_placeholder(BUILD, write.name))
    yield _event(_Told("Normal", "BuildStarted", message), about)


def _moved(write: Write, before: Stage | None, after: Stage | None) -> Iterator[PlannedEvent]:
    if after is None or before == after:
        return
    told = _STAGES.get(after)
    if after == _COMPLETED:
        message = f"The image is {write.body['status'].get('digestedImagePushSpec')}."
        told = _Told("Normal", "BuildCompleted", message)
    if told is not None:
        yield _event(told, EventObject(BUILD, write.name, write.uid))


def _deleted(facts: BuildFacts, config: MachineOSConfigFacts, write: Write) -> Iterator[PlannedEvent]:
    job = next((each for each in facts.jobs if each.uid == write.uid), None)
    if job is not None and job.run:
        yield _event(_Told("Normal", "JobDeleted", f"Job {job.name} is deleted."), _about_build(config, job.run))


def _reconciled(facts: BuildFacts, config: MachineOSConfigFacts, write: Write) -> Iterator[PlannedEvent]:
    """A change of the spec was taken in, or cannot be."""
    stored: Mapping[str, Any] = config.document.get("status") or {}
    wanted = write.body["status"]
    wrong = conditions.stored(wanted, conditions.INPUTS_VALID)
    known = conditions.stored(stored, conditions.INPUTS_VALID)
    about = EventObject(CONFIG, config.name, uid_of(config.document))
    if wrong.get("status") == "False" and wrong.get("message") != known.get("message"):
        yield _event(_Told("Warning", "ConfigReconcileFailed", str(wrong.get("message"))), about)
    elif 0 < int(stored.get("observedGeneration") or 0) < facts.request.generation:
        yield _event(_Told("Normal", "ConfigReconciled", "The change of the spec is taken in."), about)


def _degraded_events(config: MachineOSConfigFacts, write: Write) -> Iterator[PlannedEvent]:
    before, after = stored_condition(config.pool, DEGRADED), stored_condition(write.body, DEGRADED)
    about = EventObject(CONFIG, config.name, uid_of(config.document))
    if after == "True" and before != "True":
        message = f"The image of pool {config.pool_name} cannot be built: see condition {DEGRADED} of the pool."
        yield _event(_Told("Warning", "BuildDegraded", message), about)
    elif before == "True" and after == "False":
        message = f"The image of pool {config.pool_name} is built, or being built, again."
        yield _event(_Told("Normal", "BuildRecovered", message), about)


def _jobs(facts: BuildFacts, config: MachineOSConfigFacts, found: BuildPlan) -> Iterator[PlannedEvent]:
    """What became of the Jobs of the build under way: as often as it is recorded, which is once."""
    before = next((each for each in facts.executions if each.name == found.execution), None)
    if before is None or not found.writes:
        return
    about = _about_build(config, found.execution)
    jobs = {each.name: each for each in facts.jobs if each.run == found.execution}
    for planned in found.per_architecture:
        if planned.job:
            for told in _of_job(before, planned, jobs.get(planned.job)):
                yield _event(told, about, planned.architecture)


def _of_job(before: Execution, planned: PlannedArchitecture, job: JobFacts | None) -> Iterator[_Told]:
    known = next((each for each in before.children if each.architecture == planned.architecture), None)
    if job is not None and job.started is not None and (known is None or known.started is None):
        yield _Told("Normal", "JobStarted", f"Job {job.name} has started.")
    if known is not None and known.phase == planned.phase:
        return
    if planned.phase == "Built":
        yield _Told("Normal", "JobCompleted", f"Job {planned.job} is complete: {planned.digest}.")
    elif planned.phase == "Failed":
        yield _Told("Warning", "JobFailed", f"Job {planned.job}: {planned.reason}: {planned.message}")


def _about_build(config: MachineOSConfigFacts, name: str) -> EventObject:
    existing = config.build(name)
    return EventObject(BUILD, name, uid_of(existing) if existing is not None else uid_placeholder(BUILD, name))


def _event(told: _Told, about: EventObject, architecture: str = "") -> PlannedEvent:
    execution = about.name if about.kind == BUILD else ""
    return PlannedEvent(
        type=told.type,
        reason=told.reason,
        message=told.message,
        architecture=architecture,
        execution=execution,
        about=about,
    )


# -- the stock builder is at work --------------------------------------------------------------------------------------


STOCK_BUILDER_REASON: Final = "StockBuilderRuns"
STOCK_BUILDER_CURE: Final = "scale it to 0 replicas, or give polyarch's builder --machine-os=off"


def stock_builder_plan(facts: BuildFacts, config: MachineOSConfigFacts, deployment: str) -> BuildPlan:
    """Nothing but a condition of the config that names the Deployment and what to do."""
    message = f"Deployment {deployment} builds this image, so polyarch does not: {STOCK_BUILDER_CURE}."
    said = Condition(conditions.PROGRESSING, "False", STOCK_BUILDER_REASON, message)
    stored: dict[str, Any] = dict(config.document.get("status") or {})
    known = stored.get("conditions") or []
    generation, now = facts.request.generation, floor(facts.now)
    (ours,) = conditions.merged([said], known, generation=generation, now=now)
    status = {**stored, "conditions": [*(each for each in known if each.get("type") != said.type), ours]}
    write = Write.status(api.CONFIGS.kind, config.name, status, step=BuildStep.REPORT, uid=uid_of(config.document))
    changed = conditions.stored(stored, said.type) != ours
    return BuildPlan(decision="Wait", reason=STOCK_BUILDER_REASON, message=message, writes=(write,) if changed else ())
