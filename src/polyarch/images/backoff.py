"""How long to wait between attempts to look an image up.

The caller passes random numbers from [0, 1) as ``uniform``, so every delay can be tested. Pure: no clock of its own.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

MAX_DELAY: Final = 15.0
AT_ONCE_AFTER: Final = 5.0
"""A new pod causes an immediate attempt if the last one began longer ago."""
SPREAD: Final = 1.0
"""Lookups that are brought forward together are spread over this time."""
HELD_DELAY: Final = 300.0
HELD_SPREAD: Final = 0.2


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How a feature retries images: from one second on, doubled up to ``most``, or at a fixed interval."""

    most: float = MAX_DELAY
    every: Mapping[str, float] = {}
    """Failure class, or ``unknown``, → seconds between attempts, for failures that waiting rarely cures."""

    def delay(self, failures: int, failure: str, *, uniform: float, retry_after: float | None = None) -> float:
        """Seconds until the next attempt for an image after ``failures`` in a row; ``failure`` is the last one's class.

        Up to a quarter of them is added or taken away by chance, and a registry's ``retry_after`` is the least.
        """
        middle = self.every.get(failure) or min(2.0 ** min(failures - 1, 10), self.most)
        return max(middle * (0.75 + 0.5 * uniform), retry_after or 0.0)


ALL_ALIKE: Final = Backoff()
"""Every failure is retried alike."""


def delay(failures: int, *, uniform: float, retry_after: float | None = None) -> float:
    """Seconds until the next attempt for whatever failed ``failures`` times in a row."""
    return ALL_ALIKE.delay(failures, "", uniform=uniform, retry_after=retry_after)


def held_delay(*, uniform: float) -> float:
    """Seconds between attempts for an image that only held pods wait for: 5 min ± 20 %."""
    return HELD_DELAY * (1 - HELD_SPREAD + 2 * HELD_SPREAD * uniform)
