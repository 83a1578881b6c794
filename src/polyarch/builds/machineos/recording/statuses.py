"""The status of a MachineOSBuild, as its API lets it be written (BD-270 to BD-275). Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from polyarch.builds.executions.state import State
from polyarch.builds.facts.facts import JobFacts
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import Case, Document, uid_of
from polyarch.builds.machineos.recording import ephemeral
from polyarch.builds.machineos.recording.lifecycle import (
    SEEDED,
    TERMINAL,
    Stage,
    build_end,
    build_start,
    conditions,
    job_reference,
    observed_stage,
    related,
    stage_of,
    steps,
)
from polyarch.builds.plan.course import Course
from polyarch.builds.plan.document import Write
from polyarch.builds.plan.document import uid_of as placeholder

DIGEST: Final = "digest"
_TIMED: Final = frozenset({"Building", *TERMINAL})


def build_status(case: Case, course: Course, state: State) -> Iterator[Write]:
    """One write for each step of the conditions; what is published is written in one, after what was before it."""
    stored = _stored(case, state)
    jobs = [job for job in course.facts.jobs if job.run == state.name]
    wanted, now = observed_stage(state, jobs), course.facts.now
    before = stage_of(stored)
    if wanted == "Succeeded" and state.reason != SEEDED:
        todo: tuple[Stage, ...] = () if before in TERMINAL else (wanted,)
    else:
        todo = steps(before, wanted) or ((before,) if before is not None and before not in TERMINAL else ())
    for stage in todo:
        status = _status(case, state, stage, stored, jobs, now=now)
        if status != stored:
            yield _write(state.name, _uid(state), status, is_last=stage in TERMINAL)
        stored = status
    yield from _job_uid(case, state)


def refusal(case: Case, name: str, existing: Document | None, *, now: float) -> Iterator[Write]:
    """A build that has failed before it began (BD-268)."""
    stored: Mapping[str, Any] = (existing or {}).get("status") or {}
    state = State(name=name, uid=uid_of(existing) if existing is not None else "", phase="Failed")
    for stage in steps(stage_of(stored), "Failed"):
        stored = _status(case, state, stage, stored, (), now=now)
        yield _write(name, _uid(state), stored, is_last=stage in TERMINAL)


def digest(case: Case, state: State, owner: Mapping[str, Any]) -> tuple[Write, ...]:
    """The ConfigMap in which stock tools look for the digest of a result (BD-275)."""
    own = ephemeral.marks(case, state.name, "")
    name = vocabulary.ephemeral(state.name)[DIGEST]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": case.namespace,
            "labels": own.labels,
            "annotations": own.annotations,
            "ownerReferences": [dict(owner)],
        },
        "data": {DIGEST: state.result.partition("@")[2]},
    }
    return (
        Write(verb="patch", kind="ConfigMap", namespace=case.namespace, name=name, step="S9", how="apply", body=body),
    )


def _stored(case: Case, state: State) -> Mapping[str, Any]:
    existing = case.build(state.name)
    if existing is None or (uid_of(existing) != state.uid and case.record(existing) is not None):
        return {}
    if uid_of(existing) != state.uid and stage_of(existing.get("status") or {}) in TERMINAL:
        return {}
    return existing.get("status") or {}


def _status(
    case: Case, state: State, stage: Stage, stored: Mapping[str, Any], jobs: Sequence[JobFacts], *, now: float
) -> dict[str, Any]:
    names = [each.job for each in state.children if each.job]
    reason = state.reason if state.reason == SEEDED else ""
    written = conditions(stage, stored.get("conditions"), now=now, reason=reason)
    status: dict[str, Any] = {**stored, "conditions": written}
    if names:
        first = next(each.job for each in state.children if each.job)
        status["builder"] = {"imageBuilderType": "Job", "job": job_reference(case.namespace, first)}
        status["relatedObjects"] = related(case.namespace, names)
    if stage in _TIMED:
        status["buildStart"] = build_start(stored, jobs, now=now)
    if stage in TERMINAL:
        status["buildEnd"] = build_end(status["buildStart"], now=now)
    if stage == "Succeeded":
        status["digestedImagePushSpec"] = state.result
    return status


def _write(name: str, uid: str, status: Mapping[str, Any], *, is_last: bool) -> Write:
    step = "S9" if is_last else "S5"
    body = {"status": dict(status)}
    return Write(verb="status", kind=vocabulary.BUILDS.kind, name=name, step=step, uid=uid, body=body)


def _job_uid(case: Case, state: State) -> Iterator[Write]:
    uid = next((each.job_uid for each in state.children if each.job and each.job_uid), "")
    existing = case.build(state.name)
    known = ((existing or {}).get("metadata") or {}).get("annotations") or {}
    if uid and known.get(vocabulary.JOB_UID) != uid:
        body = {"metadata": {"annotations": {vocabulary.JOB_UID: uid}}}
        kind, owner = vocabulary.BUILDS.kind, _uid(state)
        yield Write(verb="patch", kind=kind, name=state.name, step="S5", how="merge", uid=owner, body=body)


def _uid(state: State) -> str:
    return state.uid or placeholder(vocabulary.BUILDS.kind, state.name)
