"""What a plan says: conditions, the summary, events, and which difference of a status is written. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.architectures import ResolvedArchitectures
from polyarch.builds.base_images import pinned_image
from polyarch.builds.facts.build_facts import (
    ENDED,
    ENDED_CHILD,
    BuildFacts,
    ChildRecord,
    Execution,
    Problem,
    current_execution,
    written,
)
from polyarch.builds.plan.actions import described, progress_summary
from polyarch.builds.plan.document import PlannedEvent
from polyarch.builds.plan.executions import (
    FAULTY_CHILD,
    SETTINGS_KEPT,
    covers,
    ended_by_itself,
    recorded_child,
    usable,
)
from polyarch.builds.plan.failures import FailureHold, causes_of, explained
from polyarch.builds.plan.kind import PlanOutcome
from polyarch.builds.plan.update import recorded_state
from polyarch.objects import Condition

ARCHITECTURES_RESOLVED: Final = "ArchitecturesResolved"
INPUTS_VALID: Final = "InputsValid"
PROGRESSING: Final = "Progressing"
READY: Final = "Ready"
DEGRADED: Final = "Degraded"
CHILDREN_READY: Final = "ChildrenReady"
INDEX_PUSHED: Final = "IndexPushed"
SUCCEEDED: Final = "Succeeded"
BUILDER_PINNED: Final = "BuilderPinned"
MAX_MESSAGE: Final = 32_768
"""Bytes of a message that the API server takes; a status with a longer one would be refused as a whole."""


def merged(
    found: Iterable[Condition], stored: Sequence[Mapping[str, Any]] | None, *, generation: int, now: float
) -> list[dict[str, Any]]:
    """``status.conditions``: the time of a condition changes with its status only."""
    known = {str(each.get("type")): each for each in _objects(stored)}
    return [_merged(each, known.get(each.type) or {}, generation, now) for each in found]


def stored(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """A condition as it is stored; empty if there is none."""
    return next((each for each in _objects(status.get("conditions")) if each.get("type") == type), {})


def within(text: str, most: int = MAX_MESSAGE) -> str:
    """The text in at most so many bytes; of a longer one its beginning, and how much is left out."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text
    left_out = f"… ({len(data)} bytes in all)"
    return data[: most - len(left_out.encode())].decode(errors="ignore") + left_out


def _objects(stored: Any) -> list[Mapping[str, Any]]:
    """The conditions of a status that somebody may have edited, or written by hand in a file."""
    return [each for each in stored if isinstance(each, Mapping)] if isinstance(stored, list) else []


# -- of a build --------------------------------------------------------------------------------------------------------


def build_conditions(outcome: PlanOutcome) -> tuple[Condition, ...]:
    """The conditions of a build request after a plan."""
    resolved, found = outcome.request.resolved, []
    if resolved.message:
        found.append(architectures_resolved(resolved))
    if not resolved.wait:
        found.append(inputs_valid(outcome.problems, undecided=outcome.undecided))
    kept = next((each.message for each in outcome.warnings if each.reason == SETTINGS_KEPT), "")
    found.append(progressing(outcome.execution, blocker=outcome.blocker, kept=kept))
    found.append(ready(outcome.current, is_wanted=_is_wanted(outcome), missing=_missing(outcome)))
    found.append(_degraded(outcome))
    return tuple(found)


def _is_wanted(outcome: PlanOutcome) -> bool:
    facts = outcome.facts
    if outcome.decision in ("UpToDate", "Retag", "Repoint"):
        return outcome.failure is None or outcome.decision == "Retag"
    if outcome.update is not None and outcome.update.published is not None:
        return True
    current = current_execution(facts)
    if outcome.target is None:
        return stored(facts.request.status, READY).get("reason") == "Published"
    return current is not None and covers(current, outcome.target, outcome.request.resolved.needed)


