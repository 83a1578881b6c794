"""A process of polyarch that dies while it works: killed at each step, and started again at once.

A step is what it writes: method and kind. It speaks to the API server through a fault proxy, with exactly its rights;
to a registry through another one, where it writes to registries. At the write the proxy lets the request through, or
not, and nothing after it; then the process is killed (SIGKILL).
The Lease of a killed process is deleted, or the next one would wait 15 s for its end.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fault_proxy import FaultProxy, Reset, Seen

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import LEASES
from polyarch.objects import ObjectKey

ZYGOTE = Path(__file__).with_name("fault_zygote.py")
QUIET = 1.5
"""Seconds without a write after which a process whose work is done is believed to have nothing more to write."""
PASS_SECONDS = 60.0
BUGS = ("met a bug", "unexpected error", "internal error", '"exception":', "Traceback", '"level": "critical"')
"""Signs in a line of a log that tell of mistakes of ours; faults of others are warnings without a traceback."""


def is_write(seen: Seen) -> bool:
    """Of the cluster's state: Leases, Events and questions such as TokenReviews are none."""
    return seen.method in ("POST", "PUT", "PATCH", "DELETE") and not any(
        part in seen.path for part in ("/leases", "/events", "reviews")
    )


def step(seen: Seen) -> str:
    """What a write does, for people: ``PATCH deployments``, ``PUT manifests``."""
    parts = seen.path.split("/")
    if parts[1] == "v2":
        return f"{seen.method} {'manifests by digest' if ':' in parts[-1] else parts[-2] or 'uploads'}"
    at = parts.index("namespaces") + 2 if "namespaces" in parts[:-2] else (3 if parts[1] == "api" else 4)
    kind = parts[at] if at < len(parts) else parts[-2]
    return f"{seen.method} {kind}{'/status' if parts[-1] == 'status' else ''}"


class Mortal:
    """Processes of one role, one at a time; ``killed_at`` counts the steps at which they were killed."""

    def __init__(
        self,
        proxy: FaultProxy,
        zygote: asyncio.subprocess.Process,
        arguments: Sequence[str],
        *,
        client: Client,
        lease: ObjectKey,
        log: Path,
        registry: FaultProxy | None = None,
    ) -> None:
        self.proxy = proxy
        self.killed_at: Counter[str] = Counter()
        self.lost: list[Seen] = []
        """Requests that a proxy took and no server saw."""
        self._proxies = [proxy] if registry is None else [proxy, registry]
        self.log = log
        self._client = client
        self._lease = lease
        self._zygote = zygote
        self._arguments = arguments
        self._pid = 0

    @classmethod
    @asynccontextmanager
    async def of(
        cls,
        role: str,
        proxy: FaultProxy,
        arguments: Sequence[str],
        *,
        client: Client,
        lease: ObjectKey,
        log: Path,
        registry: FaultProxy | None = None,
    ) -> AsyncIterator["Mortal"]:
        """``role`` is a module of ``polyarch.run``; ``arguments`` are those of ``polyarch``."""
        zygote = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ZYGOTE), f"polyarch.run.{role}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        mortal = cls(proxy, zygote, arguments, client=client, lease=lease, log=log, registry=registry)
        try:
            yield mortal
        finally:
            await mortal.kill()
            assert zygote.stdin is not None
            zygote.stdin.close()
            await zygote.wait()

    async def start(self) -> None:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        order = {"arguments": self._arguments, "log": str(self.log)}
        self._zygote.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(60):
            self._pid = int(await self._zygote.stdout.readline())

    @property
    def is_running(self) -> bool:
        return bool(self._pid) and Path(f"/proc/{self._pid}").exists()

    def stop(self) -> None:
        """SIGSTOP: it stands still, and believes that no time passes."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    async def kill(self) -> None:
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._pid = 0
        with suppress(NotFound):
            await self._client.delete(LEASES, self._lease.name, namespace=self._lease.namespace)

    async def killed_until(self, done: Callable[[], Awaitable[bool]]) -> None:
        """Starts processes and kills each at a step: every step twice, once after the API server carried the write out
        and once before it saw it. Ends when one has nothing left to write and ``done`` is true; that one goes on."""
        while await self._dies(done):
            pass

    async def _dies(self, done: Callable[[], Awaitable[bool]]) -> bool:
        """False: this process was not killed, as it found nothing to write at which none had died twice."""
        met = asyncio.Event()
        began, wrote = len(self.proxy.seen), 0

        def new(seen: Seen, *, times: int) -> bool:
            nonlocal wrote
            if met.is_set() or not is_write(seen):
                return False
            wrote += times == 1
            hit = self.killed_at[step(seen)] == times
            if hit:
                self.killed_at[step(seen)] += 1
                met.set()
                self.lost += [seen] * times
            return hit

        def late(seen: Seen) -> bool:
            self.lost += [seen] * met.is_set()
            return met.is_set()

        for proxy in self._proxies:
            proxy.faults.clear()
            proxy.inject(late, Reset())
            proxy.inject(lambda seen: new(seen, times=0), Reset(after=True))
            proxy.inject(lambda seen: new(seen, times=1), Reset())
        await self.start()
        written, since = 0, time.monotonic()
        async with asyncio.timeout(PASS_SECONDS):
            while not met.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await met.wait()
                assert self.is_running, self.log.read_text()[-3000:]
                works = any(seen.watch for seen in self.proxy.seen[began:])
                if wrote > written or not works or not await done():
                    written, since = wrote, time.monotonic()
                if time.monotonic() - since >= QUIET and not met.is_set():
                    for proxy in self._proxies:
                        proxy.faults.clear()
                    return False
        await asyncio.sleep(0.05)  # what is carried out is on its way to the server
        await self.kill()
        return True

    @property
    def note(self) -> str:
        return f"killed {self.killed_at.total()} times at {len(self.killed_at)} steps"

    def bugs(self) -> list[str]:
        return bugs(self.log.read_text(errors="replace"))


def bugs(log: str) -> list[str]:
    """Lines that tell of mistakes of ours."""
    return [line[:2000] for line in log.splitlines() if any(sign in line for sign in BUGS)]
