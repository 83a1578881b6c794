"""The triggers of one exporter: waits for the next scan (NE-117 – NE-119).

``next`` looks at the files itself, so nothing runs beside the loop that calls it; during a scan nobody looks, and what
changed meanwhile is found afterwards.
"""

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Iterator
from typing import Final, Literal

from polyarch.clock import Clock, deadline
from polyarch.numa.exporter.settings import TriggerSettings
from polyarch.numa.exporter.triggers import notify_file
from polyarch.numa.exporter.triggers.pacing import Pacing, Wake
from polyarch.numa.exporter.triggers.watched_files import FileChanges, Watched

LOOK: Final = 1.0
"""Seconds between two looks at socket and notify file where the kubelet's state is not looked at."""


def spread() -> float:
    """The factor of an interval (NE-117)."""
    return random.SystemRandom().uniform(0.9, 1.1)


class Triggers:
    """Waits for scans; the first is at once."""

    def __init__(
        self, settings: TriggerSettings, files: Watched, *, clock: Clock, stretch: Callable[[], float] = spread
    ) -> None:
        """Makes the notify file. Raises NotifyFileError, a ValueError, if it cannot be used."""
        if files.notify is not None:
            notify_file.prepare(files.notify)
        self._clock = clock
        self._look_at_state = settings.state_poll > 0
        self._interval = settings.state_poll or LOOK
        self._changes = FileChanges(files)
        now = clock.monotonic()
        self._next_look = now + self._interval
        self._told = asyncio.Event()
        self._pacing = Pacing(
            now,
            interval=settings.sleep_interval,
            allocatable=settings.allocatable_interval,
            rate=settings.max_events_per_second,
            stretch=stretch,
        )

    async def next(self) -> Wake:
        """The next scan that is to be made; whoever cancels this loses nothing."""
        while True:
            now = self._clock.monotonic()
            if now >= min(self._next_look, self._pacing.quiet, self._pacing.due):
                self._look(now)
            if wake := self._pacing.take(now):
                return wake
            due = min(self._next_look, self._pacing.quiet, self._pacing.due)
            with contextlib.suppress(TimeoutError):
                async with deadline(self._clock, due - now):
                    await self._told.wait()
            self._told.clear()

    def poke(self, reason: Literal["node", "signal", "socket"]) -> None:
        """Something happened that no file tells: a scan is to be made."""
        self._pacing.note(reason, self._clock.monotonic())
        self._told.set()

    def put_back(self, wake: Wake, *, after: float) -> None:
        """The scan failed: it is wanted again in ``after`` seconds, or with any other before that."""
        self._pacing.put_back(wake, self._clock.monotonic() + after)

    @contextlib.contextmanager
    def on_signal(self, number: signal.Signals = signal.SIGUSR1) -> Iterator[None]:
        """The signal asks for a scan within this block."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(number, self.poke, "signal")
        try:
            yield
        finally:
            loop.remove_signal_handler(number)

    def _look(self, now: float) -> None:
        self._next_look = now + self._interval
        if self._changes.socket():
            self._pacing.note("socket", now)
        if self._changes.notify():
            self._pacing.note("notify", now)
        if self._look_at_state:
            for state in self._changes.state():
                self._pacing.note_state(state, now)
        self._pacing.looked(now)
