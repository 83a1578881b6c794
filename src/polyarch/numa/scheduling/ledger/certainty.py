"""Whether a pod will be admitted in whatever order the kubelet gets to those that are on their way to its node.

A reservation is of the cells that the kubelet would choose now. But it admits pods as they arrive, which the filter
does not know, and room comes free meanwhile: so another pod may be on the cell that was meant for this one, and nobody
is told until the node's object shows it. What is available without those on their way is sure; they may be on any cell.
Here is the proof that some cell is left for everybody all the same. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts, is_memory
from polyarch.numa.scheduling.facts.nodes import NodeFacts

WHOLE: Final = 1000
"""The least amount of CPUs and devices."""
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})
"""Policies under which a kubelet refuses pods."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What one pod needs to be admitted."""

    units: tuple[Amounts, ...] = ()
    """Each has to find one cell."""
    is_fragile: bool = False
    """More room than expected may harm it too: what its init containers leave ties others to their cell, or it needs
    several cells at once. Nobody else may be on the way to the node with it."""


def is_certain(
    node: NodeFacts,
    available: Mapping[int, Amounts],
    new: Claim,
    promised: Sequence[Claim],
    demands: Sequence[Amounts],
) -> bool:
    """``available``: by cell, without those on their way; ``promised``: the ones among these that somebody was told
    would be admitted; ``demands``: all of them. True: the kubelet admits the new pod, and the promised ones as before.
    """
    if node.settings.policy not in ALIGNING or not demands:
        return True
    claims = [new, *promised]
    if any(each.is_fragile for each in claims):
        return False
    grouped = {cell.id for cell in node.cells if len(cell.memory_group) > 1}
    units = [unit for each in claims for unit in each.units]
    together = _sum([*demands, *new.units])
    kinds = {tuple(sorted(unit.items())): unit for unit in units}
    if len(kinds) == 1 and together == _sum(units):
        return len(units) <= sum(_times(cell, free, units[0], grouped) for cell, free in available.items())
    return all(_finds_a_cell(available, unit, together, grouped) for unit in kinds.values())


def _finds_a_cell(
    available: Mapping[int, Amounts], unit: Amounts, together: Mapping[str, int], grouped: set[int]
) -> bool:
    """Even if all the others are placed so as to keep it from every cell that they can."""
    open_cells = [free for cell, free in available.items() if _times(cell, free, unit, grouped)]
    closed = 0
    for name, amount in unit.items():
        step = 1 if is_memory(name) else WHOLE
        left = together[name] - amount
        for spare in sorted(free[name] - amount for free in open_cells):
            left -= spare + step
            if left < 0:
                break
            closed += 1
    return closed < len(open_cells)


def _times(cell: int, free: Amounts, unit: Amounts, grouped: set[int]) -> int:
    """How many such units the cell can hold."""
    if cell in grouped and any(is_memory(name) for name in unit):
        return 0
    return min(free.get(name, 0) // amount for name, amount in unit.items())


def _sum(units: Iterable[Amounts]) -> Counter[str]:
    total = Counter[str]()
    for unit in units:
        total.update(unit)
    return total
