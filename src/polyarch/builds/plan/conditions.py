"""Conditions of builds and of their executions, and the line that sums a build up (BD-240, BD-241). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch.builds.architectures.resolution import Resolved
from polyarch.builds.executions.progress import summary as progress_summary
from polyarch.builds.executions.state import FAULTY_CHILD, State, usable
from polyarch.builds.facts.facts import ChildRecord
from polyarch.builds.facts.problem import Problem
from polyarch.builds.facts.times import written
from polyarch.objects import Condition

ARCHITECTURES_RESOLVED: Final = "ArchitecturesResolved"
INPUTS_VALID: Final = "InputsValid"
PROGRESSING: Final = "Progressing"
READY: Final = "Ready"
DEGRADED: Final = "Degraded"
CHILDREN_READY: Final = "ChildrenReady"
INDEX_PUSHED: Final = "IndexPushed"
SUCCEEDED: Final = "Succeeded"
LONGEST: Final = 32_768
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


def within(text: str, most: int = LONGEST) -> str:
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


def architectures_resolved(resolved: Resolved) -> Condition:
    status = {"NoNodes": "False", "NodesUnknown": "Unknown"}.get(resolved.reason, "True")
    return Condition(ARCHITECTURES_RESOLVED, status, resolved.reason, resolved.message)  # type: ignore[arg-type]


def inputs_valid(problems: Sequence[Problem], *, undecided: bool = False) -> Condition:
    """``undecided``: the registry is still being tried."""
    if not problems:
        return Condition(INPUTS_VALID, "True", "Valid", "Everything that the build needs is there.")
    message = " ".join(each.message for each in problems)
    return Condition(INPUTS_VALID, "Unknown" if undecided else "False", problems[0].reason, message)


def progressing(state: State | None, *, obstacle: Problem | None = None) -> Condition:
    """What is going on. ``obstacle`` keeps a new execution from being made."""
    if state is None or state.finished:
        if obstacle is not None and obstacle.reason == "Suspended":
            return Condition(PROGRESSING, "False", "Suspended", obstacle.message)
        return Condition(PROGRESSING, "False", "Done", "Nothing is being built.")
    if state.phase == "Assembling":
        return Condition(PROGRESSING, "True", "Assembling", f"{state.name} has every image and publishes the result.")
    open_ones = [each for each in state.children if not usable(each) and each.phase not in FAULTY_CHILD]
    for reason, phase in (("WaitingForNode", "WaitingForNode"), ("Queued", "Pending")):
        if open_ones and all(each.phase == phase for each in open_ones):
            if reason == "Queued" and not all(each.reason == "Queued" for each in open_ones):
                continue
            return Condition(PROGRESSING, "True", reason, _each(open_ones))
    return Condition(PROGRESSING, "True", "Building", f"{state.name} builds {_names(open_ones)}.")


def ready(current: State | None, *, is_wanted: bool, missing: Sequence[str] = ()) -> Condition:
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


def build_summary(state: State | None, current: State | None, architectures: Sequence[str]) -> str:
    """``2/2``, or ``1/2 arm64: BuildFailed`` (BD-014)."""
    if state is not None:
        return progress_summary(state.children)
    there = [each.architecture for each in current.children if usable(each)] if current is not None else []
    wanted = architectures or there
    lacking = [each for each in wanted if each not in there]
    pending = f"{', '.join(lacking)} not built" if lacking and there else ""
    return " ".join(part for part in (f"{len(wanted) - len(lacking)}/{len(wanted)}", pending) if part)


# -- of an execution ---------------------------------------------------------------------------------------------------


def of_execution(state: State) -> tuple[Condition, ...]:
    """The three of an ImageBuildRun."""
    return _children_ready(state), _index_pushed(state), _succeeded(state)


def _children_ready(state: State) -> Condition:
    lacking = [each for each in state.children if not usable(each)]
    if not lacking:
        return Condition(CHILDREN_READY, "True", "Built", f"Every image is there: {_names(state.children)}.")
    faulty = [each for each in lacking if each.phase in FAULTY_CHILD]
    if faulty:
        return Condition(CHILDREN_READY, "False", faulty[0].reason or "BuildFailed", _each(faulty))
    return Condition(CHILDREN_READY, "False", state.reason or "Building", f"Not there yet: {_names(lacking)}.")


def _index_pushed(state: State) -> Condition:
    if state.phase == "Succeeded":
        return Condition(INDEX_PUSHED, "True", state.reason or "Published", f"{state.result} is published.")
    reason = state.reason if state.finished or state.phase == "Assembling" else ""
    return Condition(INDEX_PUSHED, "False", reason or state.phase, state.message if reason else "")


def _succeeded(state: State) -> Condition:
    if state.phase == "Succeeded":
        return Condition(SUCCEEDED, "True", state.reason or "Published", state.message)
    if state.finished:
        return Condition(SUCCEEDED, "False", state.reason or state.phase, state.message)
    return Condition(SUCCEEDED, "Unknown", state.phase, state.message)


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


def _each(children: Iterable[ChildRecord]) -> str:
    return "; ".join(
        ": ".join(part for part in (each.architecture, each.reason, each.message) if part) for each in children
    )


def _names(children: Iterable[ChildRecord]) -> str:
    return ", ".join(each.architecture for each in children)
