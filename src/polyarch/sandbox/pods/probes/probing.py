"""Probes of containers, as kubelets ask them (SB-011).

A probe's result changes after ``successThreshold`` or ``failureThreshold`` answers of the same kind in a row; that is
pure (:class:`Tally`). One thing differs from kubelets: until a container is ready for the first time it is asked more
often, and of these additional answers only a success counts. So a roll-out takes no longer than the processes need.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from polyarch.sandbox.pods.programs.arguments import rewritten
from polyarch.sandbox.pods.programs.installed import NotInTheImage, executable
from polyarch.sandbox.pods.spec import Container, Exec, HttpGet, Probe, TcpSocket

EAGER_SECONDS: Final = 0.5
"""How often a container is asked that was never ready."""
BODY_BYTES: Final = 1024
EXECUTION_SECONDS: Final = 60.0


class Tally(msgspec.Struct, frozen=True):
    """The result of a probe so far, and how many answers in a row said ``last``."""

    result: bool
    last: bool | None = None
    row: int = 0

    def count(self, answer: bool, probe: Probe) -> "Tally":
        row = self.row + 1 if answer == self.last else 1
        enough = row >= (probe.success_threshold if answer else probe.failure_threshold)
        return Tally(answer if enough else self.result, answer, row)


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


class Target(msgspec.Struct, frozen=True):
    """Whom to ask: a container, the address on which it listens, environment and mounts of its exec probes."""

    container: Container
    address: str
    environment: Mapping[str, str]
    mounts: Mapping[str, str]


async def ask(probe: Probe, target: Target, session: aiohttp.ClientSession) -> str:
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


async def _http(probe: HttpGet, target: Target, session: aiohttp.ClientSession) -> str:
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


async def _connect(probe: TcpSocket, target: Target) -> str:
    _, writer = await asyncio.open_connection(probe.host or target.address, port_of(probe.port, target.container))
    writer.close()
    return ""


async def execute(command: Exec, target: Target) -> str:
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
