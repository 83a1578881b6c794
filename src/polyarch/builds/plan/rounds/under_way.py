"""The round of a build whose execution goes on, or begins. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from polyarch.builds.architectures.hosts import host_of
from polyarch.builds.architectures.preflight import preflight
from polyarch.builds.executions.carrying import Carried, carried
from polyarch.builds.executions.moves import UNREACHABLE, Move, Rules, moves
from polyarch.builds.executions.reuse import destination
from polyarch.builds.executions.target import Target
from polyarch.builds.executions.wanted import Wanted
from polyarch.builds.facts.facts import Execution, Facts, Question
from polyarch.builds.facts.problem import Problem
from polyarch.builds.plan.choice import Choice
from polyarch.builds.plan.document import Outcome, uid_of
from polyarch.builds.plan.front import Front
from polyarch.builds.plan.making import Making, forbidden, oversized, unread_runtimes
from polyarch.builds.plan.rounds.decided import Round, standing, stored_tags
from polyarch.builds.plan.rounds.waiting import waiting
from polyarch.builds.plan.steps import JOB


def in_progress(facts: Facts, front: Front, known: Wanted, choice: Choice, active: Execution) -> Round:
    """The execution under way is the right one: it goes on."""
    target = choice.target
    found = moves(facts, target, active, _rules(facts, front, target, active.name))
    if questions := unread_runtimes(facts, [move.child.architecture for move in found if move.build]):
        return Round(decision="Wait", reason="Asking", message="", questions=questions)
    done = _carry(facts, front, target, found, before=active, name=active.name, serial=active.serial)
    return _going_on(facts, target, done, active, "InProgress", f"{active.name} makes what is wanted.")


def new(facts: Facts, front: Front, known: Wanted, choice: Choice) -> Round:
    """Nothing that exists is right: a new execution, unless something forbids it now."""
    target = choice.target
    obstacle = front.obstacle(facts)
    if obstacle is not None:
        return waiting(facts, known, (), obstacle=obstacle, target=target)
    name, serial = front.name(facts, target)
    found = moves(facts, target, None, _rules(facts, front, target, name))
    questions = [question for move in found for question in move.questions]
    if questions:
        return Round(decision="Wait", reason="Asking", message="", questions=tuple(questions))
    unread = [move.child.message for move in found if move.child.reason == UNREACHABLE]
    if unread:
        return waiting(facts, known, (Problem(reason=UNREACHABLE, message=" ".join(unread)),), target=target)
    warnings: tuple[Problem, ...] = ()
    if any(move.needs_job for move in found):
        secrets = tuple(Question(reference=each, what="secret") for each in known.inputs.unread_secrets)
        verdict = preflight(facts, target.architectures, known.inputs)
        place = destination(facts, target)
        runtimes = unread_runtimes(facts, target.architectures)
        asked = (*secrets, *verdict.questions, *runtimes, *([place] if isinstance(place, Question) else []))
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
    facts: Facts, target: Target, done: Carried, before: Execution | None, decision: Outcome, message: str
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
    facts: Facts,
    front: Front,
    target: Target,
    found: Sequence[Move],
    *,
    before: Execution | None,
    name: str,
    serial: int,
) -> Carried:
    count = len(found)
    made = [_with_uid(each) for each in found]
    child_tags = {
        each.child.architecture: front.child_tag(facts, name, each.child.architecture, architectures=count)
        for each in found
    }
    return carried(
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


def _with_uid(move: Move) -> Move:
    """A Job that is made in this round is recorded with its UID, as soon as it has one."""
    if not move.build:
        return move
    child = msgspec.structs.replace(move.child, job_uid=uid_of(JOB, move.child.job))
    return msgspec.structs.replace(move, child=child)


def _rules(facts: Facts, front: Front, target: Target, name: str) -> Rules:
    count = len(target.architectures)

    def host(architecture: str) -> tuple[str, str]:
        found = host_of(facts, architecture)
        return found.architecture, found.execution

    def job_name(architecture: str) -> str:
        return front.job_name(name, architecture, architectures=count)

    return Rules(name=name, job_name=job_name, host=host)


def _manifests(facts: Facts, front: Front, known: Wanted, target: Target, name: str) -> Iterator[Mapping[str, Any]]:
    """Everything that the Jobs of a new execution would be given."""
    rules = _rules(facts, front, target, name)
    for each in target.architectures:
        making = Making(
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
