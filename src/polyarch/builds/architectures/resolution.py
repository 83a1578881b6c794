"""D: the architectures that a build is wanted for now (BD-040 to BD-047).

Nothing is remembered: whether an architecture is new is read from the age of its nodes and from what the current result
and the active execution have. So a node that comes and goes is young each time it comes, and a replaced node of a known
architecture counts at once.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from polyarch.builds.api.resources import Architectures
from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.architectures.selection import Selection, select, spelled
from polyarch.builds.facts.facts import Facts, NodeFacts
from polyarch.builds.facts.history import (
    active_execution,
    current_execution,
    own_executions,
    planned_architectures,
    published_architectures,
)
from polyarch.durations import format_duration

Reason = Literal["Resolved", "Settling", "NoNodes", "NodesUnknown"]
"""Of the condition ``ArchitecturesResolved`` (BD-240)."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The architectures of a build, and why it is these."""

    architectures: tuple[str, ...] = ()
    """D, sorted (BD-171)."""
    newcomers: tuple[str, ...] = ()
    """Architectures all of whose nodes are younger than ``settle``: not in D yet."""
    pending: tuple[str, ...] = ()
    """Architectures of D that wait for another reason to build (BD-046)."""
    dropped: tuple[str, ...] = ()
    """Architectures of the current result that the spec forbids (BD-045, BD-121)."""
    reason: Reason = "Resolved"
    message: str = ""
    wait: Literal["", "NoNodes", "NodesUnknown"] = ""
    """The reason why nothing can be planned now."""
    requeue_after: float | None = None
    """Seconds until the oldest node of a newcomer is old enough."""
    mismatched: tuple[str, ...] = ()
    """Names of nodes whose labels contradict their status: Warning ``ArchitectureLabelMismatch``."""
    unplaced: tuple[str, ...] = ()
    """Names of nodes that nothing says the architecture of."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The architectures that a result must have to be up to date: D without those that may wait."""
        return tuple(each for each in self.architectures if each not in self.pending)

    @property
    def is_multi(self) -> bool:
        """More than one architecture is wanted: that, and nothing else, makes a build multi-architecture (BD-044)."""
        return len(self.architectures) > 1


def resolve(facts: Facts) -> Resolved:
    """D of the wish. Raises ``InvalidSelector`` for a spec that the validation refuses."""
    wanted = facts.wish.spec.architectures
    if facts.nodes is None:
        return _unknown(facts)
    published = published_architectures(current_execution(facts))
    dropped = tuple(sorted(each for each in published if forbids(wanted, each)))
    if wanted.mode == "Explicit":
        listed = _sorted(wanted.names or ())
        message = f"{', '.join(listed)}: what spec.architectures.list says."
        return _resolved(facts, listed, published, Resolved(dropped=dropped, message=message))
    selection = select(_counting(facts, facts.nodes), wanted)
    settle = BuildTimes.of(facts.wish.spec).settle
    ages = _oldest(selection.counted)
    newcomers = _newcomers(facts, ages, published, settle)
    if not selection.counted and wanted.empty == "Wait":
        found: tuple[str, ...] = ()
    else:
        found = _sorted((ages.keys() - newcomers | set(wanted.include or ())) - set(wanted.exclude or ()))
    newcomers -= {*(wanted.include or ()), *(wanted.exclude or ())}
    due = min((ages[each] + settle - facts.now for each in newcomers), default=None)
    resolved = Resolved(
        newcomers=_sorted(newcomers),
        dropped=dropped,
        reason="Settling" if newcomers else "Resolved" if found else "NoNodes",
        message=_message(found, newcomers, selection, wanted, settle, pooled=bool(facts.members)),
        wait="" if found else "NoNodes",
        requeue_after=due,
        mismatched=_sorted(each.name for each in selection.counted if each.mismatch),
        unplaced=selection.unplaced,
    )
    return _resolved(facts, found, published, resolved)


def forbids(wanted: Architectures, architecture: str) -> bool:
    """The spec does not allow this architecture, whatever the nodes are (BD-045)."""
    if wanted.mode == "Explicit":
        return architecture not in (wanted.names or ())
    return architecture in (wanted.exclude or ())


def _counting(facts: Facts, nodes: Iterable[NodeFacts]) -> Iterable[NodeFacts]:
    """The nodes of the pool, where the build is for one."""
    return [each for each in nodes if each.name in facts.members] if facts.members else nodes


def _resolved(facts: Facts, found: tuple[str, ...], published: frozenset[str], resolved: Resolved) -> Resolved:
    postponed = facts.wish.spec.architectures.on_new_architecture == "NextBuild" and published
    pending = tuple(each for each in found if postponed and each not in published)
    return msgspec.structs.replace(resolved, architectures=found, pending=pending)


def _unknown(facts: Facts) -> Resolved:
    wanted = facts.wish.spec.architectures
    last = wanted.names if wanted.mode == "Explicit" else facts.wish.status.get("architectures")
    message = "The nodes of the cluster are not known now, so nothing is planned until they can be listed."
    return Resolved(architectures=_sorted(last or ()), reason="NodesUnknown", wait="NodesUnknown", message=message)


def _oldest(nodes: tuple[NodeFacts, ...]) -> dict[str, float]:
    """Architecture → creation time of its oldest node."""
    oldest: dict[str, float] = {}
    for node in nodes:
        oldest[node.architecture] = min(node.created, oldest.get(node.architecture, node.created))
    return oldest


def _newcomers(facts: Facts, ages: dict[str, float], published: frozenset[str], settle: float) -> set[str]:
    """Before the first execution nobody is one (BD-042)."""
    if not own_executions(facts):
        return set()
    known = published | planned_architectures(active_execution(facts))
    return {each for each, created in ages.items() if each not in known and facts.now - created < settle}


def _message(
    found: tuple[str, ...],
    newcomers: set[str],
    selection: Selection,
    wanted: Architectures,
    settle: float,
    *,
    pooled: bool,
) -> str:
    selected = wanted.node_selector is not None
    chosen = "linux nodes that spec.architectures.nodeSelector matches" if selected else "linux nodes that are workers"
    chosen = "linux nodes of the pool" if pooled else chosen
    if not found and not newcomers and selection.counted and wanted.exclude:
        there = ", ".join(sorted({each.architecture for each in selection.counted}))
        excluded = f"spec.architectures.exclude names all that the {chosen} have ({there})"
        sentences = [f"No architecture is left: {excluded}; exclude fewer, or add nodes of another one"]
    elif found or selection.counted:
        whose = f"all {selection.instead}, as there are no {chosen}" if selection.instead else f"the {chosen}"
        edited = ", with what include and exclude say" if wanted.include or wanted.exclude else ""
        sentences = [f"{', '.join(found) or 'none'}: the architectures of {whose}{edited}"]
    else:
        sentences = [f"There are no {chosen}; add one, or name architectures in spec.architectures.list"]
    if newcomers:
        names = ", ".join(sorted(newcomers))
        sentences.append(f"{names} counts once a node of it is {format_duration(settle)} old")
    if selection.unplaced:
        sentences.append(
            f"Not counted, as neither status.nodeInfo nor a label says what they run: {spelled(selection.unplaced)}"
        )
    return ". ".join(sentences) + "."


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
