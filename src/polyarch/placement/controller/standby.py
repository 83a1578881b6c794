"""When a standby replica writes pods (PL-530).

A standby writes only while it sees no other replica release pods. So no pod waits for a Lease to expire, and a busy
leader has no second writer whose PATCHes would conflict. Times are ``Clock.monotonic()``.
"""

from collections.abc import Callable
from typing import Final

from polyarch.placement.controller.gated import GatedPod

WAIT: Final = 1.0
SPREAD: Final = 1.0
"""A standby reconciles a pod once it has been gated for 1 to 2 s."""
GRACE: Final = 0.5
"""How long a standby that waited for an image gives the leader, which has the same answer, to write the pod."""
QUIET: Final = 1.0
"""A standby writes once it has seen no other replica release a pod for this long."""
PATIENCE: Final = 5.0
"""A standby writes a pod that has been gated for longer in any case."""


class Standby:
    """When the other replicas last released a pod, and how long this one leaves pods to them."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self._others_released_at = float("-inf")

    def delay(self) -> float:
        """Seconds for which a new pod is left to the leader."""
        return WAIT + SPREAD * self._uniform()

    def pod_went(self, memory: GatedPod, now: float) -> None:
        """A pod was released or deleted; if not by us, another replica is active."""
        if not memory.patches.wrote_last:
            self._others_released_at = now

    def leave_to_others(self, memory: GatedPod, now: float) -> float:
        """Seconds for which a pod that can be placed is left to others; zero or less: write it now."""
        if memory.share.waited:
            memory.share.waited = False
            return GRACE * (1.0 + self._uniform())
        return min(self._others_released_at + QUIET, memory.seen_at + PATIENCE) - now
