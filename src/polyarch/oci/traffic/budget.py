"""Time budget of the requests for one image (RG-051).

The budget runs while a request is in progress or a retry delay passes. It stops while a request waits in line or for a
rate limit's pause: otherwise a thousand images of one registry would time out in the queue, and pauses have their own
limit (RG-062). Concurrent requests of one image use the same time once.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from polyarch.clock import Clock


class Budget:
    """``seconds`` of work and ``max_wait`` seconds of pauses; ``purpose`` appears in messages."""

    __slots__ = ("_clock", "_pauses", "_running", "_since", "_used", "_whole", "max_wait", "purpose", "seconds")

    def __init__(
        self,
        clock: Clock,
        *,
        seconds: float,
        max_wait: float,
        purpose: str = "one image",
        whole: "Budget | None" = None,
    ) -> None:
        """``whole``: the parent budget; what is used here is also used there."""
        self.seconds = seconds
        self.max_wait = max_wait
        self.purpose = purpose
        self._clock = clock
        self._whole = whole
        self._used = 0.0
        self._running = 0
        self._since = 0.0
        self._pauses = 0.0

    def half(self) -> "Budget":
        """Half of the remaining work, for one source of several (RG-064)."""
        purpose = "one source of the image"
        return Budget(self._clock, seconds=self.remaining / 2, max_wait=self.max_wait, purpose=purpose, whole=self)

    @property
    def remaining(self) -> float:
        """Seconds of work left; never negative."""
        used = self._used
        if self._running:
            used += self._clock.monotonic() - self._since
        return max(0.0, self.seconds - used)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time inside the block, once for concurrent users."""
        if not self._running:
            self._since = self._clock.monotonic()
        self._running += 1
        try:
            with self._whole.running() if self._whole is not None else nullcontext():
                yield
        finally:
            self._running -= 1
            if not self._running:
                self._used += self._clock.monotonic() - self._since

    def may_wait(self, seconds: float) -> bool:
        """Whether a pause of this length still fits; a longer one is not started (RG-062)."""
        return self._pauses + seconds <= self.max_wait and (self._whole is None or self._whole.may_wait(seconds))

    async def wait(self, seconds: float) -> None:
        """Wait for a pause. Concurrent requests of one image are charged each, so a pause is never too long."""
        self._pauses += seconds
        await (self._whole.wait(seconds) if self._whole is not None else self._clock.sleep(seconds))
