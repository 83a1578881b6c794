"""The planner: from the facts about one build to its plan. Pure.

``plan`` reads as the rules do: what is wanted, which execution is right for it, what is done now; then what is told
about it and written. Equal facts give an equal plan, and planning after its own writes gives no further ones."""

from collections.abc import Sequence

from polyarch.builds import names
from polyarch.builds.api.resources import Base, BaseChild, LastFailure
from polyarch.builds.facts.build_facts import (
    ENDED,
    BuildFacts,
    BuildLookup,
    ChildRecord,
    Execution,
    PinnedBase,
    current_execution,
    own_executions,
    written,
)
from polyarch.builds.plan import conditions
from polyarch.builds.plan.actions import ArchitectureAction, ExecutionRules, next_actions
from polyarch.builds.plan.choice import ExecutionChoice, choose_execution, is_new_token
from polyarch.builds.plan.conditions import (
    abandoned_tags_event,
    execution_events,
    notice_events,
    repointed_event,
    superseded_events,
)
from polyarch.builds.plan.document import (
    Action,
    BuildPlan,
    PlannedArchitecture,
    PlannedEvent,
    PlannedIndex,
    uid_placeholder,
)
from polyarch.builds.plan.failures import causes_of, explained
from polyarch.builds.plan.image_build import IMAGE_BUILD
from polyarch.builds.plan.kind import BuildKind, JobInputs, PlanOutcome
from polyarch.builds.plan.outcome import (
    Round,
    continued,
    finished,
    held,
    new_execution,
    sooner,
    stored_tags,
    unreachable,
    waiting,
)
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest, recorded_build, resolve_request
from polyarch.builds.plan.reuse import FAULTY_CHILD, ExecutionState, covers, ended_by_itself, usable
from polyarch.builds.plan.update import PARTIAL, ExecutionUpdate, recorded_state, superseded_state
from polyarch.builds.plan.writes import relabelling, unrecorded, writes
from polyarch.objects import Condition


def plan_build(facts: BuildFacts, front: BuildKind = IMAGE_BUILD) -> BuildPlan:
    """What is to be done about one build now, and why."""
    if (unlabelled := relabelling(facts)) is not None:
        return unlabelled
    known = resolve_request(facts)
    if known.questions:
        return _asking(known, known.questions)
    choice = None
    if known.target is None:
        round_ = waiting(facts, known, known.problems)
    else:
        choice = choose_execution(facts, known, known.target, front)
        if choice.questions:
            return _asking(known, choice.questions)
        round_ = _round(facts, front, known, choice)
    if round_.questions:
        return _asking(known, round_.questions)
    ending = _superseded(facts, round_)
    if (unseen := unrecorded(facts, front, [each for each, _ in ending])) is not None:
        return unseen
    return _planned(facts, front, known, choice, round_, ending)


def _round(facts: BuildFacts, front: BuildKind, known: ResolvedRequest, choice: ExecutionChoice) -> Round:
    if choice.unreachable:
        problem = unreachable(choice.unreachable)
        return waiting(facts, known, (problem,), target=choice.target)
    if choice.hold is not None:
        return held(facts, known, choice, choice.hold)
    if choice.execution is None:
        return new_execution(facts, front, known, choice)
    if choice.decision == "InProgress":
        return continued(facts, front, known, choice, choice.execution)
    return finished(facts, front, choice, choice.execution)


def _asking(known: ResolvedRequest, questions: Sequence[BuildLookup]) -> BuildPlan:
    asked = tuple(sorted(set(questions), key=lambda each: (each.what, each.reference, each.revalidate)))
    return BuildPlan(
        decision="Wait",
        reason="Asking",
        message=f"{', '.join(each.reference for each in asked)} has to be looked up first.",
        architectures=known.resolved.architectures,
        questions=asked,
    )


# -- the round as a course, and the course as a plan -------------------------------------------------------------------


