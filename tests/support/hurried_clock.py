"""A clock on which waiting takes no time."""

import asyncio
from datetime import UTC, datetime, timedelta


class HurriedClock:
    """Time passes only by sleeping, and sleeping takes no time."""

    def __init__(self):
        self.time = 10_000.0
        self.slept = []

    def monotonic(self):
        return self.time

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time - 10_000.0)

    async def sleep(self, seconds):
        if seconds > 0:
            self.slept.append(seconds)
            self.time += seconds
        await asyncio.sleep(0)

    def advance(self, seconds):
        self.time += seconds
