"""Which events and log lines were already posted for a gated pod, to limit repeats (PL-305, PL-332, PL-334, PL-710).

Times are ``Clock.monotonic()``. A process that starts may repeat what another one posted.
"""

from enum import Enum
from typing import Final

HOUR: Final = 3600.0


class Tale(Enum):
    """What is reported repeatedly while it lasts; the value starts with the interval in seconds."""

    REFUSAL = (300.0, "the API server refuses the write")
    SILENCE = (300.0, "the API server does not answer")
    HELD = (HOUR, "the pod is held")

    @property
    def every(self) -> float:
        return self.value[0]


class Told:
    """What this process has reported about one pod."""

    __slots__ = ("_at", "failing", "gate")

    def __init__(self) -> None:
        self.failing = False
        """The pod is labelled as failing (PL-332)."""
        self.gate = 0
        """How often the gate event was considered: when the pod was first seen, and after 2 s (PL-710)."""
        self._at: dict[Tale, float] | None = None  # few pods have anything here

    def at(self, tale: Tale) -> float | None:
        """When it was last reported."""
        return self._at.get(tale) if self._at is not None else None

    def tells(self, tale: Tale, now: float) -> None:
        """Records that it is reported now."""
        self._at = {**(self._at or {}), tale: now}

    def is_news(self, tale: Tale, now: float) -> bool:
        """Whether it is due: the first time, and then at its interval. If so, it counts as reported."""
        before = self.at(tale)
        if before is not None and now - before < tale.every:
            return False
        self.tells(tale, now)
        return True

    def next(self, tale: Tale, now: float) -> float | None:
        """Seconds until it is due again; None if it was never reported."""
        before = self.at(tale)
        return before + tale.every - now if before is not None else None