def _planned(
    facts: BuildFacts,
    front: BuildKind,
    known: ResolvedRequest,
    choice: ExecutionChoice | None,
    round_: Round,
    ending: tuple[tuple[Execution, ExecutionState], ...],
) -> BuildPlan:
    target, done = round_.target, round_.carried
    state = done.state if done is not None else None
    told = _events(facts, known, choice, round_, ending)
    course = PlanOutcome(
        facts=facts,
        decision=round_.decision,
        reason=round_.reason,
        message=round_.message,
        architectures=known.resolved.architectures or None,
        target=target,
        documents=known.documents,
        per_architecture=_per_architecture(facts, known, round_),
        index=_index(target, round_),
        before=round_.before,
        execution=state,
        held=round_.hold.execution if round_.hold is not None else "",
        superseded=ending,
        index_work=done.index_work if done is not None else round_.index_work,
        awaited=round_.awaited,
        current=round_.current,
        problems=round_.problems,
        conditions=_conditions(facts, known, round_),
        summary=_summary(facts, known, round_),
        tags=round_.tags,
        rebuild_token=_token(facts, round_),
        bases=_bases(known, round_),
        last_failure=_last_failure(facts, state),
        requeue_after=sooner(round_.requeue_after, known.requeue_after),
    )
    makings = _makings(facts, front, known, round_)
    found = writes(course, front, done, makings=makings, kind=EXECUTION_KINDS[facts.wish.kind], retag=round_.retag)
    if any(write.step == "S10" for write in found):
        told = [*told, *_notices(known, choice, round_)]
    return BuildPlan(
        decision=course.decision,
        reason=course.reason,
        message=course.message,
        architectures=known.resolved.architectures,
        keys=target.keys if target is not None else {},
        build_key=target.build_key if target is not None else "",
        execution=_execution_name(round_),
        per_architecture=course.per_architecture,
        index=course.index,
        tags=front.tags(facts, _execution_name(round_)) if _execution_name(round_) else (),
        conditions=course.conditions,
        events=tuple(told),
        writes=found,
        requeue_after=course.requeue_after,
        key_documents=known.documents,
    )


EXECUTION_KINDS = {"ImageBuild": names.IMAGE_BUILD_RUNS.kind, "MachineOSConfig": "MachineOSBuild"}


def _superseded(facts: BuildFacts, round_: Round) -> tuple[tuple[Execution, ExecutionState], ...]:
    """Executions under way that are not the right one end; what their Jobs have done is recorded."""
    if not round_.ends_others:
        return ()
    kept_name = round_.carried.recorded.name if round_.carried is not None else ""
    found = []
    for each in own_executions(facts):
        if each.phase in ENDED or each.deleting or each.name == kept_name:
            continue
        rules = ExecutionRules(name=each.name, job_name=lambda _: "", host=lambda _: ("", ""), may_start=False)
        seen = next_actions(facts, recorded_build(each), each, rules)
        found.append((each, superseded_state(facts, each, [move.child for move in seen])))
    return tuple(found)


def _makings(facts: BuildFacts, front: BuildKind, known: ResolvedRequest, round_: Round) -> list[JobInputs]:
    done, target = round_.carried, round_.target
    if done is None or target is None:
        return []
    name = done.recorded.name
    uid = done.recorded.uid or uid_placeholder(EXECUTION_KINDS[facts.wish.kind], name)
    count = len(done.moves)
    return [
        JobInputs(
            facts=facts,
            target=target,
            inputs=known.inputs,
            architecture=move.child.architecture,
            execution=name,
            owner=front.owner(name, uid),
            job=move.child.job,
            host=move.child.host,
            tag=front.child_tag(facts, name, move.child.architecture, architectures=count),
        )
        for move in done.moves
        if move.build
    ]


def _execution_name(round_: Round) -> str:
    if round_.carried is not None:
        return round_.carried.recorded.name
    if round_.hold is not None:
        return round_.hold.execution
    return round_.current.name if round_.current is not None else ""


# -- architectures and index -------------------------------------------------------------------------------------------


def _per_architecture(facts: BuildFacts, known: ResolvedRequest, round_: Round) -> tuple[PlannedArchitecture, ...]:
    if round_.carried is not None:
        return tuple(_moved(move, round_.carried) for move in round_.carried.moves)
    state = round_.current
    if round_.hold is not None:
        failed = next((each for each in facts.executions if each.name == round_.hold.execution), None)
        state = recorded_state(failed) if failed is not None else None
    found = []
    for architecture in known.resolved.architectures:
        child = state.child(architecture) if state is not None else None
        found.append(_at_rest(architecture, child, state.name if state is not None else ""))
    return tuple(found)


