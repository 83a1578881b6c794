"""The planner: from the facts about one build to its plan. Pure.

:func:`plan_build` reads as the rules do: what is wanted, which execution is right for it, what is done now; then what
is told about it and written. Equal facts give an equal plan, and planning after its own writes gives no further ones.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.api.formats import BuildTimes
from polyarch.builds.api.resources import Base, BaseChild
from polyarch.builds.architectures import host_of, node_without_user_namespaces, scheduling_of
from polyarch.builds.base_images import PreflightResult, builder_images, preflight
from polyarch.builds.facts.build_facts import (
    ENDED,
    BuildFacts,
    BuildLookup,
    BuildStep,
    ChildRecord,
    Execution,
    Problem,
    WriteFailure,
    active_execution,
    current_execution,
    own_executions,
    seconds,
    written,
)
from polyarch.builds.jobs.results import index_job_request, index_job_status
from polyarch.builds.jobs.spec import forbidden_by_pod_security
from polyarch.builds.plan import conditions
from polyarch.builds.plan.actions import UNREACHABLE, ArchitectureAction, next_actions, reuse_problems
from polyarch.builds.plan.choice import ExecutionChoice, choose_execution, unknown_forced
from polyarch.builds.plan.conditions import (
    abandoned_tags_event,
    build_conditions,
    execution_events,
    notice_events,
    repointed_event,
    superseded_event,
)
from polyarch.builds.plan.document import (
    CONFIG_MAP,
    Action,
    BuildDecision,
    BuildPlan,
    PlannedArchitecture,
    PlannedEvent,
    PlannedIndex,
    Write,
)
from polyarch.builds.plan.executions import FAULTY_CHILD, destination, kept_settings, usable
from polyarch.builds.plan.failures import LOOK_UP_INTERVAL, SECRET_INTERVAL, SHORTEST_PAUSE, FailureHold, pause_since
from polyarch.builds.plan.image_build import IMAGE_BUILD
from polyarch.builds.plan.kind import BuildKind, JobInputs, PlanOutcome
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest, recorded_build, resolve_request, sooner
from polyarch.builds.plan.update import (
    ExecutionUpdate,
    new_state,
    recorded_state,
    republication,
    superseded_state,
    update_execution,
    why_unpublished,
)
from polyarch.builds.plan.writes import planned_writes, relabelling, unrecorded

FIRST_RETRY: Final = 15.0
"""Seconds until something that may pass is tried again for the first time."""
MAX_INPUTS: Final = 1024 * 1024
"""Bytes that API servers take in one ConfigMap."""


def plan_build(facts: BuildFacts, kind: BuildKind = IMAGE_BUILD) -> BuildPlan:
    """What is to be done about one build now, and why."""
    if (unlabelled := relabelling(facts)) is not None:
        return unlabelled
    request = resolve_request(facts)
    if request.lookups:
        return _lookup_plan(request, request.lookups)
    outcome = _outcome(facts, kind, request)
    if outcome.lookups:
        return _lookup_plan(request, outcome.lookups)
    superseded = _superseded(outcome)
    if (unseen := unrecorded(facts, kind, [before for before, _ in superseded])) is not None:
        return unseen
    outcome = msgspec.structs.replace(
        outcome,
        superseded=superseded,
        conditions=build_conditions(outcome),
        bases=_bases(outcome),
        requeue_after=sooner(outcome.requeue_after, request.requeue_after),
    )
    return _plan(outcome, kind)


def _outcome(facts: BuildFacts, kind: BuildKind, request: ResolvedRequest) -> PlanOutcome:
    target = request.target
    if target is None:
        return _waiting(facts, request, request.problems)
    choice = choose_execution(facts, request, target, kind)
    if choice.lookups:
        return _looking_up(facts, request, choice.lookups)
    if choice.unreachable:
        problem = Problem(reason=UNREACHABLE, message=f"{choice.unreachable}; it is tried again.")
        return _waiting(facts, request, (problem,), target=choice.target)
    if choice.hold is not None:
        return _held(facts, request, choice.target, choice.hold)
    if choice.execution is None:
        return _new(facts, kind, request, choice.target)
    if choice.decision == "InProgress":
        return _continued(facts, kind, request, choice.target, choice.execution)
    return _finished(facts, kind, request, choice, choice.execution)


def _lookup_plan(request: ResolvedRequest, lookups: Sequence[BuildLookup]) -> BuildPlan:
    wanted = tuple(sorted(set(lookups), key=lambda lookup: (lookup.what, lookup.reference, lookup.revalidate)))
    return BuildPlan(
        decision="Wait",
        reason="Asking",
        message=f"{', '.join(lookup.reference for lookup in wanted)} has to be looked up first.",
        architectures=request.resolved.architectures,
        lookups=wanted,
    )


def _plan(outcome: PlanOutcome, kind: BuildKind) -> BuildPlan:
    """The outcome with everything that is told and written."""
    facts, request, target, execution = outcome.facts, outcome.request, outcome.target, outcome.execution_name
    writes = planned_writes(outcome, kind)
    events = _events(outcome)
    if any(write.step == BuildStep.REPORT for write in writes):
        unknown = unknown_forced(facts, request.resolved) if target is not None else ()
        warnings = [*request.warnings, *outcome.warnings]
        events += [
            msgspec.structs.replace(event, message=facts.request.worded(event.message))
            for event in notice_events(request.resolved, warnings, request.inputs.unused_overrides, unknown)
        ]
    return BuildPlan(
        decision=outcome.decision,
        reason=outcome.reason,
        message=outcome.message,
        architectures=request.resolved.architectures,
        keys=target.keys if target is not None else {},
        build_key=target.build_key if target is not None else "",
        execution=execution,
        per_architecture=_per_architecture(outcome),
        index=_index(outcome),
        tags=kind.execution_names(facts, execution, ()).tags if execution else (),
        conditions=outcome.conditions,
        events=tuple(events),
        writes=writes,
        requeue_after=outcome.requeue_after,
        key_documents=request.documents,
    )


def _superseded(outcome: PlanOutcome) -> tuple[tuple[Execution, Execution], ...]:
    """Executions under way that are not the right one end; what their Jobs have done is recorded."""
    if not outcome.supersedes:
        return ()
    facts, kept = outcome.facts, outcome.update.recorded.name if outcome.update is not None else ""
    found = []
    for execution in own_executions(facts):
        if execution.phase in ENDED or execution.deleting or execution.name == kept:
            continue
        actions = next_actions(facts, recorded_build(execution), execution)
        found.append((execution, superseded_state(facts, execution, [action.child for action in actions])))
    return tuple(found)


# -- nothing new is started --------------------------------------------------------------------------------------------

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
INVALID_REASONS: Final = SPEC_REASONS | {
    "BaseImageArchitectureMissing",
    "BuilderImageArchitectureMissing",
    "UserNamespaceUnavailable",
}
"""What cannot be built as it is said: ``Invalid``, though an image or nodes may get what they lack. The others:
``Wait``."""
OBJECT_REASONS: Final = frozenset({"InputMissing", "SecretInvalid", "PodSecurityForbids", "NamespaceNotEnabled"})


def _looking_up(facts: BuildFacts, request: ResolvedRequest, lookups: Sequence[BuildLookup]) -> PlanOutcome:
    return PlanOutcome(
        facts=facts, request=request, decision="Wait", reason="Asking", message="", lookups=tuple(lookups)
    )


def _held(facts: BuildFacts, request: ResolvedRequest, target: DesiredBuild, hold: FailureHold) -> PlanOutcome:
    """The newest execution failed, and nothing that failed it has changed."""
    return PlanOutcome(
        facts=facts,
        request=request,
        decision="Held",
        reason=hold.causes[0].reason,
        message=hold.message,
        target=target,
        supersedes=True,
        current=_published(facts),
        tags=_stored_tags(facts),
        hold=hold,
        requeue_after=hold.requeue_after,
    )


def _waiting(
    facts: BuildFacts,
    request: ResolvedRequest,
    problems: Sequence[Problem],
    *,
    target: DesiredBuild | None = None,
    blocker: Problem | None = None,
    failure: WriteFailure | None = None,
    checked: PreflightResult | None = None,
) -> PlanOutcome:
    """Something is wrong or in the way. What runs is looked at, but makes no further Jobs and publishes nothing."""
    active = active_execution(facts)
    update = None
    problems = facts.request.worded_problems(problems)
    if active is not None:
        own = recorded_build(active)
        update = update_execution(facts, own, next_actions(facts, own, active), recorded_state(active))
    first = problems[0] if problems else blocker
    messages = [problem.message for problem in problems] or [
        first.message if first is not None else request.resolved.message
    ]
    undecided, pause = _patience(facts, problems, checked)
    return PlanOutcome(
        facts=facts,
        request=request,
        decision="Invalid" if any(problem.reason in INVALID_REASONS for problem in problems) else "Wait",
        reason=first.reason if first is not None else request.resolved.wait,
        message=" ".join(messages),
        target=target,
        before=active,
        update=update,
        current=_published(facts),
        tags=_stored_tags(facts),
        problems=tuple(problems),
        undecided=undecided,
        blocker=blocker,
        failure=failure,
        lookups=update.lookups if update is not None else (),
        requeue_after=sooner(pause, update.requeue_after if update is not None else None),
    )


def _patience(
    facts: BuildFacts, problems: Sequence[Problem], checked: PreflightResult | None
) -> tuple[bool, float | None]:
    """Whether it is too early to call the inputs invalid, and when to look again."""
    reasons = {problem.reason for problem in problems}
    if reasons & OBJECT_REASONS:
        return False, SECRET_INTERVAL
    if not reasons or reasons <= SPEC_REASONS:
        return False, None
    if reasons != {UNREACHABLE}:
        return False, LOOK_UP_INTERVAL
    stored = conditions.stored(facts.request.status, conditions.INPUTS_VALID)
    since = seconds(stored.get("lastTransitionTime")) if stored.get("reason") == UNREACHABLE else None
    since = since if since is not None else facts.now
    asked = checked.retry_after if checked is not None and checked.retry_after is not None else 0.0
    if stored.get("status") == "False" and stored.get("reason") == UNREACHABLE:
        return False, max(asked, pause_since(since, facts.now))
    left = since + BuildTimes.of(facts.request.spec).preflight - facts.now
    if left <= 0:
        return False, max(asked, pause_since(facts.now, facts.now))
    return True, min(left, max(asked, FIRST_RETRY))


# -- an execution goes on, or begins -----------------------------------------------------------------------------------


def _continued(
    facts: BuildFacts, kind: BuildKind, request: ResolvedRequest, target: DesiredBuild, active: Execution
) -> PlanOutcome:
    """The execution under way is the right one."""
    names = kind.execution_names(facts, active.name, target.architectures)
    actions = next_actions(facts, target, active, names)
    if lookups := _unread_runtimes(facts, [action.child.architecture for action in actions if action.build]):
        return _looking_up(facts, request, lookups)
    update = update_execution(facts, target, actions, recorded_state(active), names)
    message = f"{active.name} makes what is wanted."
    outcome = _under_way(facts, request, target, update, active, "InProgress", message)
    kept = kept_settings(facts, active) if not update.state.finished else None
    warnings = facts.request.worded_problems([*([kept] if kept is not None else []), *reuse_problems(actions)])
    return msgspec.structs.replace(outcome, warnings=warnings)


def _new(facts: BuildFacts, kind: BuildKind, request: ResolvedRequest, target: DesiredBuild) -> PlanOutcome:
    """Nothing that exists is right: a new execution, unless something forbids it now."""
    blocker = kind.blocker(facts)
    if blocker is not None:
        return _waiting(facts, request, (), blocker=blocker, target=target)
    name, serial = kind.next_execution(facts, target)
    names = kind.execution_names(facts, name, target.architectures)
    actions = next_actions(facts, target, None, names)
    if lookups := [lookup for action in actions for lookup in action.lookups]:
        return _looking_up(facts, request, lookups)
    if unread := [action.child.message for action in actions if action.child.reason == UNREACHABLE]:
        problem = Problem(reason=UNREACHABLE, message=" ".join(unread))
        return _waiting(facts, request, (problem,), target=target)
    warnings: tuple[Problem, ...] = ()
    if any(action.needs_job for action in actions):
        checked = preflight(facts, target.architectures, request.inputs)
        place = destination(facts, target)
        lookups = [
            *(BuildLookup(reference=name, what="secret") for name in request.inputs.unread_secrets),
            *checked.lookups,
            *_unread_runtimes(facts, target.architectures),
            *([place] if isinstance(place, BuildLookup) else []),
        ]
        if lookups:
            return _looking_up(facts, request, lookups)
        problems = (
            *_forbidden(facts, target.architectures),
            *_oversized(_job_writes(facts, kind, request, target, name)),
            *checked.problems,
            *checked.unreachable,
            *([place] if isinstance(place, Problem) else []),
        )
        if problems:
            return _waiting(facts, request, problems, target=target, checked=checked)
        warnings = checked.warnings
    conflict = next(
        (each for each in facts.failures if each.step == BuildStep.CREATE_EXECUTION and each.name == name), None
    )
    if conflict is not None:
        problem = Problem(reason=conflict.code, message=f"{conflict.kind} {name}: {conflict.message}")
        return _waiting(facts, request, (), blocker=problem, target=target, failure=conflict)
    update = update_execution(facts, target, actions, new_state(facts, target, name, serial), names)
    builds = [action.child.architecture for action in actions if action.reuse is None]
    message = f"{name} builds {', '.join(builds)}." if builds else f"{name} joins images that are there."
    outcome = _under_way(facts, request, target, update, None, "Build" if builds else "Reassemble", message)
    return msgspec.structs.replace(outcome, warnings=(*warnings, *reuse_problems(actions)))


def _under_way(
    facts: BuildFacts,
    request: ResolvedRequest,
    target: DesiredBuild,
    update: ExecutionUpdate,
    before: Execution | None,
    decision: BuildDecision,
    message: str,
) -> PlanOutcome:
    published = update.published
    return PlanOutcome(
        facts=facts,
        request=request,
        decision=decision,
        reason=update.state.reason or update.state.phase,
        message=message,
        target=target,
        before=before,
        update=update,
        supersedes=True,
        current=published if published is not None else _published(facts),
        tags=tuple(facts.request.spec.output.tags or ()) if published is not None else _stored_tags(facts),
        lookups=update.lookups,
        requeue_after=update.requeue_after,
    )


def _job_writes(
    facts: BuildFacts, kind: BuildKind, request: ResolvedRequest, target: DesiredBuild, execution: str
) -> Iterator[Write]:
    """Everything that the Jobs of a new execution would be given."""
    names = kind.execution_names(facts, execution, target.architectures)
    for architecture in target.architectures:
        job_inputs = JobInputs(
            facts=facts,
            target=target,
            inputs=request.inputs,
            architecture=architecture,
            execution=execution,
            owner=kind.owner(execution, ""),
            job=names.jobs[architecture],
            host=host_of(facts, architecture).architecture,
            tag="",
            builder=builder_images(facts),
        )
        yield from kind.job_writes(job_inputs)


def _unread_runtimes(facts: BuildFacts, architectures: Iterable[str]) -> tuple[BuildLookup, ...]:
    """RuntimeClasses whose handlers have to be known before Jobs of these architectures are made."""
    named = {name for _, name in _runtimes(facts, architectures)} - facts.runtime_handlers.keys()
    return tuple(BuildLookup(reference=name, what="runtimeclass") for name in sorted(named))


def _runtimes(facts: BuildFacts, architectures: Iterable[str]) -> list[tuple[str, str]]:
    found = ((each, scheduling_of(facts, each).runtime_class_name) for each in sorted(architectures))
    return [(architecture, name) for architecture, name in found if name]


def _forbidden(facts: BuildFacts, architectures: Iterable[str]) -> Sequence[Problem]:
    """What keeps pods of builds from being made, said before a Job is."""
    found = []
    if facts.request.spec.builder.security_profile == "Privileged" and not facts.settings.allow_privileged:
        message = (
            "spec.builder.securityProfile is Privileged, which the builder does not allow: use Auto, or have the "
            "administrator set builds.allowPrivileged: true in the values of the installation."
        )
        found.append(Problem(reason="ProfileForbidden", message=message))
    if facts.request.spec.builder.security_profile == "UserNamespace":
        found += _without_user_namespaces(facts, architectures)
    for architecture, name in _runtimes(facts, architectures):
        if name in facts.runtime_handlers and facts.runtime_handlers[name] is None:
            field = f"spec.scheduling.perArchitecture[{architecture}].runtimeClassName"
            message = f"RuntimeClass {name}, which {field} names, does not exist; create it or correct the name."
            found.append(Problem(reason="InputMissing", message=message, architecture=architecture))
    said = forbidden_by_pod_security(facts.request.namespace, facts.inputs.pod_security)
    if said is not None:
        found.append(Problem(reason="PodSecurityForbids", message=f"{said[:1].upper()}{said[1:]}."))
    return found


def _without_user_namespaces(facts: BuildFacts, architectures: Iterable[str]) -> Iterator[Problem]:
    for architecture in sorted(architectures):
        node = node_without_user_namespaces(facts, architecture, host_of(facts, architecture).architecture)
        if node:
            message = (
                f"spec.builder.securityProfile is UserNamespace, and the container runtime of node {node} reports no "
                "user namespaces of pods: take Auto or Rootless, or select nodes that have them with "
                "spec.scheduling.perArchitecture[].nodeSelector."
            )
            yield Problem(reason="UserNamespaceUnavailable", message=message, architecture=architecture)


def _oversized(writes: Iterable[Write]) -> Sequence[Problem]:
    """What no API server takes: an execution of it would only wait to fail. The largest object is told."""
    found = [
        (sum(sizes.values()), sizes)
        for write in writes
        if (write.verb, write.kind) == ("create", CONFIG_MAP)
        for sizes in [_sizes(write.body)]
    ]
    size, sizes = max(found, key=lambda each: each[0], default=(0, {}))
    if size <= MAX_INPUTS:
        return ()
    files = ", ".join(f"{name} {sizes[name]}" for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
    message = (
        f"What a Job would be given is {size} bytes ({files}), and a ConfigMap takes {MAX_INPUTS}: have fewer or "
        "shorter build arguments and labels, which it holds twice, or move parts of the Containerfile into the context."
    )
    return (Problem(reason="InvalidSpec", message=message),)


def _sizes(config_map: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each file, as API servers count them."""
    texts = {name: len(text.encode("utf-8", "surrogatepass")) for name, text in (config_map.get("data") or {}).items()}
    binary = {name: len(base64.b64decode(text)) for name, text in (config_map.get("binaryData") or {}).items()}
    return texts | binary


