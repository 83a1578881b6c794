"""Asks the probes of one running container and says whether it has started, is ready and is alive (SB-011)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp

from polyarch.clock import Clock
from polyarch.sandbox.pods.probes import probing
from polyarch.sandbox.pods.probes.probing import EAGER_SECONDS, Tally, Target
from polyarch.sandbox.pods.spec import Container, Probe

POD_GRACE: Final = -1
"""The container is ended with the grace period of its pod."""


class Supervision:
    """One start of a container. ``changed`` is called when ``started`` or ``ready`` has changed."""

    def __init__(
        self,
        container: Container,
        target: Target,
        session: aiohttp.ClientSession,
        *,
        clock: Clock,
        changed: Callable[[], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self._container = container
        self._target = target
        self._session = session
        self._clock = clock
        self._changed = changed
        self._tell = tell
        self.started = container.startup_probe is None
        self.ready = self.started and container.readiness_probe is None
        self._never_ready = True

    async def run(self) -> int | None:
        """Ask until the container has to be ended: the seconds of grace, or POD_GRACE; None: there are no probes."""
        if (probe := self._container.startup_probe) is not None:
            if not await self._until_started(probe):
                return _grace(probe)
            self.started = True
            self.ready = self._container.readiness_probe is None
            self._changed()
        liveness, readiness = self._container.liveness_probe, self._container.readiness_probe
        readily = asyncio.ensure_future(self._watch_readiness(readiness)) if readiness is not None else None
        try:
            if liveness is not None:
                await self._while_alive(liveness)
                return _grace(liveness)
            if readily is not None:
                await readily
            return None
        finally:
            if readily is not None:
                readily.cancel()
                await asyncio.gather(readily, return_exceptions=True)

    async def _until_started(self, probe: Probe) -> bool:
        tally = Tally(False)
        async for problem in self._answers(probe, "Startup", eagerly=lambda: True):
            tally = tally.count(not problem, probe)
            if tally.result:
                return True
            if tally.last is False and tally.row >= probe.failure_threshold:
                return False
        return False

    async def _while_alive(self, probe: Probe) -> None:
        tally = Tally(True)
        async for problem in self._answers(probe, "Liveness", eagerly=lambda: False):
            tally = tally.count(not problem, probe)
            if not tally.result:
                return

    async def _watch_readiness(self, probe: Probe) -> None:
        tally = Tally(False)
        async for problem in self._answers(probe, "Readiness", eagerly=lambda: self._never_ready):
            tally = tally.count(not problem, probe)
            if tally.result != self.ready:
                self.ready = tally.result
                self._never_ready = False
                self._changed()

    async def _answers(self, probe: Probe, name: str, *, eagerly: Callable[[], bool]) -> AsyncIterator[str]:
        """One answer per period, and while ``eagerly`` the successes between; empty: well, else the problem."""
        await self._clock.sleep(probe.initial_delay_seconds)
        due = self._clock.monotonic()
        while True:
            asked = self._clock.monotonic()
            problem = await probing.ask(probe, self._target, self._session)
            if not problem or asked >= due:
                due = asked + probe.period_seconds  # a kubelet's ticker does not wait for the answer
                if problem:
                    self._tell("Unhealthy", f"{name} probe failed: {problem}")
                yield problem
            wait = max(0.0, due - self._clock.monotonic())
            await self._clock.sleep(min(wait, EAGER_SECONDS) if eagerly() else wait)


def _grace(probe: Probe) -> int:
    seconds = probe.termination_grace_period_seconds
    return POD_GRACE if seconds is None else seconds
