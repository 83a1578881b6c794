"""Which cell the plugin takes, and why none (NS-021 – NS-023). Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.numa.scheduling.facts.amounts import Amounts, is_affine, is_host_level
from polyarch.numa.scheduling.facts.decision import CANNOT_ALIGN, POD, Kind
from polyarch.numa.scheduling.facts.nodes import HIGHEST_CELL
from polyarch.numa.scheduling.facts.pods import PodFacts

Free = Mapping[int, Amounts]
"""What each cell has left, by its id; a resource that is not there is one that the cell does not list."""

_ALL: Final = (1 << (HIGHEST_CELL + 1)) - 1


class Fit(msgspec.Struct, frozen=True, gc=False):
    """The cell, or what rules all of them out."""

    cell: int | None = None
    """None where it fits: nothing of it is on any cell."""
    kind: Kind = ""
    resources: tuple[str, ...] = ()


class Alignment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Of a pod: a cell per container, or the first container that has none."""

    cells: Mapping[str, tuple[int, ...]] = {}
    kind: Kind = ""
    message: str = ""
    container: str = ""
    resources: tuple[str, ...] = ()


def fit(requests: Amounts, free: Free, allocatable: Amounts | None, *, guaranteed: bool) -> Fit:
    """The lowest cell that has everything. ``allocatable`` None: the Node is not known, and not asked."""
    common = _ALL
    candidates: dict[str, int] = {}
    for name, amount in requests.items():
        if amount <= 0:
            continue
        if allocatable is not None and name not in allocatable:
            return Fit(kind="not-on-node", resources=(_first_missing(requests, allocatable),))
        asks = 0 if not guaranteed and is_affine(name) else amount
        mask = 0
        is_listed = False
        for cell, amounts in free.items():
            available = amounts.get(name)
            if available is not None:
                is_listed = True
                if available >= asks:
                    mask |= 1 << cell
        if is_listed or not is_host_level(name):
            candidates[name] = mask
            common &= mask
    if not common:
        return _short(candidates, free)
    return Fit((common & -common).bit_length() - 1 if candidates else None)


def align(pod: PodFacts, free: Free, allocatable: Amounts | None) -> Alignment:
    """Container by container: init containers and sidecars on untouched cells, app containers on what is left."""
    left = dict(free)
    cells: dict[str, tuple[int, ...]] = {}
    for container in pod.containers:
        is_app = container.kind == "app"
        found = fit(container.requests, left if is_app else free, allocatable, guaranteed=pod.is_guaranteed)
        if found.kind:
            return Alignment(
                kind=found.kind,
                message=CANNOT_ALIGN[container.kind],
                container=container.name,
                resources=found.resources,
            )
        if found.cell is not None:
            cells[container.name] = (found.cell,)
            if is_app:
                left[found.cell] = _without(left[found.cell], container.requests, guaranteed=pod.is_guaranteed)
    return Alignment(cells=cells)


def align_whole(pod: PodFacts, requests: Amounts, free: Free, allocatable: Amounts | None) -> Alignment:
    """The pod as one. ``requests``: its effective ones (NS-023)."""
    found = fit(requests, free, allocatable, guaranteed=pod.is_guaranteed)
    if found.kind:
        return Alignment(kind=found.kind, message=CANNOT_ALIGN[POD], container=POD, resources=found.resources)
    return Alignment(cells={POD: (found.cell,)} if found.cell is not None else {})


def _without(cell: Amounts, requests: Amounts, *, guaranteed: bool) -> Amounts:
    return {
        name: available - (requests.get(name, 0) if guaranteed or not is_affine(name) else 0)
        for name, available in cell.items()
    }


def _first_missing(requests: Amounts, allocatable: Amounts) -> str:
    return min(name for name, amount in requests.items() if amount > 0 and name not in allocatable)


def _short(candidates: Mapping[str, int], free: Free) -> Fit:
    """Those that no cell has enough of, or else those that rule a cell out."""
    if alone := sorted(name for name, mask in candidates.items() if not mask):
        return Fit(kind="short", resources=tuple(alone))
    cells = sum(1 << cell for cell in free)
    return Fit(kind="no-common-cell", resources=tuple(sorted(n for n, mask in candidates.items() if mask != cells)))
