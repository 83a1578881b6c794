"""Runs the work of a build pod's container: a connection to registries, the message at the end, the exit code.

The Job's pod failure policy knows the exit codes: what another attempt cannot mend has one of its own."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from polyarch.builds import names
from polyarch.builds.agent import ProgramResult, write_message
from polyarch.builds.jobs.contract import FailureMessage
from polyarch.cli.errors import UsageError
from polyarch.cli.options.images import RegistryOptions
from polyarch.cli.output.messages import Messages
from polyarch.oci.image.contents import RegistryConnection
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import InvalidSetting

T = TypeVar("T")


def read_document(path: str, type: type[T]) -> T:
    """The document of this type. Raises ``UsageError`` naming the file and the place in it."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=type)
    except OSError as error:
        raise UsageError(f"--document {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--document {path}: {error}") from None


def run_work(
    work: Callable[[RegistryConnection], Awaitable[ProgramResult]],
    access: RegistryOptions,
    log: str,
    *,
    messages: Messages,
) -> int:
    """Do it and end as it says. Raises ``UsageError`` for what the command line itself has wrong."""
    access.check()
    wiring = InspectorOptions(
        settings=InspectorSettings(
            timeout=access.timeout, max_wait=access.max_wait, requests_per_host=access.concurrency
        ),
        configuration=access.configuration(),
        trust=access.trust(),
    )

    async def connected() -> ProgramResult:
        try:
            credentials = access.credentials()
        except UsageError as error:
            return ProgramResult.failure(names.PUSH_DENIED, f"the push secret cannot be used: {error}")
        async with open_inspector(wiring, credentials=credentials, notice=messages.remark) as inspector:
            return await work(inspector.connection)

    try:
        ending = asyncio.run(connected())
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    if isinstance(ending.message, FailureMessage):
        print(f"{ending.message.reason}: {ending.message.message}", file=sys.stderr, flush=True)
    write_message(Path(log), ending.message)
    return ending.code