def _at_rest(architecture: str, child: ChildRecord | None, execution: str) -> PlannedArchitecture:
    if child is None:
        return PlannedArchitecture(architecture=architecture)
    return PlannedArchitecture(
        architecture=architecture,
        phase=child.phase,
        digest=child.digest,
        source=execution if child.digest else "",
        reason=child.reason,
        message=child.message,
    )


def _moved(move: ArchitectureAction, done: ExecutionUpdate) -> PlannedArchitecture:
    child = done.state.child(move.child.architecture) or move.child
    action: Action = "None"
    source = child.reused_from
    if child.phase == "Cancelled":
        action = "Cancel"
    elif child.phase in FAULTY_CHILD:
        action = "Fail"
    elif move.build:
        action = "Build"
    elif move.reuse is not None:
        action = "Reuse"
    elif move.adopt is not None:
        action, source = "Adopt", move.adopt.run
    elif not usable(child):
        action = "Wait"
    return PlannedArchitecture(
        architecture=child.architecture,
        action=action,
        phase=child.phase,
        job=child.job,
        digest=child.digest,
        source=source,
        reason=child.reason,
        message=child.message,
    )


def _index(target: DesiredBuild | None, round_: Round) -> PlannedIndex:
    done = round_.carried
    if done is not None and round_.decision in ("InProgress", "Build", "Reassemble"):
        if done.state.finished and done.published is None:
            return PlannedIndex()
        single = target is not None and not target.wants_index(len(done.moves))
        made = done.result
        return PlannedIndex(action="Single" if single else "Push", media_type=made.media_type, digest=made.digest)
    if round_.decision in ("UpToDate", "Retag", "Repoint") and round_.current is not None:
        index = round_.current.index
        digest = round_.current.result.partition("@")[2]
        if index is None:
            return PlannedIndex(action="Single", digest=digest)
        return PlannedIndex(action="Exists", media_type=index.media_type, digest=digest)
    return PlannedIndex()


# -- what the wish says afterwards -------------------------------------------------------------------------------------


def _conditions(facts: BuildFacts, known: ResolvedRequest, round_: Round) -> tuple[Condition, ...]:
    state = round_.carried.state if round_.carried is not None else None
    found = []
    if known.resolved.message:
        found.append(conditions.architectures_resolved(known.resolved))
    if not known.resolved.wait:
        found.append(conditions.inputs_valid(round_.problems, undecided=round_.undecided))
    found.append(conditions.progressing(state, obstacle=round_.obstacle))
    found.append(conditions.ready(round_.current, is_wanted=_is_wanted(facts, known, round_), missing=_missing(round_)))
    found.append(_degraded(facts, round_, state))
    return tuple(found)


def _is_wanted(facts: BuildFacts, known: ResolvedRequest, round_: Round) -> bool:
    if round_.decision in ("UpToDate", "Retag", "Repoint"):
        return round_.trouble is None or round_.decision == "Retag"
    if round_.carried is not None and round_.carried.published is not None:
        return True
    current = current_execution(facts)
    if round_.target is None:
        return conditions.stored(facts.wish.status, conditions.READY).get("reason") == "Published"
    return current is not None and covers(current, round_.target, known.resolved.needed)


def _missing(round_: Round) -> list[str]:
    """What a partial result lacks, as long as it is the result of what is wanted."""
    current = round_.current
    if current is None or round_.target is None or current.build_key != round_.target.build_key:
        return []
    return [each.architecture for each in current.children if not usable(each)]


