"""Which execution is right for what is wanted: a finished one, the one under way, none for now, or a new one. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from polyarch.builds.api.resources import Forced
from polyarch.builds.architectures import ResolvedArchitectures
from polyarch.builds.facts.build_facts import (
    ENDED,
    BuildFacts,
    BuildLookup,
    Execution,
    current_execution,
    own_executions,
)
from polyarch.builds.plan.document import BuildDecision
from polyarch.builds.plan.executions import (
    covering,
    covers,
    ended_by_itself,
    existence,
    find_reusable_child,
    key_of,
    makes,
    recorded_child,
    usable,
)
from polyarch.builds.plan.failures import FailureHold, failure_hold
from polyarch.builds.plan.kind import BuildKind
from polyarch.builds.plan.request import DesiredBuild, ResolvedRequest, as_executed, with_force


class ExecutionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that is right, and the target that it is for."""

    decision: BuildDecision
    target: DesiredBuild
    execution: Execution | None = None
    """The finished one (``UpToDate``, ``Repoint``) or the one under way (``InProgress``); None: none, or a new one."""
    hold: FailureHold | None = None
    lookups: tuple[BuildLookup, ...] = ()
    unreachable: str = ""
    """A registry did not say whether something is there."""


def choose_execution(
    facts: BuildFacts, request: ResolvedRequest, target: DesiredBuild, kind: BuildKind
) -> ExecutionChoice:
    """The execution for this target. ``Build`` stands for a new one, with or without Jobs."""
    if is_new_token(facts) and not _names_nothing(facts, request.resolved):
        return _renewed(facts, request.resolved, target)
    needed = request.resolved.needed
    running = _running_for(facts, request, kind)
    if running is not None and _is_forced_now(facts, running[0]):
        return _in_progress(*running)
    current = current_execution(facts)
    if current is not None and covers(current, target, needed) and kind.can_own(target, current):
        return ExecutionChoice(decision="UpToDate", target=target, execution=current)
    older = _older(facts, target, needed, current, kind)
    if older is not None:
        return older
    if running is not None:
        return _in_progress(*running)
    hold = failure_hold(facts, target)
    if hold is not None:
        return ExecutionChoice(decision="Held", target=target, hold=hold, lookups=hold.lookups)
    forced = next((each for each in _running(facts) if _is_forced_now(facts, each)), None)
    if forced is not None and forced.forced is not None:
        return _forced(facts, target, set(forced.forced.architectures or ()) & set(request.resolved.architectures))
    return ExecutionChoice(decision="Build", target=target)


def _running(facts: BuildFacts) -> list[Execution]:
    """The build's executions under way, the newest first; times of creation are whole seconds and may be equal."""
    found = [each for each in own_executions(facts) if each.phase not in ENDED and not each.deleting]
    return found[::-1]


def _running_for(facts: BuildFacts, request: ResolvedRequest, kind: BuildKind) -> tuple[Execution, DesiredBuild] | None:
    """The execution under way that makes what is wanted, and the target with its pins; one that is forced first."""
    found = []
    for execution in _running(facts):
        own = as_executed(facts, request.inputs, execution)
        if makes(execution, own, request.resolved.needed) and kind.can_own(own, execution):
            found.append((execution, own))
    return min(found, key=lambda each: not _is_forced_now(facts, each[0]), default=None)


def _is_forced_now(facts: BuildFacts, execution: Execution) -> bool:
    """Whether the rebuild that is asked for is what made it."""
    token = facts.request.spec.rebuild.token
    return bool(token) and execution.forced is not None and execution.forced.token == token


def is_new_token(facts: BuildFacts) -> bool:
    """Whether a rebuild is asked for that no execution has been made for."""
    token = facts.request.spec.rebuild.token
    if not token or token == facts.request.rebuild_honoured:
        return False
    return not any(each.forced is not None and each.forced.token == token for each in own_executions(facts))


def _in_progress(active: Execution, own: DesiredBuild) -> ExecutionChoice:
    """The execution goes on with all of its architectures, also with those whose nodes have left meanwhile."""
    keys = {**{each.architecture: each.key for each in active.keys}, **own.keys}
    keys = {each.architecture: keys[each.architecture] for each in active.keys}
    target = msgspec.structs.replace(own, keys=keys, architectures=tuple(sorted(keys)), forced=active.forced)
    return ExecutionChoice(decision="InProgress", target=target, execution=active)