# -- the result is there: at most its tags move ------------------------------------------------------------------------


def _finished(
    facts: BuildFacts, kind: BuildKind, request: ResolvedRequest, choice: ExecutionChoice, execution: Execution
) -> PlanOutcome:
    """The current result, or an older one, is what is wanted."""
    wanted, stored = tuple(facts.request.spec.output.tags or ()), _stored_tags(facts)
    repoints = choice.decision == "Repoint"
    lacking = wanted if repoints else tuple(tag for tag in wanted if tag not in stored)
    outcome = PlanOutcome(
        facts=facts,
        request=request,
        decision="Repoint" if repoints else "Retag",
        reason="Covered",
        message="",
        target=choice.target,
        supersedes=True,
        current=_published(facts) if repoints else recorded_state(execution),
        tags=stored,
    )
    if lacking and facts.leaves_registries_to_jobs:
        outcome = _tagged_by_job(outcome, kind, execution)
    failed = next((each for each in facts.failures if (each.verb, each.name) == ("tag", execution.name)), None)
    if failed is not None and outcome.failure is None:
        pause = FIRST_RETRY if failed.passing else SECRET_INTERVAL
        return _untagged(outcome, failed, failed.retry_after if failed.retry_after is not None else pause)
    if outcome.message or outcome.failure is not None:
        return outcome
    messages: Mapping[BuildDecision, str] = {
        "Repoint": f"{execution.result} of {execution.name} was made from the same inputs: it is published again.",
        "Retag": f"The tags of {execution.result} change; nothing is built.",
        "UpToDate": f"{execution.result} is what is wanted; nothing is built.",
    }
    changes = repoints or lacking or set(stored) != set(wanted)
    decision = outcome.decision if changes else "UpToDate"
    retag = None
    if lacking and not facts.leaves_registries_to_jobs:
        retag = Write(
            verb="tag",
            namespace=facts.request.namespace,
            name=execution.name,
            reference=execution.result,
            step=BuildStep.MOVE_TAGS,
            body={"tags": list(lacking)},
        )
    return msgspec.structs.replace(
        outcome,
        decision=decision,
        message=messages[decision],
        current=recorded_state(execution),
        retag=retag,
        tags=wanted,
    )


