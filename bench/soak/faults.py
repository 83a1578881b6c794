"""The faults of a soak test, one at a time. Each lasts some seconds and repairs what it broke.

A killed role is started again by its node, as in any cluster.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from fault_proxy import CUT, Answer, Cut, Lines, Seen, status

from bench.soak.roles import Roles
from bench.soak.stage import Stage
from bench.soak.trial import Trial

SECONDS: Final = 10.0
BLIND: Final = 2.0
"""Seconds before and after a fault in which a create request may have reached a webhook that was killed."""
KILLED: Final = (
    *("operator", "placement-webhook", "placement-controller", "builder", "taints"),
    *("numa-exporter", "numa-extender", "numa-scheduler", "monitor-handler", "monitor-node"),
)
OTHERS: Final = (
    *("registries down", "watches torn", "storm of 429", "API server restarted", "registries broken"),
    *("API server silent", "node joins", "node leaves"),
)
NAMES: Final = tuple(
    name
    for pair in itertools.zip_longest(OTHERS, (f"{role} killed" for role in KILLED))
    for name in pair
    if name is not None
)
"""In the order in which they are injected."""
SEES_PODS: Final = ("placement-webhook killed", "API server restarted")
"""After these, pods may be created that no webhook sees."""


class Faults:
    """Injects the faults."""

    def __init__(self, trial: Trial, stage: Stage, roles: Roles) -> None:
        self._trial, self._stage, self._roles = trial, stage, roles
        self.injected: list[tuple[float, str]] = []

    def of(self, name: str) -> Callable[[], Awaitable[None]]:
        if name.endswith(" killed"):
            return partial(self._kill, name.removesuffix(" killed"))
        found: Callable[[], Awaitable[None]] = getattr(self, f"_{name.lower().replace(' ', '_')}")
        return found

    async def disturb(self, names: Iterable[str], every: float) -> None:
        """One fault per interval, in turn, as long as the churn goes on."""
        for name in itertools.cycle([each for each in NAMES if each in names]):
            await asyncio.sleep(every - self._trial.now % every)
            if not self._trial.churning:
                return
            self.injected.append((self._trial.now, name))
            self._trial.say(f"{name}; {len(self._trial.problems)} problems")
            with self._trial.blinded(BLIND) if name in SEES_PODS else contextlib.nullcontext():
                await self.of(name)()
                if not await self._roles.ready(seconds=every):
                    self._trial.say(f"not all roles are ready {every:.0f} s after: {name}")

    async def _kill(self, role: str) -> None:
        self._roles.kill(role)

    async def _registries_down(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for host in self._stage.hosts.values():
                await stack.enter_async_context(host.refusing())
            await asyncio.sleep(SECONDS)

    async def _registries_broken(self) -> None:
        turn = itertools.count()
        broken = [(host, host.inject(lambda _: next(turn) % 2 == 0, action))
                  for host in self._stage.hosts.values() for action in (Answer(503), Cut(40))]  # fmt: skip
        await asyncio.sleep(SECONDS)
        for host, fault in broken:
            host.withdraw(fault)

    async def _watches_torn(self) -> None:
        turn = itertools.count()
        fault = self._stage.api.inject(lambda seen: seen.watch, Lines(lambda line: [line if next(turn) % 15 else CUT]))
        self._stage.api.tear()
        await asyncio.sleep(SECONDS)
        self._stage.api.withdraw(fault)

    async def _storm_of_429(self) -> None:
        def asks(seen: Seen) -> bool:
            return not seen.watch and "/leases/" not in seen.path and "/events" not in seen.path

        refused = self._stage.api.inject(asks, status(429, "TooManyRequests", retry_after=1))
        limited = [host.inject(lambda _: True, Answer(429, b"", [("Retry-After", "2")]))
                   for host in self._stage.hosts.values()]  # fmt: skip
        await asyncio.sleep(SECONDS)
        self._stage.api.withdraw(refused)
        for host, fault in zip(self._stage.hosts.values(), limited, strict=True):
            host.withdraw(fault)

    async def _api_server_restarted(self) -> None:
        await self._stage.restart_api_server()

    async def _api_server_silent(self) -> None:
        """For polyarch: its processes' requests are taken and not answered."""
        async with self._stage.api.silent():
            await asyncio.sleep(SECONDS)

    async def _node_joins(self) -> None:
        await self._stage.resize(1)

    async def _node_leaves(self) -> None:
        await self._stage.resize(0)
