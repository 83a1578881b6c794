"""A round: what is done now, and what of a build it leaves as it is. Pure.

It says which execution is carried on and how, which ones end, which result is the published one, and what keeps the
build waiting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.formats import BuildTimes
from polyarch.builds.architectures import host_of
from polyarch.builds.base_images import PreflightResult, preflight
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    Execution,
    Problem,
    WriteFailure,
    active_execution,
    current_execution,
    seconds,
)
from polyarch.builds.jobs.results import IndexJobRequest, index_job_request, index_job_status
from polyarch.builds.plan import conditions
from polyarch.builds.plan.actions import UNREACHABLE, ArchitectureAction, ExecutionRules, next_actions
from polyarch.builds.plan.choice import ExecutionChoice
from polyarch.builds.plan.document import BuildDecision, Write, uid_placeholder
from polyarch.builds.plan.failures import LOOK_UP_INTERVAL, SECRET_INTERVAL, SHORTEST_PAUSE, FailureHold, pause_since
from polyarch.builds.plan.kind import BuildKind, JobInputs, forbidden, oversized, unread_runtimes
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest, recorded_build
from polyarch.builds.plan.reuse import ExecutionState, destination
from polyarch.builds.plan.update import (
    ExecutionUpdate,
    recorded_state,
    republication,
    update_execution,
    why_unpublished,
)
from polyarch.builds.plan.writes import JOB, tagging

FIRST_RETRY: Final = 15.0
"""Seconds until something that may pass is tried again for the first time."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What is done now."""

    decision: BuildDecision
    reason: str
    message: str
    target: DesiredBuild | None = None
    before: Execution | None = None
    carried: ExecutionUpdate | None = None
    index_work: IndexJobRequest | None = None
    """A Job is made that gives a finished result its tags."""
    awaited: str = ""
    """UID of that Job once it is there."""
    ends_others: bool = False
    """Executions under way, but for the one that is carried on, are superseded."""
    current: ExecutionState | None = None
    """The published result after the round."""
    retag: Write | None = None
    tags: tuple[str, ...] = ()
    """Of the spec, as they stand after the round."""
    problems: tuple[Problem, ...] = ()
    undecided: bool = False
    obstacle: Problem | None = None
    hold: FailureHold | None = None
    trouble: WriteFailure | None = None
    """A step that failed, outside of any execution."""
    warnings: tuple[Problem, ...] = ()
    questions: tuple[BuildLookup, ...] = ()
    requeue_after: float | None = None


def stored_tags(facts: BuildFacts) -> tuple[str, ...]:
    """The tags of the spec that are on the published result."""
    return tuple(facts.wish.status.get("tags") or ())


def standing(facts: BuildFacts) -> ExecutionState | None:
    """The published result, as it is recorded."""
    current = current_execution(facts)
    return recorded_state(current) if current is not None else None


# -- The round of a build for which nothing new is started: what is wrong, and when it is looked at again. Pure.


SPEC_REASONS: Final = frozenset(
    {
        "InvalidSpec",
        "ContainerfileInvalid",
        "ContainerfileMissing",
        "IndexForbidden",
        "ProfileForbidden",
        "NameTooLong",
        "DigestFormUnsupported",
        "KernelTypeUnsupportedForArchitecture",
    }
)
"""Reasons that only a change of the spec ends."""
INVALID_REASONS: Final = SPEC_REASONS | {"BaseImageArchitectureMissing", "BuilderImageArchitectureMissing"}
"""What cannot be built as it is said: ``Invalid``, though an image may get what it lacks. The others: ``Wait``."""
OBJECT_REASONS: Final = frozenset({"InputMissing", "SecretInvalid", "PodSecurityForbids", "NamespaceNotEnabled"})


def held(facts: BuildFacts, known: ResolvedRequest, choice: ExecutionChoice, hold: FailureHold) -> Round:
    """The newest execution failed, and nothing that failed it has changed."""
    return Round(
        decision="Held",
        reason=hold.causes[0].reason,
        message=hold.message,
        target=choice.target,
        ends_others=True,
        current=standing(facts),
        tags=stored_tags(facts),
        hold=hold,
        requeue_after=hold.requeue_after,
    )