def _tagged_by_job(outcome: PlanOutcome, kind: BuildKind, execution: Execution) -> PlanOutcome:
    """The outcome as long as a Job has not moved the tags; as it is once that is done.

    The Job that published the result has moved the tags already, if they were wanted then. What failed is tried again
    after a time, since nobody says when the registry would take it.
    """
    facts = outcome.facts
    names = kind.execution_names(facts, execution.name, ())
    work = index_job_request(execution.name, execution.uid, republication(execution, names.tags), execution.children)
    status = index_job_status(facts.jobs, work, build=facts.request.name)
    waiting = f"Job {names.index_job} moves the tags of {execution.result}."
    rejected = next(
        (each for each in facts.failures if each.verb == "create" and each.name.startswith(names.index_job)), None
    )
    if rejected is not None:
        return _untagged(outcome, rejected, SHORTEST_PAUSE)
    if status.job is None:
        return msgspec.structs.replace(outcome, message=waiting, tag_job=work if status.is_free else None)
    ended = status.job.failure if status.job.failure is not None else status.job.complete
    if ended is None:
        return msgspec.structs.replace(outcome, message=waiting, tag_job_uid=status.job.uid)
    failed = why_unpublished(status, work, names.index_job)
    if failed is None:
        return outcome
    left = ended + LOOK_UP_INTERVAL - facts.now
    outcome = msgspec.structs.replace(outcome, tag_job_uid=status.job.uid if left > 0 else "")
    return _untagged(outcome, failed, left)


