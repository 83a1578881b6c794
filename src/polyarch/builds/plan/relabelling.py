"""Live Jobs from which somebody took the label by which they are watched: it is put back, and no more (BD-324).

No cache shows such a Job, so it looks as if it had been deleted: a plan made from that would end its execution, or make
a second Job for the same key. So a Job that is recorded as being at work and is not there is asked for by its name,
before anything is planned. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.builds import names
from polyarch.builds.executions.state import FINAL_CHILD
from polyarch.builds.facts.facts import ChildRecord, Execution, Facts, FoundJob, Question
from polyarch.builds.facts.history import ENDED
from polyarch.builds.keys import handles
from polyarch.builds.plan.document import Plan, Write
from polyarch.builds.plan.front import Front
from polyarch.builds.plan.steps import JOB

STEP: Final = "S4"
_OF_KUBERNETES: Final = ("controller-uid", "job-name")
"""Labels that the API server adds to pod templates of Jobs, with and without a prefix."""
_LATE: Final = 1.0
"""Seconds until it is looked again whether the cache shows a Job that has its labels."""
_REFUSED: Final = 60.0


def relabelling(facts: Facts) -> Plan | None:
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


def unrecorded(facts: Facts, front: Front, ending: Iterable[Execution]) -> Plan | None:
    """The same for Jobs that were made before the builder was stopped, and not recorded yet.

    An execution that goes on finds them when it makes its Jobs. One that ends makes none: what it left would go on
    without anybody knowing, beside a second Job for the same key. Its pods' labels, which nobody can take off, tell
    that such a Job is its own.
    """
    missing = _unrecorded(facts, front, ending)
    return _asking(facts, missing) or _restoring(
        facts,
        [
            (execution, child, job)
            for execution, child in missing
            if (job := facts.found_jobs[child.job]) is not None
            and job.template_labels.get(names.RUN_LABEL) == _marks(execution)[names.RUN_LABEL]
        ],
    )


def _asking(facts: Facts, missing: Iterable[tuple[Execution, ChildRecord]]) -> Plan | None:
    unknown = [child.job for _, child in missing if child.job not in facts.found_jobs]
    if not unknown:
        return None
    return Plan(
        decision="Wait",
        reason="Asking",
        message=f"{', '.join(unknown)} has to be looked up first.",
        questions=tuple(Question(reference=each, what="job") for each in unknown),
    )


def _restoring(facts: Facts, alive: Sequence[tuple[Execution, ChildRecord, FoundJob]]) -> Plan | None:
    if not alive:
        return None
    what = ", ".join(child.job for _, child, _ in alive)
    refusal = next((each for each in facts.failures if (each.step, each.verb, each.kind) == (STEP, "patch", JOB)), None)
    if refusal is not None:
        message = f"Job {refusal.name} had lost labels, which cannot be put back: {refusal.message}"
        return Plan(decision="Wait", reason=refusal.code, message=message, requeue_after=_REFUSED)
    return Plan(
        decision="Wait",
        reason="LabelsRestored",
        message=f"{what} had lost labels, which are put back.",
        execution=alive[0][0].name,
        writes=tuple(each for one in alive if (each := _patch(*one)) is not None),
        requeue_after=_LATE,
    )


def _missing(facts: Facts) -> list[tuple[Execution, ChildRecord]]:
    """What is recorded as being at work, by name of the Job, where no Job of that name is known."""
    there = {job.name for job in facts.jobs}
    found = {
        child.job: (execution, child)
        for execution in facts.executions
        if execution.phase not in ENDED and not execution.deleting
        for child in execution.children
        if child.job_uid and child.phase not in FINAL_CHILD and child.job not in there
    }
    return [found[name] for name in sorted(found)]


def _unrecorded(facts: Facts, front: Front, ending: Iterable[Execution]) -> list[tuple[Execution, ChildRecord]]:
    """Architectures of which no Job is known, with the name that it would have."""
    there = {job.name for job in facts.jobs}
    found = []
    for execution in ending:
        records = {each.architecture: each for each in execution.children}
        for each in execution.keys:
            name = front.job_name(execution.name, each.architecture, architectures=len(execution.keys))
            child = records.get(each.architecture) or ChildRecord(architecture=each.architecture)
            if name not in there and not child.job_uid and child.phase not in FINAL_CHILD:
                found.append((execution, msgspec.structs.replace(child, job=name)))
    return found


def _marks(execution: Execution) -> Mapping[str, str]:
    return handles.marks(image_build=execution.owner_name, execution=execution.name, role="").labels


def _patch(execution: Execution, child: ChildRecord, job: FoundJob) -> Write | None:
    """The Job gets the labels of its pods; that of its execution it may have got when it was taken over (S2)."""
    labels = {
        name: value
        for name, value in {**job.template_labels, **_marks(execution)}.items()
        if name.rpartition("/")[2] not in _OF_KUBERNETES and job.labels.get(name) != value
    }
    if not labels:
        return None
    return Write(
        verb="patch",
        kind=JOB,
        namespace=execution.namespace,
        name=child.job,
        how="merge",
        step=STEP,
        uid=job.uid,
        body={"metadata": {"labels": labels}},
    )
