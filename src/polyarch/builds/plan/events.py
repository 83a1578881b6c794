"""Events: what happened in a round, each told once for an architecture and an execution (BD-216, BD-242). Pure.

An event belongs to a change of what is recorded: a round that records nothing new tells nothing.
"""

from collections.abc import Iterable, Iterator, Sequence

from polyarch.builds.architectures.resolution import Resolved
from polyarch.builds.executions.state import State, recorded_child
from polyarch.builds.facts.facts import ChildRecord, Execution
from polyarch.builds.facts.problem import Problem
from polyarch.builds.plan.document import PlannedEvent


def of_execution(before: Execution | None, state: State, *, former: str) -> Iterator[PlannedEvent]:
    """What changed in an execution. ``former``: the published digest until now."""
    if before is None:
        yield from _started(state)
    for child in state.children:
        known = recorded_child(before, child.architecture) if before is not None else None
        if known is None or known.phase != child.phase:
            yield from _of_child(state, child)
    if state.finished and (before is None or before.phase != state.phase):
        yield from _ended(state, former=former)


def superseded(state: State) -> PlannedEvent:
    return _event("BuildSuperseded", f"{state.name} is not carried on: what is wanted has changed.", state)


def notices(
    resolved: Resolved, warnings: Sequence[Problem], unused: Sequence[str], unknown: Sequence[str]
) -> Iterator[PlannedEvent]:
    """What somebody may want to know about the wish and its nodes, whatever is built."""
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


def abandoned_tags(tags: Iterable[str], repository: str) -> Iterator[PlannedEvent]:
    for tag in tags:
        message = f"{repository}:{tag} is no longer moved; it stays in the registry where it is."
        yield PlannedEvent(type="Normal", reason="TagAbandoned", message=message)


def repointed(result: str, name: str) -> PlannedEvent:
    """An older result is the published one again."""
    message = f"{result}, which {name} made, is published again: the inputs are the same."
    return PlannedEvent(type="Normal", reason="BuildSucceeded", message=message, execution=name)


def _started(state: State) -> Iterator[PlannedEvent]:
    if state.forced is not None:
        listed = ", ".join(state.forced.architectures or ()) or "what is missing"
        yield _event("RebuildRequested", f"Rebuild {state.forced.token!r} was asked for: {listed}.", state)
    reused = [each.architecture for each in state.children if each.phase == "Reused"]
    rest = [each.architecture for each in state.children if each.phase != "Reused"]
    parts = [f"builds {', '.join(rest)}" if rest else "", f"reuses {', '.join(reused)}" if reused else ""]
    yield _event("BuildStarted", f"{state.name} {' and '.join(part for part in parts if part)}.", state)


def _of_child(state: State, child: ChildRecord) -> Iterator[PlannedEvent]:
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


def _ended(state: State, *, former: str) -> Iterator[PlannedEvent]:
    if state.phase == "Succeeded":
        if state.index is not None:
            yield _event("IndexPushed", f"{state.result} has {len(state.children)} architectures.", state)
        same = " (unchanged)" if former and state.result.endswith(f"@{former}") else ""
        yield _event("BuildSucceeded", f"{state.result} is published{same}.", state)
    elif state.phase == "Failed":
        yield _warning("BuildFailed", f"{state.name}: {state.message or state.reason}", execution=state.name)
    elif state.phase == "Interrupted":
        yield _warning("BuildInterrupted", f"{state.name}: {state.message or state.reason}", execution=state.name)


def _event(reason: str, message: str, state: State, child: ChildRecord | None = None) -> PlannedEvent:
    architecture = child.architecture if child is not None else ""
    return PlannedEvent(type="Normal", reason=reason, message=message, architecture=architecture, execution=state.name)


def _warning(reason: str, message: str, *, architecture: str = "", execution: str = "") -> PlannedEvent:
    return PlannedEvent(type="Warning", reason=reason, message=message, architecture=architecture, execution=execution)
