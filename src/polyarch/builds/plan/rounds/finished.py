"""The round of a build whose result is there: at most its tags move (``UpToDate``, ``Retag``, ``Repoint``). Pure."""

import msgspec

from polyarch.builds.executions.carrying import kept, why_unpublished
from polyarch.builds.executions.failures import LOOK_UP_INTERVAL, SECRET_INTERVAL, SHORTEST_PAUSE
from polyarch.builds.executions.result import republication
from polyarch.builds.facts.facts import Execution, Facts, StepFailure
from polyarch.builds.jobs.index_outcome import IndexWork, index_outcome, index_work
from polyarch.builds.plan.choice import Choice
from polyarch.builds.plan.document import Outcome
from polyarch.builds.plan.front import Front
from polyarch.builds.plan.rounds.decided import FIRST_RETRY, Round, standing, stored_tags
from polyarch.builds.plan.steps import tagging


def finished(facts: Facts, front: Front, choice: Choice, execution: Execution) -> Round:
    """The current result, or an older one, is what is wanted: at most tags move."""
    wished = tuple(facts.wish.spec.output.tags or ())
    stored = stored_tags(facts)
    moved = choice.decision == "Repoint"
    lacking = wished if moved else tuple(each for each in wished if each not in stored)
    tagged = _tagged_by_job(facts, front, execution) if lacking else _Tagged(is_done=True)
    trouble = tagged.trouble or _trouble(facts, "tag", execution.name)
    by_job = facts.leaves_registries_to_jobs
    retag = tagging(facts.wish.namespace, execution.name, execution.result, lacking) if lacking and not by_job else None
    if trouble is not None:
        usual = FIRST_RETRY if trouble.passing else SECRET_INTERVAL
        pause = trouble.retry_after if trouble.retry_after is not None else usual
        return Round(
            decision="Repoint" if moved else "Retag",
            reason=trouble.code,
            message=trouble.message,
            target=choice.target,
            ends_others=True,
            current=standing(facts) if moved else kept(execution),
            tags=stored,
            awaited=tagged.awaited,
            trouble=trouble,
            requeue_after=max(pause, 1.0),
        )
    if not tagged.is_done:
        return Round(
            decision="Repoint" if moved else "Retag",
            reason="Covered",
            message=f"Job {front.index_job_name(execution.name)} moves the tags of {execution.result}.",
            target=choice.target,
            ends_others=True,
            current=standing(facts) if moved else kept(execution),
            tags=stored,
            index_work=tagged.work,
            awaited=tagged.awaited,
        )
    decision: Outcome = "Repoint" if moved else "Retag" if lacking or set(stored) != set(wished) else "UpToDate"
    messages = {
        "Repoint": f"{execution.result} of {execution.name} was made from the same inputs: it is published again.",
        "Retag": f"The tags of {execution.result} change; nothing is built.",
        "UpToDate": f"{execution.result} is what is wanted; nothing is built.",
    }
    return Round(
        decision=decision,
        reason="Covered",
        message=messages[decision],
        target=choice.target,
        ends_others=True,
        current=kept(execution),
        retag=retag,
        tags=wished,
    )


class _Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Job is that moves tags."""

    is_done: bool = False
    work: IndexWork | None = None
    awaited: str = ""
    trouble: StepFailure | None = None


def _tagged_by_job(facts: Facts, front: Front, execution: Execution) -> _Tagged:
    """What failed is tried again after a time, since nobody says when the registry would take it (BD-178).

    The Job that published the result has moved the tags already, if they were asked for then.
    """
    if not facts.leaves_registries_to_jobs:
        return _Tagged(is_done=True)
    document = republication(execution, front.tags(facts, execution.name))
    work = index_work(execution.name, execution.uid, document, execution.children)
    seen = index_outcome(facts.jobs, work, build=facts.wish.name)
    name = front.index_job_name(execution.name)
    refused = next((each for each in facts.failures if each.verb == "create" and each.name.startswith(name)), None)
    if refused is not None:
        return _Tagged(trouble=msgspec.structs.replace(refused, retry_after=SHORTEST_PAUSE))
    if seen.job is None:
        return _Tagged(work=work if seen.is_free else None)
    ended = seen.job.failure if seen.job.failure is not None else seen.job.complete
    if ended is None:
        return _Tagged(awaited=seen.job.uid)
    problem = why_unpublished(seen, work, name)
    if problem is None:
        return _Tagged(is_done=True)
    left = ended + LOOK_UP_INTERVAL - facts.now
    trouble = msgspec.structs.replace(problem, retry_after=max(left, 1.0))
    return _Tagged(awaited=seen.job.uid if left > 0 else "", trouble=trouble)


def _trouble(facts: Facts, verb: str, name: str) -> StepFailure | None:
    return next((each for each in facts.failures if each.verb == verb and each.name == name), None)
