"""Placement vectors say in few characters which container sits on which NUMA zone, for schedulers that simulate
evictions.

Containers are numbered by the order of their hashes, so whoever knows the pods of a node knows the numbers. Each zone
gets the list of its containers, except the zone with most of them, which gets those that are in no list. The format can
say only one zone per container, of zones 0 to n-1. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Final

import msgspec
from xxhash import xxh64_intdigest

VERSION: Final = "npv0v001"
ENCODING: Final = "leb89"
_SEPARATOR: Final = "::"
_MAX_DIGITS: Final = 9
_NUMBERS: Final = ("cc", "nn", "bn")
"""Containers, zones, and the zone whose vector is left out."""

ContainerKey = tuple[str, str, str]
"""Namespace, pod, container."""


class PlacementVectors(msgspec.Struct, frozen=True):
    """The attributes of a topology and of its zones."""

    metadata: str
    by_zone: Mapping[int, str] = msgspec.field(name="by_cell")
    """Zones without a vector are left out. The other name is that of the extender's state document."""


class VectorsNotExpressible(msgspec.Struct, frozen=True):
    """The format cannot say where the containers of this node are."""

    reason: str
    message: str


class MalformedVectors(ValueError):  # noqa: N818 - what is the case
    """The attributes do not say where these containers are."""


def encode_vectors(
    placements: Mapping[ContainerKey, frozenset[int]], zones: Collection[int]
) -> PlacementVectors | VectorsNotExpressible:
    """The vectors of a machine with these zones."""
    if sorted(zones) != list(range(len(zones))):
        return VectorsNotExpressible(
            "CellIdsHaveHoles", "placement vectors are left out: the ids of the cells have holes"
        )
    spanning = sum(len(placed) > 1 for placed in placements.values())
    if spanning:
        return VectorsNotExpressible(
            "ContainerSpansCells", f"placement vectors are left out: containers that span cells: {spanning}"
        )
    # Two containers of one hash would share a number; the later name wins, as for readers of the format.
    zone_of = {container_id(key): zone for key, (zone,) in sorted(placements.items())}
    members: dict[int, list[int]] = {zone: [] for zone in sorted(zones)}
    for index, identity in enumerate(sorted(zone_of)):
        members[zone_of[identity]].append(index)
    busiest = max(members, key=lambda zone: len(members[zone]))  # the first of equal ones, that is, the lowest id
    numbers = zip(_NUMBERS, (len(zone_of), len(zones), busiest), strict=True)
    metadata = _SEPARATOR.join([VERSION, f"ve={ENCODING}", *(f"{name}={number}" for name, number in numbers)])
    texts = {zone: _vector(indices) for zone, indices in members.items() if indices and zone != busiest}
    return PlacementVectors(metadata, texts)


def decode_vectors(vectors: PlacementVectors, containers: Iterable[ContainerKey]) -> dict[ContainerKey, int]:
    """The zone of each container; ``containers`` are all with exclusive resources that the node has.

    Raises :class:`MalformedVectors`, also where the attributes are about other containers than these.
    """
    count, zones, busiest = _numbers(vectors.metadata)
    keys = sorted(set(containers), key=container_id)
    if len(keys) != count:
        raise MalformedVectors(f"the vectors are about {count} containers, not {len(keys)}; read the object again")
    zone_of: dict[int, int] = {}
    for zone, text in vectors.by_zone.items():
        if not 0 <= zone < zones or zone == busiest:
            raise MalformedVectors(f"cell {zone} has a vector, but the metadata does not provide for it")
        for index in _indices(text):
            if index >= count or index in zone_of:
                raise MalformedVectors(f"the vector of cell {zone} has container {index}, which it cannot have")
            zone_of[index] = zone
    return {key: zone_of.get(index, busiest) for index, key in enumerate(keys)}


def container_id(key: ContainerKey) -> int:
    """The hash by which containers are ordered."""
    return xxh64_intdigest("\0".join(key).encode("utf-8", "surrogatepass"))


def _vector(indices: list[int]) -> str:
    return encode_base89([indices[0], *(later - earlier for earlier, later in pairwise(indices))])


def _indices(text: str) -> list[int]:
    try:
        return list(accumulate(decode_base89(text)))
    except MalformedNumbers as error:
        raise MalformedVectors(str(error)) from None


def _numbers(metadata: str) -> tuple[int, int, int]:
    version, *fields = metadata.split(_SEPARATOR)
    values = dict(field.partition("=")[::2] for field in fields)
    if version != VERSION or values.pop("ve", "") != ENCODING or set(values) != set(_NUMBERS):
        raise MalformedVectors(f"{metadata[:80]!r} is not metadata of version {VERSION} with vectors in {ENCODING}")
    if not all(value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS for value in values.values()):
        raise MalformedVectors(f"{metadata[:80]!r} has counts that are not whole numbers")
    count, zones, busiest = (int(values[name]) for name in _NUMBERS)
    if busiest >= zones:
        raise MalformedVectors(f"{metadata[:80]!r} leaves out a cell that it does not have")
    return count, zones, busiest


# -- numbers in base 89 ------------------------------------------------------------------------------------------------

# A text that JSON, XML and shells leave alone. The first 64 characters of the alphabet end a number, the last 25
# continue it, so small numbers take one character.

ALPHABET: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')
ENDING: Final = 64
CONTINUING: Final = len(ALPHABET) - ENDING

_DIGITS: Final = {character: digit for digit, character in enumerate(ALPHABET)}


class MalformedNumbers(ValueError):  # noqa: N818 - what is the case
    """The text is not a sequence of numbers in base 89."""


def encode_base89(numbers: Iterable[int]) -> str:
    """Raises ValueError for a negative number."""
    return "".join(_base89(number) for number in numbers)


def decode_base89(text: str) -> list[int]:
    """The numbers. Raises :class:`MalformedNumbers`."""
    numbers = []
    high: int | None = None
    for character in text:
        digit = _DIGITS.get(character)
        if digit is None:
            raise MalformedNumbers(f"{character!r} is not a digit in base 89")
        if digit >= ENDING:
            high = (high or 0) * CONTINUING + digit - ENDING
            continue
        numbers.append(digit if high is None else ENDING + high * ENDING + digit)
        high = None
    if high is not None:
        raise MalformedNumbers("the last number does not end")
    return numbers


def _base89(number: int) -> str:
    if number < 0:
        raise ValueError(f"{number} is negative; base 89 has no sign")
    if number < ENDING:
        return ALPHABET[number]
    high, low = divmod(number - ENDING, ENDING)
    text = ALPHABET[low]
    while True:
        high, digit = divmod(high, CONTINUING)
        text = ALPHABET[ENDING + digit] + text
        if not high:
            return text
