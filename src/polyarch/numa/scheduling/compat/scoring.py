"""How good the plugin finds a node: 0 – 100 (NS-030 – NS-033). Pure.

Amounts are rounded up to whole numbers and divided without floats, so that their order never changes a score. The
plugin has no sound answer for balance of one resource and for no request at all; NS-032 says what holds here.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from polyarch.numa.scheduling.compat import least_nodes
from polyarch.numa.scheduling.compat.filtering import Free
from polyarch.numa.scheduling.compat.options import CompatOptions
from polyarch.numa.scheduling.compat.requests import effective, rounded_up
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

BEST: Final = 100


def score(pod: PodFacts, node: NodeFacts, free: Free, options: CompatOptions, *, foreign: bool = False) -> int:
    """Of a node, whether the pod fits there or not."""
    if not pod.is_guaranteed:
        return BEST
    if foreign or not node.has_topology:
        return 0
    if options.strategy == "LeastNUMANodes":
        return least_nodes.score(pod, node, free)
    if node.settings.policy != "single-numa-node":
        return 0
    if node.settings.scope == "pod":
        return _least_of_cells(effective(pod), free, options)
    scores = [_least_of_cells(each.requests, free, options) for each in pod.containers]
    return sum(scores) // len(scores) if scores else 0


def _least_of_cells(requests: Amounts, free: Free, options: CompatOptions) -> int:
    """The smallest score that is not 0; 0 if all are."""
    return min((found for cell in free.values() if (found := cell_score(requests, cell, options))), default=0)


def cell_score(requests: Amounts, cell: Amounts, options: CompatOptions) -> int:
    """Of one cell, by any strategy but LeastNUMANodes."""
    if not requests:
        return 0
    if options.strategy == "BalancedAllocation":
        return _balanced(requests, cell)
    rule = _RULES[options.strategy]
    total = weights = 0
    for name, amount in requests.items():
        weight = options.weight(name)
        weights += weight
        available = cell.get(name, 0)
        if 0 < available >= amount:
            total += weight * rule(rounded_up(amount), rounded_up(available))
    return total // weights


def _least(asked: int, available: int) -> int:
    return (available - asked) * BEST // available


def _most(asked: int, available: int) -> int:
    return asked * BEST // available


_RULES: Final[Mapping[str, Callable[[int, int], int]]] = {"LeastAllocated": _least, "MostAllocated": _most}


def _balanced(requests: Amounts, cell: Amounts) -> int:
    """By the sample variance of what share of the cell each resource takes, over one common denominator."""
    pairs = []
    for name, amount in requests.items():
        asked, available = rounded_up(amount), rounded_up(cell.get(name, 0))
        if available <= 0:
            asked = available = 1
        if asked > available:
            return 0
        pairs.append((asked, available))
    count = len(pairs)
    if count == 1:
        return BEST
    common = prod(available for _, available in pairs)
    shares = [asked * (common // available) for asked, available in pairs]
    spread = count * sum(share * share for share in shares) - sum(shares) ** 2
    whole = count * (count - 1) * common * common
    return (whole - spread) * BEST // whole