def _older(
    facts: BuildFacts, target: DesiredBuild, needed: Sequence[str], current: Execution | None, kind: BuildKind
) -> ExecutionChoice | None:
    """An older result that covers, if the registry still has it and its children.

    One that cannot be the build's own is not chosen: an execution of another name has its images. After one
    that is gone the next are asked for together, as many as are gone already.
    """
    gone, asked = 0, list[tuple[BuildLookup, ...]]()
    for execution in covering(facts, target, needed):
        own = kind.can_own(target, execution)
        if own and current is not None and execution.name == current.name:
            continue
        digests = [recorded_child(execution, each) for each in needed]
        references = [execution.result, *(f"{execution.repository}@{each.digest}" for each in digests if each)]
        answers = [existence(facts, each) for each in dict.fromkeys(references)]
        if "gone" in answers:
            gone += 1
            continue
        lookups = tuple(each for each in answers if isinstance(each, BuildLookup))
        if lookups:
            asked.append(lookups)
            if len(asked) >= gone:
                break
        elif asked:
            break
        elif "unknown" in answers:
            return ExecutionChoice(
                decision="Wait", target=target, unreachable=f"{execution.result} could not be looked up"
            )
        else:
            if own:
                return ExecutionChoice(decision="Repoint", target=target, execution=execution)
            return _renamed(facts, target, execution)
    if asked:
        return ExecutionChoice(decision="Wait", target=target, lookups=tuple(each for some in asked for each in some))
    return None


def _renamed(facts: BuildFacts, target: DesiredBuild, execution: Execution) -> ExecutionChoice:
    """A new execution with every image of a result that covers: the same index, also where it has more than needed."""
    keys = {each.architecture: key_of(execution, each.architecture) for each in execution.children if usable(each)}
    extra = [each for each in execution.children if usable(each) and each.architecture not in target.keys]
    answers = [existence(facts, f"{execution.repository}@{each.digest}") for each in extra]
    lookups = tuple(each for each in answers if isinstance(each, BuildLookup))
    if lookups:
        return ExecutionChoice(decision="Wait", target=target, lookups=lookups)
    if any(each != "there" for each in answers):
        return ExecutionChoice(decision="Build", target=target)
    keys = {**keys, **target.keys}
    whole = msgspec.structs.replace(
        target, keys=dict(sorted(keys.items())), architectures=tuple(sorted({*keys, *target.architectures}))
    )
    return ExecutionChoice(decision="Build", target=whole)


def _renewed(facts: BuildFacts, resolved: ResolvedArchitectures, target: DesiredBuild) -> ExecutionChoice:
    """A new rebuild token: the listed architectures; without a list a good build is renewed, a failed one resumed."""
    listed = set(facts.request.spec.rebuild.architectures or ())
    if listed:
        return _forced(facts, target, listed & set(resolved.architectures))
    finished = ended_by_itself(facts)
    if finished and finished[-1].phase == "Succeeded":
        return _forced(facts, target, resolved.architectures)
    lacking, lookups = [], list[BuildLookup]()
    for architecture in resolved.architectures:
        look = find_reusable_child(facts, target, architecture)
        if look.lookups:
            lookups += look.lookups
        elif look.unreachable:
            return ExecutionChoice(decision="Wait", target=target, unreachable=look.unreachable)
        elif look.found is None:
            lacking.append(architecture)
    if lookups:
        return ExecutionChoice(decision="Wait", target=target, lookups=tuple(lookups))
    return _forced(facts, target, lacking)


def _forced(facts: BuildFacts, target: DesiredBuild, architectures: Iterable[str]) -> ExecutionChoice:
    forced = Forced(token=facts.request.spec.rebuild.token, architectures=sorted(architectures))
    return ExecutionChoice(decision="Build", target=with_force(target, forced))


def _names_nothing(facts: BuildFacts, resolved: ResolvedArchitectures) -> bool:
    """The rebuild lists architectures, and none of them is wanted: it builds nothing."""
    listed = set(facts.request.spec.rebuild.architectures or ())
    return bool(listed) and not listed & set(resolved.architectures)


def unknown_forced(facts: BuildFacts, resolved: ResolvedArchitectures) -> tuple[str, ...]:
    """Architectures of ``spec.rebuild`` that the build does not have."""
    if not is_new_token(facts):
        return ()
    return tuple(sorted(set(facts.request.spec.rebuild.architectures or ()) - set(resolved.architectures)))