def _untagged(outcome: PlanOutcome, failure: WriteFailure, pause: float) -> PlanOutcome:
    """The tags could not be moved; it is tried again."""
    return msgspec.structs.replace(
        outcome,
        reason=failure.code,
        message=failure.message,
        failure=failure,
        tag_job=None,
        requeue_after=max(pause, 1.0),
    )


def _bases(outcome: PlanOutcome) -> tuple[Base, ...] | None:
    pins = outcome.request.bases
    if pins is None or outcome.problems or outcome.blocker is not None:
        return None
    return tuple(
        Base(
            reference=pin.reference,
            digest=pin.digest,
            children=[BaseChild(each, digest) for each, digest in sorted(pin.children.items())] or None,
            resolved_time=written(pin.resolved),
        )
        for pin in pins
    )


def _stored_tags(facts: BuildFacts) -> tuple[str, ...]:
    """The tags of the spec that are on the published result."""
    return tuple(facts.request.status.get("tags") or ())


def _published(facts: BuildFacts) -> Execution | None:
    """The execution whose result is published now, as it is stored."""
    current = current_execution(facts)
    return recorded_state(current) if current is not None else None


# -- what the plan says of architectures, index and events -------------------------------------------------------------


def _per_architecture(outcome: PlanOutcome) -> tuple[PlannedArchitecture, ...]:
    if outcome.update is not None:
        return tuple(_acted_on(action, outcome.update) for action in outcome.update.actions)
    state = outcome.current
    if outcome.hold is not None:
        state = conditions.held_state(outcome.facts, outcome.hold)
    return tuple(
        _at_rest(architecture, state.child(architecture) if state is not None else None, state)
        for architecture in outcome.request.resolved.architectures
    )


