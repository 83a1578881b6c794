"""Deletes a sandbox when its owner process ends: ``python -m polyarch.sandbox.reaper FOLDER``.

A test session owns its sandbox. However the session ends (normally, by Ctrl-C, by SIGKILL), the kernel wakes this
process through a pidfd; it then stops the sandbox and deletes its folder."""

import asyncio
import os
import select
import sys
from pathlib import Path

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.processes import Record, is_running
from polyarch.sandbox.state import Folder


def wait_for(owner: Record) -> None:
    """Return when this process has ended; at once if it already has, even if its pid was reused."""
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    try:
        # The pidfd belongs to the pid's present process, so check after opening it that this is still the owner.
        if is_running(owner):
            select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


def main(folder: Path) -> int:
    state = Folder(folder).load()
    if state is None or state.owner is None:
        return 0
    wait_for(state.owner)
    asyncio.run(Sandbox.attach(folder.name, home=folder.parent).delete())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
