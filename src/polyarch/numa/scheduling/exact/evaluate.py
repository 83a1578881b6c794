"""One pod on one node, as the node's kubelet will decide (NS-044 – NS-073). Pure, and never an error.

This is the reference: whatever decides faster decides the same.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from polyarch.numa.scheduling.exact import checks, scoring, several, single
from polyarch.numa.scheduling.exact.allocation import allocate
from polyarch.numa.scheduling.exact.demand import Demand, Demands, Unit
from polyarch.numa.scheduling.exact.merging import merged
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.exact.single import Failure
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.decision import POD, Decision
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts


def evaluate(
    pod: PodFacts,
    node: NodeFacts,
    free: Mapping[int, Amounts],
    options: ExactOptions,
    *,
    demand: Demand | None = None,
    groups: Iterable[Cells] = (),
) -> Decision:
    """``free``: what is available without reservations, by cell; a cell that is not there has what its zone says.
    ``groups``: the ``memory_groups`` of the decisions that are reserved. ``demand``: that of :class:`Demands` for this
    node, where many nodes are asked."""
    if not node.has_topology:
        return checks.without_topology(pod, node, options)
    if demand is None:
        demand = Demands(pod).on(node)
    if (hit := checks.first_hit(pod, node, demand, options)) is not None:
        return hit
    room = Room(node, free, groups)
    action = checks.action(node, options)
    if action == "ignore":
        return _unaligned(node, demand, room)
    found = _placed(node, demand, room, options)
    if action == "score" and node.settings.policy == "restricted" and not found.fits:
        return Decision(node=node.name, fits=True)
    return found


def _unaligned(node: NodeFacts, demand: Demand, room: Room) -> Decision:
    """The topology manager has no say, or is not listened to."""
    for each in demand.containers if node.settings.policy in ("none", "best-effort") else ():
        used = allocate(each, None, room, node, preferred=False)
        if isinstance(used, Failure):
            return checks.rejected_unit(node, each, used)
    return Decision(node=node.name, fits=True)


def _placed(node: NodeFacts, demand: Demand, room: Room, options: ExactOptions) -> Decision:
    by_amounts = options.strategy != "LeastNUMANodes"
    chosen: dict[str, Cells] = {}
    score = 0
    is_spread = False
    for unit in demand.units:
        found = _choice(unit, node, room)
        if isinstance(found, Failure):
            return checks.rejected_unit(node, unit, found)
        if by_amounts:
            score += scoring.unit_score(unit, found.cells, room, options)
        held: set[int] = set()
        for each in demand.containers if unit.name == POD else (unit,):
            used = allocate(each, found.cells, room, node, preferred=found.preferred)
            if isinstance(used, Failure):
                return checks.rejected_unit(node, each, used)
            held |= used
        chosen[unit.name] = found.cells if found.preferred else tuple(sorted(held))
        is_spread |= not found.preferred or (node.settings.policy == "best-effort" and len(found.cells) > 1)
    if is_spread:
        score = 0
    elif not chosen:
        score = 100
    elif by_amounts:
        score //= len(chosen)
    else:
        score = scoring.fewest_cells(list(chosen.values()), node)
    return Decision(
        node=node.name,
        fits=True,
        cells=chosen,
        taken=room.taken(),
        unseen=room.unseen(),
        memory_groups=tuple(room.formed),
        score=score,
    )


class _Choice(NamedTuple):
    """Of the topology manager."""

    cells: Cells
    preferred: bool
    """They are as few as can be for each resource."""


def _choice(unit: Unit, node: NodeFacts, room: Room) -> _Choice | Failure:
    policy = node.settings.policy
    if policy != "restricted":
        one = single.cell(unit, room)
        if one is not None:
            return _Choice(one, preferred=True)
        if policy == "single-numa-node":
            return single.failure(unit, room)
    closest = node.settings.topology_options.get(several.CLOSEST) == "true"
    found = several.restricted(unit, room, closest=closest)
    if not isinstance(found, Failure):
        return _Choice(found, preferred=True)
    if policy == "restricted":
        return found
    return _Choice(merged(unit, room, closest=closest), preferred=False)
