"""When a controller that does not lead writes a pod all the same (PL-530).

A standby writes only while it sees no other replica release pods. So no pod waits for a Lease to expire, and a busy
leader gets no second writer whose PATCHes would conflict. Times are ``Clock.monotonic()``.
"""

from collections.abc import Callable
from typing import Final

from polyarch.placement.controller.gated import GatedPod

WAIT: Final = 1.0
SPREAD: Final = 1.0
"""A pod is looked at when it has been gated for 1 s and up to 1 s more."""
GRACE: Final = 0.5
"""How long a standby that waited for an image leaves the leader, who had the same answer, to write it."""
QUIET: Final = 1.0
"""A standby writes once it has seen nobody else release a pod for so long,"""
PATIENCE: Final = 5.0
"""and a pod that is gated for longer in any case."""


class Standby:
    """What this process sees of the others' work, and what it leaves to them."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self._others_released_at = float("-inf")

    def delay(self) -> float:
        """How long a pod that is new is left to the leader."""
        return WAIT + SPREAD * self._uniform()

    def pod_went(self, memory: GatedPod, now: float) -> None:
        """A pod carries our gate no more, or is no more; whoever did it, if it was not we, is at work."""
        if not memory.patches.wrote_last:
            self._others_released_at = now

    def leave_to_others(self, memory: GatedPod, now: float) -> float:
        """Seconds for which a pod that can be placed is left to others; none if not positive."""
        if memory.share.waited:
            memory.share.waited = False
            return GRACE * (1.0 + self._uniform())
        return min(self._others_released_at + QUIET, memory.seen_at + PATIENCE) - now
