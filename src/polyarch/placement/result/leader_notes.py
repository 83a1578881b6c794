"""What the controllers' leader tells the operator, as annotations of its Lease (PL-041, PL-301).

They travel with the Lease's renewals, which are written anyway, so telling costs no request. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.placement.names import OWN_GROUP

HELD: Final = f"{OWN_GROUP}/held-pods"
UNPLACED: Final = f"{OWN_GROUP}/unplaced-pods"
LEFT_OUT: Final = f"{OWN_GROUP}/left-out"


class LeaderNotes(NamedTuple):
    """Counts of pods, and facts that decisions are made without: a sentence by resource."""

    held: int = 0
    unplaced: int = 0
    left_out: Mapping[str, str] = {}

    def annotations(self) -> dict[str, str]:
        """Empty values take an annotation away."""
        left_out = msgspec.json.encode(self.left_out, order="sorted").decode() if self.left_out else ""
        return {HELD: str(self.held), UNPLACED: str(self.unplaced), LEFT_OUT: left_out}

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None) -> "LeaderNotes":
        """What is unreadable or absent counts as nothing told."""
        found = annotations or {}
        try:
            left_out = msgspec.json.decode(found.get(LEFT_OUT) or "{}", type=dict[str, str])
        except msgspec.MsgspecError:
            left_out = {}
        return cls(_count(found.get(HELD, "")), _count(found.get(UNPLACED, "")), left_out)


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
