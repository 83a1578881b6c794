"""Which events and log lines a gated pod already got, so that they are not repeated (PL-305, PL-332, PL-334, PL-710).

Times are ``Clock.monotonic()``. A process that starts may tell once more what another told before it.
"""

from enum import Enum
from typing import Final

HOUR: Final = 3600.0


class Tale(Enum):
    """What is told again and again while it lasts; the value is the number of seconds between two times."""

    REFUSAL = (300.0, "the API server refuses the write")
    SILENCE = (300.0, "the API server does not answer")
    HELD = (HOUR, "the pod is held")

    @property
    def every(self) -> float:
        return self.value[0]


class Told:
    """What this process told of one pod."""

    __slots__ = ("_at", "failing", "gate")

    def __init__(self) -> None:
        self.failing = False
        """It says on the pod that it waits because an image fails (PL-332)."""
        self.gate = 0
        """How often it was decided whether to tell of the gate: at first sight, and after 2 s (PL-710)."""
        self._at: dict[Tale, float] | None = None  # few pods have anything here

    def at(self, tale: Tale) -> float | None:
        """When it was told last."""
        return self._at.get(tale) if self._at is not None else None

    def tells(self, tale: Tale, now: float) -> None:
        """It is told now."""
        self._at = {**(self._at or {}), tale: now}

    def is_news(self, tale: Tale, now: float) -> bool:
        """Whether it is due: the first time, and then at its pace. If so, it counts as told."""
        before = self.at(tale)
        if before is not None and now - before < tale.every:
            return False
        self.tells(tale, now)
        return True

    def next(self, tale: Tale, now: float) -> float | None:
        """Seconds until it is due again; None if it was never told."""
        before = self.at(tale)
        return before + tale.every - now if before is not None else None
