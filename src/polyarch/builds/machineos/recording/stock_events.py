"""The events of stock builders of machine OS images, by their reasons and at their objects (BD-290). Pure.

Who watches for them finds what a stock builder would have told; what it would not have told is told of the config, in
the words of all builds (BD-242). Each belongs to a write of the plan, so it is posted once, when that was carried out.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from polyarch.builds.facts.facts import Execution, Facts, JobFacts
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case, condition, name_of, uid_of
from polyarch.builds.machineos.recording.lifecycle import Stage, stage_of
from polyarch.builds.machineos.recording.reports import DEGRADED
from polyarch.builds.plan import conditions
from polyarch.builds.plan.document import About, Plan, PlannedArchitecture, PlannedEvent, Write
from polyarch.builds.plan.document import uid_of as placeholder

BUILD: Final = vocabulary.BUILDS.kind
CONFIG: Final = vocabulary.CONFIGS.kind
POOL: Final = vocabulary.POOLS.kind
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


def of(facts: Facts, case: Case, found: Plan) -> Iterator[PlannedEvent]:
    """What became of the Jobs, then what follows from it, in the order of the writes."""
    yield from _jobs(facts, case, found)
    stages: dict[str, Stage | None] = {name_of(each): stage_of(each.get("status") or {}) for each in case.builds}
    for write in found.writes:
        match write.verb, write.kind:
            case "create", "MachineOSBuild":
                yield from _started(case, write)
            case "status", "MachineOSBuild":
                before, stages[write.name] = stages.get(write.name), stage_of(write.body["status"])
                yield from _moved(write, before, stages[write.name])
            case "delete", "MachineOSBuild":
                about = About(BUILD, write.name, write.uid)
                message = f"{write.name} gives way to another build of {case.name}; what it has made is used again."
                yield _event(_Told("Normal", "BuildDeleted", message), about)
            case "create", "Job":
                told = _Told("Normal", "JobCreated", f"Job {write.name} is made.")
                yield _event(told, _about_build(case, found.execution))
            case "delete", "Job":
                yield from _deleted(facts, case, write)
            case "status", "MachineOSConfig":
                yield from _reconciled(facts, case, write)
            case "status", "MachineConfigPool":
                yield from _degraded(case, write)
            case _:
                pass


def _started(case: Case, write: Write) -> Iterator[PlannedEvent]:
    latest = max(
        case.builds, key=lambda each: str((each.get("metadata") or {}).get("creationTimestamp") or ""), default=None
    )
    before = str((((latest or {}).get("spec") or {}).get("machineConfig") or {}).get("name") or "")
    if before and before != case.rendered_name and case.pool is not None:
        message = f"The rendered MachineConfig changed from {before} to {case.rendered_name}."
        yield _event(_Told("Normal", "PoolConfigChanged", message), About(POOL, case.pool_name, uid_of(case.pool)))
    message = f"The image of pool {case.pool_name} is built with MachineConfig {case.rendered_name}."
    about = About(BUILD, write.name, placeholder(BUILD, write.name))
    yield _event(_Told("Normal", "BuildStarted", message), about)


def _moved(write: Write, before: Stage | None, after: Stage | None) -> Iterator[PlannedEvent]:
    if after is None or before == after:
        return
    told = _STAGES.get(after)
    if after == _COMPLETED:
        message = f"The image is {write.body['status'].get('digestedImagePushSpec')}."
        told = _Told("Normal", "BuildCompleted", message)
    if told is not None:
        yield _event(told, About(BUILD, write.name, write.uid))


def _deleted(facts: Facts, case: Case, write: Write) -> Iterator[PlannedEvent]:
    job = next((each for each in facts.jobs if each.uid == write.uid), None)
    if job is not None and job.run:
        yield _event(_Told("Normal", "JobDeleted", f"Job {job.name} is deleted."), _about_build(case, job.run))


def _reconciled(facts: Facts, case: Case, write: Write) -> Iterator[PlannedEvent]:
    """A change of the spec was taken in, or cannot be."""
    stored: Mapping[str, Any] = case.config.get("status") or {}
    wanted = write.body["status"]
    wrong = conditions.stored(wanted, conditions.INPUTS_VALID)
    known = conditions.stored(stored, conditions.INPUTS_VALID)
    about = About(CONFIG, case.name, uid_of(case.config))
    if wrong.get("status") == "False" and wrong.get("message") != known.get("message"):
        yield _event(_Told("Warning", "ConfigReconcileFailed", str(wrong.get("message"))), about)
    elif 0 < int(stored.get("observedGeneration") or 0) < facts.wish.generation:
        yield _event(_Told("Normal", "ConfigReconciled", "The change of the spec is taken in."), about)


def _degraded(case: Case, write: Write) -> Iterator[PlannedEvent]:
    before, after = condition(case.pool, DEGRADED), condition(write.body, DEGRADED)
    about = About(CONFIG, case.name, uid_of(case.config))
    if after == "True" and before != "True":
        message = f"The image of pool {case.pool_name} cannot be built: see condition {DEGRADED} of the pool."
        yield _event(_Told("Warning", "BuildDegraded", message), about)
    elif before == "True" and after == "False":
        message = f"The image of pool {case.pool_name} is built, or being built, again."
        yield _event(_Told("Normal", "BuildRecovered", message), about)


def _jobs(facts: Facts, case: Case, found: Plan) -> Iterator[PlannedEvent]:
    """What became of the Jobs of the build under way: as often as it is recorded, which is once."""
    before = next((each for each in facts.executions if each.name == found.execution), None)
    if before is None or not found.writes:
        return
    about = _about_build(case, found.execution)
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


def _about_build(case: Case, name: str) -> About:
    existing = case.build(name)
    return About(BUILD, name, uid_of(existing) if existing is not None else placeholder(BUILD, name))


def _event(told: _Told, about: About, architecture: str = "") -> PlannedEvent:
    execution = about.name if about.kind == BUILD else ""
    return PlannedEvent(
        type=told.type,
        reason=told.reason,
        message=told.message,
        architecture=architecture,
        execution=execution,
        about=about,
    )