def _at_rest(architecture: str, child: ChildRecord | None, state: Execution | None) -> PlannedArchitecture:
    if child is None or state is None:
        return PlannedArchitecture(architecture=architecture)
    return PlannedArchitecture(
        architecture=architecture,
        phase=child.phase,
        digest=child.digest,
        source=state.name if child.digest else "",
        reason=child.reason,
        message=child.message,
    )


def _acted_on(done: ArchitectureAction, update: ExecutionUpdate) -> PlannedArchitecture:
    child = update.state.child(done.child.architecture) or done.child
    action: Action = "None"
    source = child.reused_from
    if child.phase == "Cancelled":
        action = "Cancel"
    elif child.phase in FAULTY_CHILD:
        action = "Fail"
    elif done.build:
        action = "Build"
    elif done.reuse is not None:
        action = "Reuse"
    elif done.adopt is not None:
        action, source = "Adopt", done.adopt.run
    elif not usable(child):
        action = "Wait"
    return PlannedArchitecture(
        architecture=child.architecture,
        action=action,
        phase=child.phase,
        job=child.job,
        digest=child.digest,
        source=source,
        profile=child.profile if done.build else "",
        reason=child.reason,
        message=child.message,
    )


def _index(outcome: PlanOutcome) -> PlannedIndex:
    target, update = outcome.target, outcome.update
    if update is not None and outcome.decision in ("InProgress", "Build", "Reassemble"):
        if update.state.finished and update.published is None:
            return PlannedIndex()
        single = target is not None and not target.wants_index(len(update.actions))
        made = update.result
        return PlannedIndex(action="Single" if single else "Push", media_type=made.media_type, digest=made.digest)
    if outcome.decision in ("UpToDate", "Retag", "Repoint") and outcome.current is not None:
        index = outcome.current.index
        digest = outcome.current.result.partition("@")[2]
        if index is None:
            return PlannedIndex(action="Single", digest=digest)
        return PlannedIndex(action="Exists", media_type=index.media_type, digest=digest)
    return PlannedIndex()


def _events(outcome: PlanOutcome) -> list[PlannedEvent]:
    facts = outcome.facts
    former = str(facts.request.status.get("image") or "").partition("@")[2]
    found = [superseded_event(state) for _, state in outcome.superseded]
    if outcome.update is not None:
        found += execution_events(outcome.before, outcome.update.state, former=former)
    if outcome.failure is not None:
        return found
    if outcome.current is not None and outcome.decision == "Repoint":
        found.append(repointed_event(outcome.current.result, outcome.current.name))
    if outcome.target is not None and set(outcome.tags) != set(_stored_tags(facts)):
        gone = [tag for tag in _stored_tags(facts) if tag not in outcome.tags]
        found += abandoned_tags_event(gone, outcome.target.repository)
    return found
