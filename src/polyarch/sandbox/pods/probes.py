"""Probes of containers, as kubelets ask them: whether a container has started, is ready and is alive.

A probe's result changes after ``successThreshold`` or ``failureThreshold`` answers of the same kind in a row; that is
pure (:class:`ProbeResult`). One thing differs from kubelets: until a container is ready for the first time it is asked
more often, and of these additional answers only a success counts. So a rollout takes no longer than the processes need.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import aiohttp
import msgspec

from polyarch.clock import Clock
from polyarch.sandbox.pods.programs import NotInTheImage, executable, rewritten
from polyarch.sandbox.pods.spec import Container, Exec, HttpGet, Probe, TcpSocket

EAGER_SECONDS: Final = 0.5
"""How often a container is asked that was never ready."""
BODY_BYTES: Final = 1024
EXECUTION_SECONDS: Final = 60.0


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of a probe so far, and how many answers in a row said ``last``."""

    result: bool
    last: bool | None = None
    row: int = 0

    def count(self, answer: bool, probe: Probe) -> "ProbeResult":
        row = self.row + 1 if answer == self.last else 1
        enough = row >= (probe.success_threshold if answer else probe.failure_threshold)
        return ProbeResult(answer if enough else self.result, answer, row)


def port_of(port: int | str, container: Container) -> int:
    """The number of a port that may be given by the name that the container has for it; LookupError if it has none."""
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    for each in container.ports or ():
        if each.name == port:
            return each.container_port
    raise LookupError(f"container {container.name} has no port named {port!r}")


class ProbeTarget(msgspec.Struct, frozen=True):
    """Whom to ask: a container, the address on which it listens, environment and mounts of its exec probes."""

    container: Container
    address: str
    environment: Mapping[str, str]
    mounts: Mapping[str, str]


async def ask(probe: Probe, target: ProbeTarget, session: aiohttp.ClientSession) -> str:
    """One question: empty if it was answered well, else what is wrong, in a kubelet's words."""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            if probe.http_get is not None:
                return await _http(probe.http_get, target, session)
            if probe.tcp_socket is not None:
                return await _connect(probe.tcp_socket, target)
            if probe.exec is not None:
                return await execute(probe.exec, target)
            return "the sandbox's nodes do not ask probes of this kind"
    except TimeoutError:
        return f"no answer within {probe.timeout_seconds} s"
    except (OSError, LookupError, NotInTheImage, aiohttp.ClientError, ValueError) as error:
        return str(error) or type(error).__name__


async def _http(probe: HttpGet, target: ProbeTarget, session: aiohttp.ClientSession) -> str:
    host = probe.host or target.address
    path = probe.path if probe.path.startswith("/") else f"/{probe.path}"
    url = f"{probe.scheme.lower()}://{host}:{port_of(probe.port, target.container)}{path}"
    headers = {"User-Agent": "kube-probe/sandbox", **{each.name: each.value for each in probe.http_headers or ()}}
    # Kubelets do not check certificates of probes either.
    async with session.get(url, headers=headers, ssl=False, allow_redirects=False) as answer:
        if 200 <= answer.status < 400:
            return ""
        body = (await answer.content.read(BODY_BYTES)).decode("utf-8", "replace").strip()
        return f"HTTP probe failed with statuscode: {answer.status}{f' ({body})' if body else ''}"


async def _connect(probe: TcpSocket, target: ProbeTarget) -> str:
    _, writer = await asyncio.open_connection(probe.host or target.address, port_of(probe.port, target.container))
    writer.close()
    return ""


async def execute(command: Exec, target: ProbeTarget) -> str:
    """Run a polyarch command beside the container; empty if it ends with 0, else its output."""
    process = await asyncio.create_subprocess_exec(
        *executable([rewritten(each, target.mounts) for each in command.command or ()]),
        env=dict(target.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(EXECUTION_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode == 0:
        return ""
    text = output[:BODY_BYTES].decode("utf-8", "replace").strip()
    return text or f"command ended with {process.returncode}"


# -- the worker of one running container -------------------------------------------------------------------------------


POD_GRACE: Final = -1
"""The container is ended with the grace period of its pod."""


class ProbeWorker:
    """One start of a container. ``changed`` is called when ``started`` or ``ready`` has changed."""

    def __init__(
        self,
        container: Container,
        target: ProbeTarget,
        session: aiohttp.ClientSession,
        *,
        clock: Clock,
        is_lost: Callable[[], bool] = lambda: False,
        changed: Callable[[], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self._container = container
        self._target = target
        self._session = session
        self._clock = clock
        self._is_lost = is_lost
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
        probe_result = ProbeResult(False)
        async for problem in self._answers(probe, "Startup", eagerly=lambda: True):
            probe_result = probe_result.count(not problem, probe)
            if probe_result.result:
                return True
            if probe_result.last is False and probe_result.row >= probe.failure_threshold:
                return False
        return False

    async def _while_alive(self, probe: Probe) -> None:
        probe_result = ProbeResult(True)
        async for problem in self._answers(probe, "Liveness", eagerly=lambda: False):
            probe_result = probe_result.count(not problem, probe)
            if not probe_result.result:
                return

    async def _watch_readiness(self, probe: Probe) -> None:
        probe_result = ProbeResult(False)
        async for problem in self._answers(probe, "Readiness", eagerly=lambda: self._never_ready):
            probe_result = probe_result.count(not problem, probe)
            if probe_result.result != self.ready:
                self.ready = probe_result.result
                self._never_ready = False
                self._changed()

    async def _answers(self, probe: Probe, name: str, *, eagerly: Callable[[], bool]) -> AsyncIterator[str]:
        """One answer per period, and while ``eagerly`` the successes between; empty: well, else the problem."""
        await self._clock.sleep(probe.initial_delay_seconds)
        due = self._clock.monotonic()
        while True:
            asked = self._clock.monotonic()
            problem = await ask(probe, self._target, self._session)
            if self._is_lost():  # so is the kubelet that asks
                await self._clock.sleep(probe.period_seconds)
                continue
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
