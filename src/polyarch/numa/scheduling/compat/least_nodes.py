"""LeastNUMANodes: fewer cells are better, near ones break the tie (NS-034, NS-035). Pure.

Of all sets of cells of the smallest size that holds the requests, the one of least distance. Sets are walked through in
lexicographic order, and sums of distances are kept on the way, so that the last cell of a set costs one addition. With
many cells there are more sets than anybody can wait for: then the first so many of each size are looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from polyarch.numa.scheduling.compat.filtering import Free
from polyarch.numa.scheduling.compat.requests import effective
from polyarch.numa.scheduling.facts.amounts import Amounts
from polyarch.numa.scheduling.facts.nodes import NodeFacts
from polyarch.numa.scheduling.facts.pods import PodFacts

UNKNOWN: Final = 255
"""The distance that firmware gives where it knows none."""
FEW_CELLS: Final = 12
"""Up to so many, all sets are looked at: at most 924 of one size."""
SETS: Final = 20_000
"""Of one size, with more cells."""
NO_END: Final = 1 << 62
CELLS_IN_ALL: Final = 120_000
"""Looked at for all sizes and containers of a pod, so that no answer takes longer than 50 ms; then all at once."""


class Choice(NamedTuple):
    """Cells for one container, or for the pod."""

    cells: tuple[int, ...]
    optimal: bool
    """No set of as many cells is nearer, whether it holds the requests or not."""


def score(pod: PodFacts, node: NodeFacts, free: Free) -> int:
    """0 – 100, of a Guaranteed pod, whatever the policy."""
    search = Search(node, free)
    if node.settings.scope == "pod":
        units: Sequence[Amounts] = [effective(pod)]
    else:
        units = [each.requests for each in pod.containers]
    size, optimal = 0, True
    for requests in units:
        if not search.lists_any(requests):
            continue
        choice = search.choose(requests)
        if choice is None:
            return 0
        size, optimal = max(size, len(choice.cells)), optimal and choice.optimal
        search.take(requests, choice.cells)
    return graded(size, optimal=optimal, most=node.settings.most_cells) if size else 100


def graded(size: int, *, optimal: bool, most: int) -> int:
    """Each cell costs its share of 100, and the nearest ones give half a share back."""
    share = 100 // most
    return max(0, 100 - size * share + (share // 2 if optimal else 0))


class Search:
    """The cells of a node, with what containers before have left, and how many sets may still be looked at."""

    def __init__(self, node: NodeFacts, free: Free) -> None:
        self._cells = tuple(sorted(free))
        self._free = {cell: dict(free[cell]) for cell in self._cells}
        costs = {each.id: each.costs for each in node.cells}
        self._distances = [[_distance(costs, one, other) for other in self._cells] for one in self._cells]
        self._least: dict[int, int | None] = {}
        self._left = CELLS_IN_ALL

    def lists_any(self, requests: Amounts) -> bool:
        return any(name in cell for cell in self._free.values() for name in requests)

    def take(self, requests: Amounts, cells: Sequence[int]) -> None:
        """Each of the cells gives what it has, in their order."""
        for name, amount in requests.items():
            for cell in cells:
                given = min(amount, self._free[cell][name])
                self._free[cell][name] -= given
                amount -= given

    def choose(self, requests: Amounts) -> Choice | None:
        """The smallest set that holds it, of least distance among those of its size."""
        able = [at for at, cell in enumerate(self._cells) if requests.keys() <= self._free[cell].keys()]
        needs = [(amount, [self._free[self._cells[at]][name] for at in able]) for name, amount in requests.items()]
        richest = [(amount, sorted(have, reverse=True)) for amount, have in needs]
        for size in range(1, len(able) + 1):
            if any(sum(have[:size]) < amount for amount, have in richest):
                continue
            if self._is_tired:
                break
            least = self._least_distance(size)
            walk = self._walked(_Walk(able, self._distances, needs, stop_at=least), size)
            if walk.best is not None:
                return Choice(self._named(walk.best), optimal=walk.distance == least)
        if not self._is_tired or not able or any(sum(have) < amount for amount, have in richest):
            return None
        return Choice(self._named(able), optimal=False)

    def _least_distance(self, size: int) -> int | None:
        """Of any set of this size; None if there are too many to look at."""
        if size not in self._least:
            walk = self._walked(_Walk(range(len(self._cells)), self._distances, ()), size)
            self._least[size] = walk.distance if walk.is_over else None
        return self._least[size]

    def _walked(self, walk: "_Walk", size: int) -> "_Walk":
        """Half of what may still be looked at is for the walks that follow."""
        is_small = len(self._cells) <= FEW_CELLS
        self._left -= walk.sets_of(size, *((NO_END, NO_END) if is_small else (SETS, self._left // 2)))
        return walk

    @property
    def _is_tired(self) -> bool:
        """What is left may not reach to the end of a single set."""
        return len(self._cells) > FEW_CELLS and self._left < 2 * len(self._cells) ** 2

    def _named(self, at: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._cells[each] for each in at)


class _Walk:
    """Through sets of one size: the first one of least distance that has enough of everything."""

    def __init__(
        self,
        able: Sequence[int],
        distances: Sequence[Sequence[int]],
        needs: Sequence[tuple[int, Sequence[int]]],
        *,
        stop_at: int | None = None,
    ) -> None:
        """``needs``: amounts, each with what every cell of ``able`` has. ``stop_at``: nothing is nearer than this."""
        self._able = able
        self._pairs = [[distances[one][other] + distances[other][one] for other in able] for one in able]
        self._own = [distances[at][at] for at in able]
        self._have = [have for amount, have in needs if amount > 0]
        self._most = [max(have) for have in self._have]
        self._needs = [amount for amount, _ in needs if amount > 0]
        self._stop_at = stop_at
        self._sets = self._cells = 0
        self.is_over = False
        """Whether every set has been looked at."""
        self.best: tuple[int, ...] | None = None
        self.distance: int | None = None
        """Sum over all pairs of the best set: of sets of one size it compares as the mean does."""

    def sets_of(self, size: int, sets: int, cells: int) -> int:
        """Of at most so many sets and cells; returns how many cells were looked at."""
        self._sets, self._cells = sets, cells
        self.is_over = self._extend((), 0, self._own, self._needs, size)
        return cells - self._cells

    def _extend(
        self, chosen: tuple[int, ...], distance: int, added: Sequence[int], missing: Sequence[int], size: int
    ) -> bool:
        """``added``: what each cell adds to the distance; ``missing``: by need. Returns whether to go on."""
        first = chosen[-1] + 1 if chosen else 0
        if size == 1:
            return self._last(chosen, distance, added, missing, first)
        for at in range(first, len(self._able) - size + 1):
            nearest = distance + size * min(added[at:])
            if self.distance is not None and nearest >= self.distance:
                return True
            self._cells -= len(self._able)
            pairs = self._pairs[at]
            still = [amount - have[at] for amount, have in zip(missing, self._have, strict=True)]
            if any(amount > (size - 1) * most for amount, most in zip(still, self._most, strict=True)):
                continue
            farther = [one + other for one, other in zip(added, pairs, strict=True)]
            if self._cells <= 0 or not self._extend((*chosen, at), distance + added[at], farther, still, size - 1):
                return False
        return True

    def _last(
        self, chosen: tuple[int, ...], distance: int, added: Sequence[int], missing: Sequence[int], first: int
    ) -> bool:
        able: Sequence[int] = range(first, min(len(self._able), first + self._sets))
        self._sets -= len(able)
        self._cells -= len(able)
        for amount, have in zip(missing, self._have, strict=True):
            able = [at for at in able if have[at] >= amount]
        if able:
            nearest = min(able, key=added.__getitem__)
            total = distance + added[nearest]
            if self.distance is None or total < self.distance:
                self.distance = total
                self.best = tuple(self._able[each] for each in (*chosen, nearest))
        return min(self._sets, self._cells) > 0 and (self.distance is None or self.distance != self._stop_at)


def _distance(costs: Mapping[int, Mapping[int, int]], one: int, other: int) -> int:
    return max(0, costs.get(one, {}).get(other, UNKNOWN))
