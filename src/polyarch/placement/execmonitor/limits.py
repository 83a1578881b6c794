"""How much one node reports: each container once in a while, and all of them a few per second (PL-606). Pure.

A container in a crash loop gets a new id with each restart, so ``PERIOD`` concerns a program that fails over and over
within one container, such as a shell script's.
"""

from typing import Final

PERIOD: Final = 600.0
"""Seconds in which a container is reported once."""
RATE: Final = 5.0
"""Reports per second."""
BURST: Final = 10
REMEMBERED: Final = 4096
"""Containers; beyond them the oldest is forgotten."""


class Limits:
    """``now`` is seconds on any clock that does not go back."""

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._tokens = float(BURST)
        self._filled = 0.0

    def is_duplicate(self, container: str, now: float) -> bool:
        """Whether the container was reported in the last ten minutes."""
        reported = self._reported.get(container)
        return reported is not None and now - reported < PERIOD

    def admit(self, container: str, now: float) -> bool:
        """Whether the container may be reported now; remembers that it is."""
        self._tokens = min(float(BURST), self._tokens + max(0.0, now - self._filled) * RATE)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        self._reported.pop(container, None)
        self._reported[container] = now
        if len(self._reported) > REMEMBERED:
            del self._reported[next(iter(self._reported))]
        return True