def _missing(outcome: PlanOutcome) -> list[str]:
    """What a partial result lacks, as long as it is the result of what is wanted."""
    current, target = outcome.current, outcome.target
    if current is None or target is None or current.build_key != target.build_key:
        return []
    return [child.architecture for child in current.children if not usable(child)]


def _degraded(outcome: PlanOutcome) -> Condition:
    problems, state = outcome.problems, outcome.execution
    if problems and not outcome.undecided:
        return degraded(problems[0].reason, " ".join(problem.message for problem in problems))
    if outcome.hold is not None:
        return degraded(outcome.hold.causes[0].reason, outcome.hold.message)
    if outcome.failure is not None:
        return degraded(outcome.failure.code, outcome.failure.message)
    if state is not None:
        causes = causes_of(state)
        if not causes:
            return degraded("", "")
        message = (
            explained(causes, outcome.facts.request) if state.finished else "; ".join(cause.text for cause in causes)
        )
        return degraded(causes[0].reason, message)
    token = outcome.facts.request.spec.rebuild.token
    own = ended_by_itself(outcome.facts)
    if own and token and own[-1].forced is not None and own[-1].forced.token == token and causes_of(own[-1]):
        causes = causes_of(own[-1])
        return degraded(causes[0].reason, explained(causes, outcome.facts.request))
    return degraded("", "")


def held_state(facts: BuildFacts, hold: FailureHold) -> Execution | None:
    """The execution that has failed and that nothing has released yet."""
    failed = next((execution for execution in facts.executions if execution.name == hold.execution), None)
    return recorded_state(failed) if failed is not None else None


def architectures_resolved(resolved: ResolvedArchitectures) -> Condition:
    status = {"NoNodes": "False", "NodesUnknown": "Unknown"}.get(resolved.reason, "True")
    return Condition(ARCHITECTURES_RESOLVED, status, resolved.reason, resolved.message)  # type: ignore[arg-type]


def inputs_valid(problems: Sequence[Problem], *, undecided: bool = False) -> Condition:
    """``undecided``: the registry is still being tried."""
    if not problems:
        return Condition(INPUTS_VALID, "True", "Valid", "Everything that the build needs is there.")
    message = " ".join(each.message for each in problems)
    return Condition(INPUTS_VALID, "Unknown" if undecided else "False", problems[0].reason, message)


def progressing(state: Execution | None, *, blocker: Problem | None = None, kept: str = "") -> Condition:
    """What is going on. ``blocker`` keeps a new execution from being made, ``kept`` tells what does not reach it."""
    found = _progressing(state, blocker)
    return msgspec.structs.replace(found, message=" ".join(each for each in (found.message, kept) if each))


def _progressing(state: Execution | None, blocker: Problem | None) -> Condition:
    if state is None or state.finished:
        if blocker is not None and blocker.reason == "Suspended":
            return Condition(PROGRESSING, "False", "Suspended", blocker.message)
        return Condition(PROGRESSING, "False", "Done", "Nothing is being built.")
    if state.phase == "Assembling" and state.reason and state.message:
        message = f"{state.name} has every image and cannot publish the result yet: {state.message}; it is tried again."
        return Condition(PROGRESSING, "True", state.reason, message)
    if state.phase == "Assembling":
        return Condition(PROGRESSING, "True", "Assembling", f"{state.name} has every image and publishes the result.")
    open_ones = [each for each in state.children if not usable(each) and each.phase not in FAULTY_CHILD]
    for reason, phase in (("WaitingForNode", "WaitingForNode"), ("Queued", "Pending")):
        if open_ones and all(each.phase == phase for each in open_ones):
            if reason == "Queued" and not all(each.reason == "Queued" for each in open_ones):
                continue
            return Condition(PROGRESSING, "True", reason, described(open_ones))
    kept = [each for each in open_ones if each.reason and each.message]
    told = f" {described(kept)}" if kept else ""
    return Condition(PROGRESSING, "True", "Building", f"{state.name} builds {_names(open_ones)}.{told}")