def waiting(
    facts: BuildFacts,
    known: ResolvedRequest,
    problems: Sequence[Problem],
    *,
    obstacle: Problem | None = None,
    target: DesiredBuild | None = None,
    trouble: WriteFailure | None = None,
    verdict: PreflightResult | None = None,
) -> Round:
    """Nothing new is started. What runs is looked at, but makes no further Jobs and publishes nothing."""
    active = active_execution(facts)
    done = None
    if active is not None:
        own = recorded_build(active)
        rules = ExecutionRules(name=active.name, job_name=lambda _: "", host=lambda _: ("", ""), may_start=False)
        found = next_actions(facts, own, active, rules)
        done = update_execution(
            facts,
            own,
            found,
            before=active,
            name=active.name,
            serial=active.serial,
            tags=(),
            child_tags={},
            publishes=False,
        )
    first = problems[0] if problems else obstacle
    reason = first.reason if first is not None else known.resolved.wait
    messages = [each.message for each in problems] or [first.message if first is not None else known.resolved.message]
    undecided, pause = _patience(facts, problems, verdict)
    return Round(
        decision="Invalid" if any(each.reason in INVALID_REASONS for each in problems) else "Wait",
        reason=reason,
        message=" ".join(messages),
        target=target,
        before=active,
        carried=done,
        current=standing(facts),
        tags=stored_tags(facts),
        problems=tuple(problems),
        undecided=undecided,
        obstacle=obstacle,
        trouble=trouble,
        questions=done.questions if done is not None else (),
        requeue_after=sooner(pause, done.requeue_after if done is not None else None),
    )


def unreachable(what: str) -> Problem:
    """A registry that does not say what is there."""
    return Problem(reason=UNREACHABLE, message=f"{what}; it is tried again.")


def sooner(*times: float | None) -> float | None:
    """The first of some times, None for none."""
    return min((each for each in times if each is not None), default=None)


def _patience(
    facts: BuildFacts, problems: Sequence[Problem], verdict: PreflightResult | None
) -> tuple[bool, float | None]:
    """Whether it is too early to call the inputs invalid, and when to look again (the failure table)."""
    reasons = {each.reason for each in problems}
    if reasons & OBJECT_REASONS:
        return False, SECRET_INTERVAL
    if not reasons or reasons <= SPEC_REASONS:
        return False, None
    if reasons != {UNREACHABLE}:
        return False, LOOK_UP_INTERVAL
    stored = conditions.stored(facts.wish.status, conditions.INPUTS_VALID)
    since = seconds(stored.get("lastTransitionTime")) if stored.get("reason") == UNREACHABLE else None
    since = since if since is not None else facts.now
    asked = verdict.retry_after if verdict is not None and verdict.retry_after is not None else 0.0
    if stored.get("status") == "False" and stored.get("reason") == UNREACHABLE:
        return False, max(asked, pause_since(since, facts.now))
    left = since + BuildTimes.of(facts.wish.spec).preflight - facts.now
    if left <= 0:
        return False, max(asked, pause_since(facts.now, facts.now))
    return True, min(left, max(asked, FIRST_RETRY))


# -- The round of a build whose execution goes on, or begins. Pure.


def continued(
    facts: BuildFacts, front: BuildKind, known: ResolvedRequest, choice: ExecutionChoice, active: Execution
) -> Round:
    """The execution under way is the right one: it goes on."""
    target = choice.target
    found = next_actions(facts, target, active, _rules(facts, front, target, active.name))
    if questions := unread_runtimes(facts, [move.child.architecture for move in found if move.build]):
        return Round(decision="Wait", reason="Asking", message="", questions=questions)
    done = _carry(facts, front, target, found, before=active, name=active.name, serial=active.serial)
    return _going_on(facts, target, done, active, "InProgress", f"{active.name} makes what is wanted.")


def new_execution(facts: BuildFacts, front: BuildKind, known: ResolvedRequest, choice: ExecutionChoice) -> Round:
    """Nothing that exists is right: a new execution, unless something forbids it now."""
    target = choice.target
    obstacle = front.obstacle(facts)
    if obstacle is not None:
        return waiting(facts, known, (), obstacle=obstacle, target=target)
    name, serial = front.name(facts, target)
    found = next_actions(facts, target, None, _rules(facts, front, target, name))
    questions = [question for move in found for question in move.questions]
    if questions:
        return Round(decision="Wait", reason="Asking", message="", questions=tuple(questions))
    unread = [move.child.message for move in found if move.child.reason == UNREACHABLE]
    if unread:
        return waiting(facts, known, (Problem(reason=UNREACHABLE, message=" ".join(unread)),), target=target)
    warnings: tuple[Problem, ...] = ()
    if any(move.needs_job for move in found):
        secrets = tuple(BuildLookup(reference=each, what="secret") for each in known.inputs.unread_secrets)
        verdict = preflight(facts, target.architectures, known.inputs)
        place = destination(facts, target)
        runtimes = unread_runtimes(facts, target.architectures)
        asked = (*secrets, *verdict.questions, *runtimes, *([place] if isinstance(place, BuildLookup) else []))
        if asked:
            return Round(decision="Wait", reason="Asking", message="", questions=asked)
        nowhere = [place] if isinstance(place, Problem) else []
        too_large = oversized(_manifests(facts, front, known, target, name))
        problems = (
            *forbidden(facts, target.architectures),
            *too_large,
            *verdict.problems,
            *verdict.unreachable,
            *nowhere,
        )
        if problems:
            return waiting(facts, known, problems, target=target, verdict=verdict)
        warnings = verdict.warnings
    conflict = next((each for each in facts.failures if each.step == "S1" and each.name == name), None)
    if conflict is not None:
        problem = Problem(reason=conflict.code, message=f"{conflict.kind} {name}: {conflict.message}")
        return waiting(facts, known, (), obstacle=problem, target=target, trouble=conflict)
    done = _carry(facts, front, target, found, before=None, name=name, serial=serial)
    builds = [move.child.architecture for move in found if move.reuse is None]
    text = f"{name} builds {', '.join(builds)}." if builds else f"{name} joins images that are there."
    round_ = _going_on(facts, target, done, None, "Build" if builds else "Reassemble", text)
    return msgspec.structs.replace(round_, warnings=warnings)