def _degraded(facts: BuildFacts, round_: Round, state: ExecutionState | None) -> Condition:
    if round_.problems and not round_.undecided:
        return conditions.degraded(round_.problems[0].reason, " ".join(each.message for each in round_.problems))
    if round_.hold is not None:
        return conditions.degraded(round_.hold.causes[0].reason, round_.hold.message)
    if round_.trouble is not None:
        return conditions.degraded(round_.trouble.code, round_.trouble.message)
    if state is not None:
        causes = causes_of(state)
        if not causes:
            return conditions.degraded("", "")
        message = explained(causes) if state.finished else "; ".join(each.text for each in causes)
        return conditions.degraded(causes[0].reason, message)
    token = facts.wish.spec.rebuild.token
    own = ended_by_itself(facts)
    if own and token and own[-1].forced is not None and own[-1].forced.token == token and causes_of(own[-1]):
        causes = causes_of(own[-1])
        return conditions.degraded(causes[0].reason, explained(causes))
    return conditions.degraded("", "")


def _summary(facts: BuildFacts, known: ResolvedRequest, round_: Round) -> str:
    state = round_.carried.state if round_.carried is not None else None
    if state is None and round_.hold is not None:
        failed = next((each for each in facts.executions if each.name == round_.hold.execution), None)
        state = recorded_state(failed) if failed is not None else None
    return conditions.build_summary(state, round_.current, known.resolved.architectures)


def _token(facts: BuildFacts, round_: Round) -> str:
    """The last rebuild token that was honoured: its execution exists, or it names nothing that is wanted."""
    token = facts.wish.spec.rebuild.token
    if not token or (round_.decision in ("Wait", "Invalid") and is_new_token(facts)):
        return facts.wish.rebuild_honoured
    return token


def _bases(known: ResolvedRequest, round_: Round) -> tuple[Base, ...] | None:
    if known.bases is None or round_.problems or round_.obstacle is not None:
        return None
    return tuple(_base(each) for each in known.bases)


def _base(pinned: PinnedBase) -> Base:
    children = [BaseChild(architecture=each, digest=pinned.children[each]) for each in sorted(pinned.children)]
    return Base(
        reference=pinned.reference,
        digest=pinned.digest,
        children=children or None,
        resolved_time=written(pinned.resolved),
    )


def _last_failure(facts: BuildFacts, state: ExecutionState | None) -> LastFailure | None:
    """Of the newest execution that ended by itself, if it failed."""
    if state is not None and state.finished:
        return _failure_of(state) if _is_failure(state) else None
    ended = ended_by_itself(facts)
    if not ended:
        return None
    newest = recorded_state(ended[-1])
    return _failure_of(newest) if _is_failure(newest) else None


def _is_failure(state: ExecutionState) -> bool:
    return state.phase in ("Failed", "Interrupted") or (state.phase == "Succeeded" and state.reason == PARTIAL)


def _failure_of(state: ExecutionState) -> LastFailure:
    faulty = [each.architecture for each in state.children if each.phase in FAULTY_CHILD]
    first = next((each.reason for each in state.children if each.phase in FAULTY_CHILD), state.reason)
    return LastFailure(run=state.name, reason=first, message=state.message, architectures=faulty or None)


# -- what is told ------------------------------------------------------------------------------------------------------


def _events(
    facts: BuildFacts,
    known: ResolvedRequest,
    choice: ExecutionChoice | None,
    round_: Round,
    ending: Sequence[tuple[Execution, ExecutionState]],
) -> list[PlannedEvent]:
    former = str(facts.wish.status.get("image") or "").partition("@")[2]
    found: list[PlannedEvent] = [superseded_events(state) for _, state in ending]
    if round_.carried is not None:
        found += execution_events(round_.before, round_.carried.state, former=former)
    if round_.current is not None and round_.decision == "Repoint" and round_.trouble is None:
        found.append(repointed_event(round_.current.result, round_.current.name))
    if round_.target is not None and round_.trouble is None and set(round_.tags) != set(stored_tags(facts)):
        gone = [each for each in stored_tags(facts) if each not in round_.tags]
        found += abandoned_tags_event(gone, round_.target.repository)
    return found


def _notices(known: ResolvedRequest, choice: ExecutionChoice | None, round_: Round) -> list[PlannedEvent]:
    unknown = choice.unknown_forced if choice is not None else ()
    warnings = [*known.warnings, *round_.warnings]
    return list(notice_events(known.resolved, warnings, known.inputs.unused_overrides, unknown))