def ready(current: Execution | None, *, is_wanted: bool, missing: Sequence[str] = ()) -> Condition:
    """Whether there is a result, and whether it is what is wanted now."""
    if current is None or not current.result:
        return Condition(READY, "False", "NotBuilt", "No result has been published yet.")
    if missing:
        text = f"{current.result} is published without {', '.join(missing)}."
        return Condition(READY, "True", "PartialIndex", text)
    if is_wanted:
        return Condition(READY, "True", "Published", f"{current.result} is published.")
    return Condition(READY, "True", "Outdated", f"{current.result} is published, which is an older result.")


def degraded(reason: str, message: str) -> Condition:
    """``reason`` is empty where nothing is wrong."""
    if not reason:
        return Condition(DEGRADED, "False", "None", "")
    return Condition(DEGRADED, "True", reason, message)


def build_summary(outcome: PlanOutcome) -> str:
    """``2/2``, or ``1/2 arm64: BuildFailed``."""
    state, current = outcome.execution, outcome.current
    if outcome.hold is not None:
        state = held_state(outcome.facts, outcome.hold)
    if state is not None:
        return progress_summary(state.children)
    there = [each.architecture for each in current.children if usable(each)] if current is not None else []
    wanted = outcome.request.resolved.architectures or there
    lacking = [each for each in wanted if each not in there]
    pending = f"{', '.join(lacking)} not built" if lacking and there else ""
    return " ".join(part for part in (f"{len(wanted) - len(lacking)}/{len(wanted)}", pending) if part)


# -- of an execution ---------------------------------------------------------------------------------------------------


def execution_conditions(state: Execution) -> tuple[Condition, ...]:
    """Those of an ImageBuildRun."""
    return _children_ready(state), _index_pushed(state), _succeeded(state), *_builder_pinned(state)


def _children_ready(state: Execution) -> Condition:
    lacking = [each for each in state.children if not usable(each)]
    if not lacking:
        return Condition(CHILDREN_READY, "True", "Built", f"Every image is there: {_names(state.children)}.")
    faulty = [each for each in lacking if each.phase in FAULTY_CHILD]
    if faulty:
        return Condition(CHILDREN_READY, "False", faulty[0].reason or "BuildFailed", described(faulty))
    return Condition(CHILDREN_READY, "False", state.reason or "Building", f"Not there yet: {_names(lacking)}.")


def _index_pushed(state: Execution) -> Condition:
    if state.phase == "Succeeded":
        return Condition(INDEX_PUSHED, "True", state.reason or "Published", f"{state.result} is published.")
    reason = state.reason if state.finished or state.phase == "Assembling" else ""
    return Condition(INDEX_PUSHED, "False", reason or state.phase, state.message if reason else "")


def _succeeded(state: Execution) -> Condition:
    if state.phase == "Succeeded":
        return Condition(SUCCEEDED, "True", state.reason or "Published", state.message)
    if state.finished:
        return Condition(SUCCEEDED, "False", state.reason or state.phase, state.message)
    return Condition(SUCCEEDED, "Unknown", state.phase, state.message)


def _builder_pinned(state: Execution) -> Iterator[Condition]:
    """Whether all nodes have the same images for its pods; nothing of an execution that has none or makes no pods."""
    own = state.builder
    named = [(own.image, own.digest), (own.push_image, own.push_digest)]
    images = [pinned_image(image, digest) for image, digest in named if image]
    loose = [image for image, digest in named if image and not digest]
    if not images or all(each.phase == "Reused" for each in state.children):
        return
    if not loose:
        yield Condition(BUILDER_PINNED, "True", "Pinned", f"Its pods run {' and '.join(images)} on every node.")
        return
    message = (
        f"Nobody looked up where {' and '.join(loose)} led when the run was made (spec.registryAccess is Job, or there "
        "was nothing to build): each node pulls it by itself, and nodes may have different images."
    )
    yield Condition(BUILDER_PINNED, "False", "NotLookedUp", message)