def _going_on(
    facts: BuildFacts,
    target: DesiredBuild,
    done: ExecutionUpdate,
    before: Execution | None,
    decision: BuildDecision,
    message: str,
) -> Round:
    published = done.published
    return Round(
        decision=decision,
        reason=done.state.reason or done.state.phase,
        message=message,
        target=target,
        before=before,
        carried=done,
        ends_others=True,
        current=published if published is not None else standing(facts),
        tags=tuple(facts.wish.spec.output.tags or ()) if published is not None else stored_tags(facts),
        questions=done.questions,
        requeue_after=done.requeue_after,
    )


def _carry(
    facts: BuildFacts,
    front: BuildKind,
    target: DesiredBuild,
    found: Sequence[ArchitectureAction],
    *,
    before: Execution | None,
    name: str,
    serial: int,
) -> ExecutionUpdate:
    count = len(found)
    made = [_with_uid(each) for each in found]
    child_tags = {
        each.child.architecture: front.child_tag(facts, name, each.child.architecture, architectures=count)
        for each in found
    }
    return update_execution(
        facts,
        target,
        made,
        before=before,
        name=name,
        serial=serial,
        tags=front.tags(facts, name),
        child_tags=child_tags,
        index_job=front.index_job_name(name),
    )


def _with_uid(move: ArchitectureAction) -> ArchitectureAction:
    """A Job that is made in this round is recorded with its UID, as soon as it has one."""
    if not move.build:
        return move
    child = msgspec.structs.replace(move.child, job_uid=uid_placeholder(JOB, move.child.job))
    return msgspec.structs.replace(move, child=child)


def _rules(facts: BuildFacts, front: BuildKind, target: DesiredBuild, name: str) -> ExecutionRules:
    count = len(target.architectures)

    def host(architecture: str) -> tuple[str, str]:
        found = host_of(facts, architecture)
        return found.architecture, found.execution

    def job_name(architecture: str) -> str:
        return front.job_name(name, architecture, architectures=count)

    return ExecutionRules(name=name, job_name=job_name, host=host)


def _manifests(
    facts: BuildFacts, front: BuildKind, known: ResolvedRequest, target: DesiredBuild, name: str
) -> Iterator[Mapping[str, Any]]:
    """Everything that the Jobs of a new execution would be given."""
    rules = _rules(facts, front, target, name)
    for each in target.architectures:
        making = JobInputs(
            facts=facts,
            target=target,
            inputs=known.inputs,
            architecture=each,
            execution=name,
            owner=front.owner(name, ""),
            job=rules.job_name(each),
            host=rules.host(each)[0],
            tag="",
        )
        yield from front.manifests(making)


# -- The round of a build whose result is there: at most its tags move (``UpToDate``, ``Retag``, ``Repoint``). Pure.


def finished(facts: BuildFacts, front: BuildKind, choice: ExecutionChoice, execution: Execution) -> Round:
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
            current=standing(facts) if moved else recorded_state(execution),
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
            current=standing(facts) if moved else recorded_state(execution),
            tags=stored,
            index_work=tagged.work,
            awaited=tagged.awaited,
        )
    decision: BuildDecision = "Repoint" if moved else "Retag" if lacking or set(stored) != set(wished) else "UpToDate"
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
        current=recorded_state(execution),
        retag=retag,
        tags=wished,
    )


class _Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Job is that moves tags."""

    is_done: bool = False
    work: IndexJobRequest | None = None
    awaited: str = ""
    trouble: WriteFailure | None = None


def _tagged_by_job(facts: BuildFacts, front: BuildKind, execution: Execution) -> _Tagged:
    """What failed is tried again after a time, since nobody says when the registry would take it.

    The Job that published the result has moved the tags already, if they were asked for then.
    """
    if not facts.leaves_registries_to_jobs:
        return _Tagged(is_done=True)
    document = republication(execution, front.tags(facts, execution.name))
    work = index_job_request(execution.name, execution.uid, document, execution.children)
    seen = index_job_status(facts.jobs, work, build=facts.wish.name)
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


def _trouble(facts: BuildFacts, verb: str, name: str) -> WriteFailure | None:
    return next((each for each in facts.failures if each.verb == verb and each.name == name), None)
