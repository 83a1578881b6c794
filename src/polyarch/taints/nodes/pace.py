"""How fast nodes are written (TN-026): ``nodes.perMinute`` is a ceiling for every write, whatever it is for.

Writes of a rollout stand at equal distances, so that trouble shows after few nodes. What a single event asks for (a new
node, a taint that somebody changed) goes at once, as long as the minute before had fewer writes than allowed. A process
does not know what the one before it wrote: in its first minute there is no going at once, and the first write comes
after one whole distance.
"""

from collections import deque
from typing import Final

from polyarch.clock import Clock

MINUTE: Final = 60.0


class Pace:
    """Turns to write; ``per_minute`` may be changed at any time."""

    def __init__(self, clock: Clock, per_minute: int = 60) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._taken: deque[float] = deque()
        self._begun_at = self._turn = clock.monotonic()

    def begin(self) -> None:
        """What was written before now is not known."""
        self._begun_at = self._turn = self._clock.monotonic()

    def rest(self, *, at_once: bool = False) -> float:
        """Seconds until the next turn; 0 if it is now. ``at_once``: for what a single event asks for."""
        now = self._clock.monotonic()
        while self._taken and self._taken[0] <= now - MINUTE:
            self._taken.popleft()
        full = len(self._taken) - self.per_minute
        room_at = self._taken[full] + MINUTE if full >= 0 else now
        if at_once and now - self._begun_at >= MINUTE:
            return max(0.0, room_at - now)
        return max(0.0, room_at - now, self._turn + self._distance - now)

    def take(self) -> None:
        """Takes a turn. A turn that came a little late does not make all later ones late."""
        now = self._clock.monotonic()
        self._taken.append(now)
        self._turn = min(now, max(self._turn + self._distance, now - self._distance))

    @property
    def _distance(self) -> float:
        return MINUTE / self.per_minute
