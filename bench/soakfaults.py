"""The faults of a soak test. Each lasts some seconds and repairs what it broke, except for polyarch's roles."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fault_proxy import CUT, Answer, Cut, FaultProxy, Lines, Seen, status
from fault_roles import Fleet

from polyarch.sandbox import processes
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.control_plane import components
from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.health import until_healthy

NAMES: Final = (
    *("registry_down", "leader_killed", "webhook_killed", "watches_torn"),
    *("storm_of_429", "api_server_restarted", "registry_broken"),
)
"""In the order in which they are injected."""


@dataclass(frozen=True)
class Faults:
    """Injects the faults."""

    sandbox: Sandbox
    api: FaultProxy
    hosts: Mapping[str, FaultProxy]
    fleet: Fleet

    def named(self, names: Iterable[str]) -> list[Callable[[], Awaitable[None]]]:
        """The faults of these names, in the order of :data:`NAMES`."""
        return [getattr(self, name) for name in NAMES if name in names]

    async def registry_down(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for host in self.hosts.values():
                await stack.enter_async_context(host.refusing())
            await asyncio.sleep(10)

    async def leader_killed(self) -> None:
        await (await self.fleet.leader()).kill()
        await asyncio.sleep(2)

    async def webhook_killed(self) -> None:
        await self.fleet.webhooks[0].kill()
        await self.fleet.ensure()

    async def watches_torn(self) -> None:
        turn = itertools.count()
        fault = self.api.inject(lambda seen: seen.watch, Lines(lambda line: [line if next(turn) % 15 else CUT]))
        self.api.tear()
        await asyncio.sleep(10)
        self.api.withdraw(fault)

    async def storm_of_429(self) -> None:
        def asks(seen: Seen) -> bool:
            return not seen.watch and "/leases/" not in seen.path and "/events" not in seen.path

        refused = self.api.inject(asks, status(429, "TooManyRequests", retry_after=1))
        limited = [host.inject(lambda _: True, Answer(429, b"", [("Retry-After", "2")]))
                   for host in self.hosts.values()]  # fmt: skip
        await asyncio.sleep(10)
        self.api.withdraw(refused)
        for host, fault in zip(self.hosts.values(), limited, strict=True):
            host.withdraw(fault)

    async def api_server_restarted(self) -> None:
        layout = self.sandbox.layout
        await processes.stop([self.sandbox.records()["kube-apiserver"]], records=layout.folder.records, grace=0.0)
        await asyncio.sleep(3)
        started = await controlplane.ensure(layout, components.kube_apiserver(layout))
        await until_healthy(started, controlplane.probes(layout)["kube-apiserver"], seconds=90)

    async def registry_broken(self) -> None:
        turn = itertools.count()
        broken = [(host, host.inject(lambda _: next(turn) % 2 == 0, action))
                  for host in self.hosts.values() for action in (Answer(503), Cut(40))]  # fmt: skip
        await asyncio.sleep(10)
        for host, fault in broken:
            host.withdraw(fault)
