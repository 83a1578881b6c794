"""Runs programs that hold credentials, and queries ``docker-credential-*`` helpers (RG-083).

Such programs print secrets, so errors and warnings never contain their output: only the name, the exit status and what
was expected. A program runs without a shell, in its own process group, with limits on time and output, and has ended
when the call returns.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from polyarch.oci.auth.entries import Credential
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_NAMES

HELPER_TIMEOUT = 10.0
MAX_OUTPUT = 1024 * 1024
DOCKER_HUB_SERVER = "https://index.docker.io/v1/"
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_NOT_FOUND = b"credentials not found"
_KILL_WAIT = 5.0


class HelperFailure(Exception):  # noqa: N818 - the word of RG-083
    """A program gave no usable answer. The message has its name and the cause, and none of its output."""


class HelperOutput(msgspec.Struct, frozen=True):
    """Exit status and standard output of a program."""

    status: int
    output: bytes

    def __repr__(self) -> str:
        return f"HelperOutput(status={self.status}, output=<{len(self.output)} bytes>)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("status", self.status)]


class Helper(Protocol):
    """Interface that runs one program to its end (RG-003)."""

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        """Run ``program``, found on ``environ``'s PATH unless it has a slash. :class:`HelperFailure` if it is missing,
        cannot be started, exceeds ``timeout`` seconds or prints more than 1 MiB.
        """
        ...


class ProgramHelper:
    """Runs programs on this machine."""

    __slots__ = ()

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        path = shutil.which(program, path=environ.get("PATH", os.defpath))
        if path is None:
            place = "is missing or not executable" if "/" in program else "is not on PATH"
            raise HelperFailure(f"{program} {place}; install it or remove it from the configuration")
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise HelperFailure(f"{program} cannot be started: {_reason(error)}") from None
        try:
            async with asyncio.timeout(timeout):
                return await _converse(process, program, stdin)
        except TimeoutError:
            raise HelperFailure(f"{program} did not answer within {timeout:g} s") from None
        finally:
            await _end(process)


async def ask_helper(
    helper: Helper, name: str, registry: str, *, environ: Mapping[str, str], timeout: float = HELPER_TIMEOUT
) -> Credential | None:
    """The answer of ``docker-credential-NAME get`` for a registry host; ``None`` if it reports no credentials.

    :class:`HelperFailure` for anything but an answer (RG-083).
    """
    if not _NAME.fullmatch(name):
        raise HelperFailure(
            f"credential helper {name[:80]!r} cannot be run: a name has letters, digits, '_', '.' and '-' only"
        )
    program = f"docker-credential-{name}"
    server = DOCKER_HUB_SERVER if registry in DOCKER_HUB_NAMES else registry
    output = await helper.run(program, ("get",), stdin=server.encode(), environ=environ, timeout=timeout)
    if output.status != 0:
        if _NOT_FOUND in output.output:
            return None
        raise HelperFailure(f"{program} ended with status {output.status} for {server}; run it by hand to see why")
    try:
        answer = msgspec.json.decode(output.output, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HelperFailure(f"{program} did not answer with JSON that has Username and Secret") from None
    if not answer.secret:
        return None
    source = f"credential helper {name}"
    key = DOCKER_HUB if registry in DOCKER_HUB_NAMES else registry
    if answer.username == "<token>":
        return Credential(identity_token=answer.secret, source=source, key=key)
    return Credential(answer.username, answer.secret, source=source, key=key)


class _Answer(msgspec.Struct, frozen=True):
    secret: str = msgspec.field(name="Secret")
    username: str = msgspec.field(name="Username", default="")


async def _converse(process: asyncio.subprocess.Process, program: str, stdin: bytes) -> HelperOutput:
    reader, writer = process.stdout, process.stdin
    if reader is None or writer is None:
        raise HelperFailure(f"{program} has no pipes to talk through")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a program may answer without reading
        writer.write(stdin)
        await writer.drain()
    writer.close()
    parts = bytearray()
    while part := await reader.read(65536):
        parts += part
        if len(parts) > MAX_OUTPUT:
            raise HelperFailure(f"{program} printed more than {MAX_OUTPUT // 1024} KiB")
    return HelperOutput(await process.wait(), bytes(parts))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left: the program, or a child that still holds its output open.

    The group is signalled only while a member is known to exist (the program is not reaped, or its output is still
    open), so the id cannot belong to another process yet.
    """
    reader = process.stdout
    if process.returncode is not None and (reader is None or reader.at_eof()):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_WAIT):
            while reader is not None and await reader.read(65536):
                pass
            await process.wait()


def _reason(error: BaseException) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "its arguments are not usable"