def _merged(found: Condition, known: Mapping[str, Any], generation: int, now: float) -> dict[str, Any]:
    since = known.get("lastTransitionTime") if known.get("status") == found.status else None
    return {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": within(found.message),
        "observedGeneration": generation,
        "lastTransitionTime": since or written(now),
    }


def _names(children: Iterable[ChildRecord]) -> str:
    return ", ".join(each.architecture for each in children)


# -- events ------------------------------------------------------------------------------------------------------------


def execution_events(before: Execution | None, state: Execution, *, former: str) -> Iterator[PlannedEvent]:
    """What changed in an execution. ``former``: the published digest until now."""
    if before is None:
        yield from _started(state)
    for child in state.children:
        known = recorded_child(before, child.architecture) if before is not None else None
        if known is None or known.phase != child.phase:
            yield from _of_child(state, child)
    if state.finished and (before is None or before.phase != state.phase):
        yield from _ended_events(state, former=former)


def superseded_event(state: Execution) -> PlannedEvent:
    return _event("BuildSuperseded", f"{state.name} is not carried on: what is wanted has changed.", state)


def notice_events(
    resolved: ResolvedArchitectures, warnings: Sequence[Problem], unused: Sequence[str], unknown: Sequence[str]
) -> Iterator[PlannedEvent]:
    """What somebody may want to know about the build request and its nodes, whatever is built."""
    for name in resolved.mismatched:
        message = f"Node {name} has another architecture in its labels than in its status; the status counts."
        yield _warning("ArchitectureLabelMismatch", message)
    for problem in warnings:
        yield _warning(problem.reason, problem.message, architecture=problem.architecture)
    for architecture in unused:
        message = f"The override for {architecture} is not used: {architecture} is not among the architectures."
        yield PlannedEvent(type="Normal", reason="OverrideUnused", message=message, architecture=architecture)
    for architecture in unknown:
        message = f"spec.rebuild.architectures names {architecture}, which this build does not have."
        yield _warning("RebuildArchitectureUnknown", message, architecture=architecture)
    for architecture in resolved.pending:
        message = f"{architecture} is built with the next build (spec.architectures.onNewArchitecture: NextBuild)."
        yield PlannedEvent(type="Normal", reason="ArchitecturePending", message=message, architecture=architecture)


def abandoned_tags_event(tags: Iterable[str], repository: str) -> Iterator[PlannedEvent]:
    for tag in tags:
        message = f"{repository}:{tag} is no longer moved; it stays in the registry where it is."
        yield PlannedEvent(type="Normal", reason="TagAbandoned", message=message)


def repointed_event(result: str, name: str) -> PlannedEvent:
    """An older result is the published one again."""
    message = f"{result}, which {name} made, is published again: the inputs are the same."
    return PlannedEvent(type="Normal", reason="BuildSucceeded", message=message, execution=name)


def _started(state: Execution) -> Iterator[PlannedEvent]:
    if state.forced is not None:
        listed = ", ".join(state.forced.architectures or ()) or "what is missing"
        yield _event("RebuildRequested", f"Rebuild {state.forced.token!r} was asked for: {listed}.", state)
    reused = [each.architecture for each in state.children if each.phase == "Reused"]
    rest = [each.architecture for each in state.children if each.phase != "Reused"]
    parts = [f"builds {', '.join(rest)}" if rest else "", f"reuses {', '.join(reused)}" if reused else ""]
    yield _event("BuildStarted", f"{state.name} {' and '.join(part for part in parts if part)}.", state)


