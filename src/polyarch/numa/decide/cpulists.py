"""Lists of CPUs or cells as the kernel and the kubelet write them: ``0-3,8``. Pure.

The format is that of cpuset(7); nothing at all is the empty list.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

HIGHEST: Final = 1 << 20
"""No machine has more; a damaged list must not take all memory."""
_RANGE: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


def parse(text: str) -> frozenset[int]:
    """The numbers of a list; raises ValueError for anything else."""
    text = text.strip()
    if not text:
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{_shown(text)} is not a list such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last > HIGHEST:
            raise ValueError(f"{_shown(text)} has the range {part}, which is none")
        found.update(range(first, last + 1))
    return frozenset(found)


def text(numbers: Iterable[int]) -> str:
    """The shortest list of these numbers, ascending."""
    ordered = sorted(set(numbers))
    if not ordered:
        return ""
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
