"""How long to wait between attempts to look an image up (PL-331, PL-334).

The caller passes random numbers from [0, 1) as ``uniform``, so every delay can be tested. Pure: no clock of its own.
"""

from typing import Final

MAX_DELAY: Final = 15.0
AT_ONCE_AFTER: Final = 5.0
"""A new pod causes an immediate attempt if the last one began longer ago (PL-331)."""
SPREAD: Final = 1.0
"""Look-ups that are brought forward together are spread over this time (PL-331)."""
HELD_DELAY: Final = 300.0
HELD_SPREAD: Final = 0.2


def delay(failures: int, *, uniform: float, retry_after: float | None = None) -> float:
    """Seconds until the next attempt for an image after ``failures`` in a row (PL-331)."""
    backoff = min(2.0 ** min(failures - 1, 10), MAX_DELAY) * (0.75 + 0.5 * uniform)
    return max(backoff, retry_after or 0.0)


def held_delay(*, uniform: float) -> float:
    """Seconds between attempts for an image that only held pods wait for: 5 min ± 20 % (PL-334)."""
    return HELD_DELAY * (1 - HELD_SPREAD + 2 * HELD_SPREAD * uniform)
