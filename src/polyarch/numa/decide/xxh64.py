"""XXH64, the hash of fingerprints and placement vectors (NE-080, NE-084, NE-090).

Every platform has the one written here, which needs nothing compiled. Where the package ``xxhash`` is installed
(extra ``fast``), it is used instead; a property test holds the two together. The algorithm and its names are those of
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Pure.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

Digest = Callable[[bytes, int], int]
"""Content and seed to an unsigned number of 64 bits."""

_MASK: Final = (1 << 64) - 1
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5

_STRIPES: Final = Struct("<4Q")
_LANES: Final = Struct("<Q")
_STRIPE_BYTES: Final = _STRIPES.size
_LANE_BYTES: Final = _LANES.size
_HALF_LANE_BYTES: Final = 4


def in_python(content: bytes, seed: int = 0) -> int:
    """The hash without any compiled part."""
    size = len(content)
    whole = size - size % _STRIPE_BYTES
    # A view: slices of it copy nothing.
    view = memoryview(content)
    state = _stripes(view[:whole], seed) if whole else (seed + _PRIME_5) & _MASK
    return _avalanche(_rest(view[whole:], (state + size) & _MASK))


def _stripes(content: memoryview, seed: int) -> int:
    """The state after all whole stripes of 32 bytes. The rounds are written out, since calls would double the time."""
    first = (seed + _PRIME_1 + _PRIME_2) & _MASK
    second = (seed + _PRIME_2) & _MASK
    third = seed & _MASK
    fourth = (seed - _PRIME_1) & _MASK
    for lane_1, lane_2, lane_3, lane_4 in _STRIPES.iter_unpack(content):
        first = (first + lane_1 * _PRIME_2) & _MASK
        first = ((first << 31 | first >> 33) * _PRIME_1) & _MASK
        second = (second + lane_2 * _PRIME_2) & _MASK
        second = ((second << 31 | second >> 33) * _PRIME_1) & _MASK
        third = (third + lane_3 * _PRIME_2) & _MASK
        third = ((third << 31 | third >> 33) * _PRIME_1) & _MASK
        fourth = (fourth + lane_4 * _PRIME_2) & _MASK
        fourth = ((fourth << 31 | fourth >> 33) * _PRIME_1) & _MASK
    state = _turned(first, 1) + _turned(second, 7) + _turned(third, 12) + _turned(fourth, 18)
    for lane in (first, second, third, fourth):
        state = ((state ^ _round(lane)) * _PRIME_1 + _PRIME_4) & _MASK
    return state


def _rest(content: memoryview, state: int) -> int:
    """The fewer than 32 bytes after the stripes: lanes of 8 bytes, one of 4, single bytes."""
    lanes = len(content) - len(content) % _LANE_BYTES
    for (lane,) in _LANES.iter_unpack(content[:lanes]):
        state = (_turned(state ^ _round(lane), 27) * _PRIME_1 + _PRIME_4) & _MASK
    content = content[lanes:]
    if len(content) >= _HALF_LANE_BYTES:
        half = int.from_bytes(content[:_HALF_LANE_BYTES], "little")
        state = (_turned(state ^ (half * _PRIME_1 & _MASK), 23) * _PRIME_2 + _PRIME_3) & _MASK
        content = content[_HALF_LANE_BYTES:]
    for byte in content:
        state = _turned(state ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1 & _MASK
    return state


def _avalanche(state: int) -> int:
    """Every bit of the input reaches every bit of the result."""
    state = (state ^ state >> 33) * _PRIME_2 & _MASK
    state = (state ^ state >> 29) * _PRIME_3 & _MASK
    return state ^ state >> 32


def _round(lane: int) -> int:
    return _turned(lane * _PRIME_2 & _MASK, 31) * _PRIME_1 & _MASK


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _fastest() -> Digest:
    try:
        from xxhash import xxh64_intdigest
    except ImportError:
        return in_python
    return xxh64_intdigest


xxh64: Final[Digest] = _fastest()
"""The hash, by whatever is fastest here; called with ``(content, seed)``."""