def _of_child(state: Execution, child: ChildRecord) -> Iterator[PlannedEvent]:
    match child.phase:
        case "Reused":
            message = (
                f"{child.architecture} is not built again: {child.digest} of {child.reused_from} has the same key."
            )
            yield _event("ArchitectureReused", message, state, child)
        case "Built":
            yield _event("ArchitectureBuilt", f"{child.architecture} is built: {child.digest}.", state, child)
        case "WaitingForNode":
            yield _event("WaitingForNode", f"{child.architecture}: {child.message}", state, child)
        case "Failed":
            message = f"{child.architecture}: {child.reason}: {child.message}"
            yield _warning("ArchitectureBuildFailed", message, architecture=child.architecture, execution=state.name)
        case _:
            return


def _ended_events(state: Execution, *, former: str) -> Iterator[PlannedEvent]:
    if state.phase == "Succeeded":
        if state.index is not None:
            yield _event("IndexPushed", f"{state.result} has {len(state.children)} architectures.", state)
        same = " (unchanged)" if former and state.result.endswith(f"@{former}") else ""
        yield _event("BuildSucceeded", f"{state.result} is published{same}.", state)
    elif state.phase == "Failed":
        yield _warning("BuildFailed", f"{state.name}: {state.message or state.reason}", execution=state.name)
    elif state.phase == "Interrupted":
        yield _warning("BuildInterrupted", f"{state.name}: {state.message or state.reason}", execution=state.name)


def _event(reason: str, message: str, state: Execution, child: ChildRecord | None = None) -> PlannedEvent:
    architecture = child.architecture if child is not None else ""
    return PlannedEvent(type="Normal", reason=reason, message=message, architecture=architecture, execution=state.name)


def _warning(reason: str, message: str, *, architecture: str = "", execution: str = "") -> PlannedEvent:
    return PlannedEvent(type="Warning", reason=reason, message=message, architecture=architecture, execution=execution)


# -- statuses ----------------------------------------------------------------------------------------------------------


STATUS_INTERVAL: Final = 2.0
"""Seconds between two writes of progress to one object."""
_RESULTS: Final = ("image", "currentRun", "activeRun", "rebuildToken", "result", "index")
"""Members of which every change is an end or a beginning."""


def status_patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) that makes ``wanted`` of ``stored``; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in stored if wanted.get(name) is None and stored[name] is not None}
    for name, value in wanted.items():
        known = stored.get(name)
        if value is None or value == known:
            continue
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            if inner := status_patch(known, value):
                patch[name] = inner
        else:
            patch[name] = value
    return patch


def may_wait(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the difference is progress only: nothing ended, and no condition says anything new."""
    if any(stored.get(name) != wanted.get(name) for name in _RESULTS):
        return False
    if wanted.get("phase") in ENDED and stored.get("phase") != wanted.get("phase"):
        return False
    return _ended_architectures(wanted) <= _ended_architectures(stored) and _condition_reasons(
        wanted
    ) == _condition_reasons(stored)


class StatusRateLimiter:
    """When progress of each object was written last; ``uid`` identifies the object."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}

    def rest(self, uid: str, now: float) -> float:
        """Seconds until progress may be written again; 0 if it may be now."""
        last = self._written.get(uid)
        return max(0.0, last + STATUS_INTERVAL - now) if last is not None else 0.0

    def wrote(self, uid: str, now: float) -> None:
        """Progress was written. What is older than the pace is forgotten."""
        self._written = {each: at for each, at in self._written.items() if now - at < STATUS_INTERVAL}
        self._written[uid] = now


def _architectures(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The architectures of an ImageBuildRun; an ImageBuild has their names only."""
    return (each for each in status.get("architectures") or () if isinstance(each, Mapping))


def _ended_architectures(status: Mapping[str, Any]) -> set[tuple[Any, Any]]:
    return {
        (each.get("architecture"), each.get("phase"))
        for each in _architectures(status)
        if each.get("phase") in ENDED_CHILD
    }


def _condition_reasons(status: Mapping[str, Any]) -> set[tuple[Any, Any, Any]]:
    return {
        (each.get("type"), each.get("status"), each.get("reason"))
        for each in status.get("conditions") or ()
        if isinstance(each, Mapping)
    }
