"""Which container sits on which cell, in few characters (NE-090 – NE-093): for schedulers that simulate evictions.

Containers are numbered by the order of their hashes, so whoever knows the pods of a node knows the numbers. Each cell
gets the list of its containers, except the one with most of them, which gets those that are in no list. The format can
only say one cell per container, of cells 0 to n-1. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from polyarch.numa.decide import leb89
from polyarch.numa.decide.facts import ListedPod
from polyarch.numa.decide.usage import Layout
from polyarch.numa.decide.xxh64 import xxh64

VERSION: Final = "npv0v001"
ENCODING: Final = "leb89"
_SEPARATOR: Final = "::"
_MOST_DIGITS: Final = 9
_NUMBERS: Final = ("cc", "nn", "bn")
"""Containers, cells, and the cell whose vector is left out."""

ContainerKey = tuple[str, str, str]
"""Namespace, pod, container."""


class Vectors(msgspec.Struct, frozen=True):
    """The attributes of an object and of its zones."""

    metadata: str
    by_cell: Mapping[int, str]
    """Cells without a vector are left out."""


class NotExpressible(msgspec.Struct, frozen=True):
    """The format cannot say where the containers of this node are."""

    reason: str
    message: str


class MalformedVectors(ValueError):  # noqa: N818 - what is the case
    """The attributes do not say where these containers are."""


def placements(pods: Iterable[ListedPod], layout: Layout) -> dict[ContainerKey, frozenset[int]]:
    """The cells of every container that holds something of a cell."""
    found: dict[ContainerKey, frozenset[int]] = {}
    for pod in pods:
        for each in pod.containers:
            if cells := layout.container_cells(each):
                key = pod.namespace, pod.name, each.name
                found[key] = found.get(key, frozenset()) | cells
    return found


def encode(placed: Mapping[ContainerKey, frozenset[int]], cells: Collection[int]) -> Vectors | NotExpressible:
    """The vectors of a machine with these cells."""
    if sorted(cells) != list(range(len(cells))):
        return NotExpressible("CellIdsHaveHoles", "placement vectors are left out: the ids of the cells have holes")
    spanning = sum(len(each) > 1 for each in placed.values())
    if spanning:
        return NotExpressible(
            "ContainerSpansCells", f"placement vectors are left out: containers that span cells: {spanning}"
        )
    # Two containers of one hash would share a number; the later name wins, as for readers of the format.
    cell_of = {container_id(key): cell for key, (cell,) in sorted(placed.items())}
    members: dict[int, list[int]] = {cell: [] for cell in sorted(cells)}
    for index, identity in enumerate(sorted(cell_of)):
        members[cell_of[identity]].append(index)
    busiest = max(members, key=lambda cell: len(members[cell]))  # the first of equal ones, that is, the lowest id
    numbers = zip(_NUMBERS, (len(cell_of), len(cells), busiest), strict=True)
    metadata = _SEPARATOR.join([VERSION, f"ve={ENCODING}", *(f"{name}={number}" for name, number in numbers)])
    texts = {cell: _vector(indices) for cell, indices in members.items() if indices and cell != busiest}
    return Vectors(metadata, texts)


def decode(vectors: Vectors, containers: Iterable[ContainerKey]) -> dict[ContainerKey, int]:
    """The cell of each container; ``containers`` are all with exclusive resources that the node has.

    Raises :class:`MalformedVectors`, also where the attributes speak of other containers than these.
    """
    count, cells, busiest = _numbers(vectors.metadata)
    keys = sorted(set(containers), key=container_id)
    if len(keys) != count:
        raise MalformedVectors(f"the vectors are about {count} containers, not {len(keys)}; read the object again")
    cell_of: dict[int, int] = {}
    for cell, text in vectors.by_cell.items():
        if not 0 <= cell < cells or cell == busiest:
            raise MalformedVectors(f"cell {cell} has a vector, but the metadata does not provide for it")
        for index in _indices(text):
            if index >= count or index in cell_of:
                raise MalformedVectors(f"the vector of cell {cell} has container {index}, which it cannot have")
            cell_of[index] = cell
    return {key: cell_of.get(index, busiest) for index, key in enumerate(keys)}


def container_id(key: ContainerKey) -> int:
    """NE-090."""
    return xxh64("\0".join(key).encode("utf-8", "surrogatepass"), 0)


def _vector(indices: list[int]) -> str:
    return leb89.encode([indices[0], *(later - earlier for earlier, later in pairwise(indices))])


def _indices(text: str) -> list[int]:
    try:
        return list(accumulate(leb89.decode(text)))
    except leb89.MalformedNumbers as error:
        raise MalformedVectors(str(error)) from None


def _numbers(metadata: str) -> tuple[int, int, int]:
    version, *fields = metadata.split(_SEPARATOR)
    values = dict(field.partition("=")[::2] for field in fields)
    if version != VERSION or values.pop("ve", "") != ENCODING or set(values) != set(_NUMBERS):
        raise MalformedVectors(f"{metadata[:80]!r} is not metadata of version {VERSION} with vectors in {ENCODING}")
    if not all(value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS for value in values.values()):
        raise MalformedVectors(f"{metadata[:80]!r} has counts that are not whole numbers")
    count, cells, busiest = (int(values[name]) for name in _NUMBERS)
    if busiest >= cells:
        raise MalformedVectors(f"{metadata[:80]!r} leaves out a cell that it does not have")
    return count, cells, busiest
