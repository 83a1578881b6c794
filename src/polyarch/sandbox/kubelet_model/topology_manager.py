"""The topology manager's arithmetic: hints of the other managers, and how they become one set of cells.

A hint says that a set of cells would do, and whether it is as small as it can be (*preferred*). Each manager gives its
hints per resource: None stands for a resource that any cells suit, an empty list for one that nothing suits."""

from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from polyarch.sandbox.kubelet_model.machine import Machine, Node, mask, members


class TopologyHint(msgspec.Struct, frozen=True):
    """A set of cells as a bit mask; None: any."""

    cells: int | None
    preferred: bool


Hints = Mapping[str, Sequence[TopologyHint] | None]
"""By resource."""
ANY = TopologyHint(None, preferred=True)
NOTHING = TopologyHint(None, preferred=False)


def merge(node: Node, hints: Sequence[Hints]) -> tuple[TopologyHint, bool]:
    """The best hint that all managers together allow, and whether the pod may start."""
    policy = node.configuration.topology_policy
    lists = _lists(hints)
    if policy == "single-numa-node":
        lists = [[hint for hint in each if _is_single(hint)] for each in lists]
    best = _best(node, lists)
    if policy == "single-numa-node" and best.cells == mask(node.machine.cell_ids):
        best = TopologyHint(None, best.preferred)
    return best, best.preferred or policy == "best-effort"


def _lists(hints: Sequence[Hints]) -> list[Sequence[TopologyHint]]:
    found: list[Sequence[TopologyHint]] = []
    for by_resource in hints:
        if not by_resource:
            found.append([ANY])
        found.extend([ANY] if listed is None else listed or [NOTHING] for listed in by_resource.values())
    return found


def _is_single(hint: TopologyHint) -> bool:
    return hint.preferred and (hint.cells is None or hint.cells.bit_count() == 1)


def _best(node: Node, lists: Sequence[Sequence[TopologyHint]]) -> TopologyHint:
    everything = mask(node.machine.cell_ids)
    fewest = max((_narrowest(each) for each in lists), default=0)
    best: TopologyHint | None = None
    for hint in _merged(everything, lists):
        if hint.cells and (best is None or _is_better(node, hint, best, fewest)):
            best = hint
    return best or TopologyHint(everything, preferred=False)


def _merged(everything: int, lists: Sequence[Sequence[TopologyHint]]) -> list[TopologyHint]:
    """All results of taking one hint of each list: the cells common to them, preferred if all are and have the same.

    The kubelet walks through every combination. Here equal results are joined list by list, so that eight cells and
    four resources do not take minutes.
    """
    # What was merged so far: the common cells, the cells of each hint if all have the same, whether all are preferred.
    so_far: dict[tuple[int, int | None, bool], None] = {(everything, None, True): None}
    for each in lists:
        joined: dict[tuple[int, int | None, bool], None] = {}
        for (common, same, preferred), hint in product(so_far, each):
            cells = same if hint.cells is None else hint.cells
            left = preferred and hint.preferred and same in (None, cells)
            joined[common & (everything if hint.cells is None else hint.cells), cells if left else None, left] = None
        so_far = joined
    return [TopologyHint(common, preferred) for common, _, preferred in so_far]


def _narrowest(hints: Sequence[TopologyHint]) -> int:
    """How many cells the smallest hint has; 0 if none names cells."""
    return min((hint.cells.bit_count() for hint in hints if hint.cells is not None), default=0)


def _is_better(node: Node, candidate: TopologyHint, current: TopologyHint, fewest: int) -> bool:
    """Whether the candidate replaces the current one. Of hints that are not preferred, one of as many cells as the
    neediest resource asks for at least (``fewest``) is best, then smaller ones, the larger of them first."""
    if candidate.preferred != current.preferred:
        return candidate.preferred
    new, old = _cells(candidate).bit_count(), _cells(current).bit_count()
    if candidate.preferred or old > fewest:
        return _precedes(node, _cells(candidate), _cells(current))
    if old == fewest:
        return new == fewest and _precedes(node, _cells(candidate), _cells(current))
    if new > fewest:
        return False
    if new == fewest or new != old:
        return new == fewest or new > old
    return _precedes(node, _cells(candidate), _cells(current))


def _cells(hint: TopologyHint) -> int:
    return hint.cells or 0


def _precedes(node: Node, one: int, other: int) -> bool:
    """Whether a set of cells is preferred to another one: fewer cells, then closer ones if so set, then lower ids."""
    configuration = node.configuration
    if one.bit_count() != other.bit_count() or not configuration.prefer_closest:
        return narrower(one, other)
    if configuration.topology_policy == "single-numa-node":
        return narrower(one, other)
    near, far = average_distance(node.machine, one), average_distance(node.machine, other)
    return narrower(one, other) if near == far else near < far


def narrower(one: int, other: int) -> bool:
    """Fewer cells, or as many with a lower bit mask."""
    return (one.bit_count(), one) < (other.bit_count(), other)


def average_distance(machine: Machine, cells: int) -> float:
    """The mean distance of all ordered pairs, each cell with itself included."""
    ids = members(cells)
    return sum(machine.distance(one, other) for one, other in product(ids, ids)) / len(ids) ** 2
