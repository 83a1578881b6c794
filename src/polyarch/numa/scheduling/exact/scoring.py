"""How good a node is that fits, from 0 to 100 (NS-070 – NS-072). Pure, and exact: no floats."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from polyarch.numa.scheduling.exact.demand import Unit
from polyarch.numa.scheduling.exact.options import ExactOptions
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.exact.several import distance, sets
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts


def unit_score(unit: Unit, cells: Cells, room: Room, options: ExactOptions) -> int:
    """Of the strategies that look at amounts, before the unit is placed on these cells."""
    there = {name: room.available(cells, name) for name in unit.needs}
    if options.strategy == "BalancedAllocation":
        return balanced(unit.needs, there)
    return allocated(unit.needs, there, options.weights, most=options.strategy == "MostAllocated")


def allocated(needs: Amounts, there: Amounts, weights: Mapping[str, int], *, most: bool) -> int:
    """The weighted mean of how full the cells get, or of how empty they stay."""
    total = weight_of_all = 0
    for name, amount in needs.items():
        room = there[name]
        weight = max(1, weights.get(name, 1))
        weight_of_all += weight
        if 0 < amount <= room:
            total += weight * ((amount if most else room - amount) * 100 // room)
    return total // weight_of_all if weight_of_all else 0


def balanced(needs: Amounts, there: Amounts) -> int:
    """100 where all resources are used up alike, less by the sample variance of their fractions."""
    if any(amount > there[name] for name, amount in needs.items()):
        return 0
    count = len(needs)
    if count < 2:
        return 100 * count
    whole = prod(there[name] for name in needs)
    parts = [amount * (whole // there[name]) for name, amount in needs.items()]
    spread = count * sum(part * part for part in parts) - sum(parts) ** 2
    return max(0, 100 - -(-100 * spread // (count * (count - 1) * whole * whole)))


def fewest_cells(chosen: Sequence[Cells], node: NodeFacts) -> int:
    """LeastNUMANodes: fewer cells first, then those closest to each other (NS-034, NS-071)."""
    step = 100 // node.settings.most_cells
    score = 100 - max(len(each) for each in chosen) * step
    costs = {each.id: each.costs for each in node.cells}
    known = tuple((each, tuple(there.items())) for each, there in costs.items())
    if all(distance(each, costs) <= _nearest(known, len(each)) for each in chosen):
        score += step // 2
    return max(0, score)


@lru_cache(maxsize=256)  # machines of a fleet are alike, and large ones have thousands of sets
def _nearest(known: tuple[tuple[int, tuple[tuple[int, int], ...]], ...], size: int) -> int:
    """The least distance of so many cells."""
    costs = {each: dict(there) for each, there in known}
    return min(distance(each, costs) for each in sets(tuple(costs), size))
