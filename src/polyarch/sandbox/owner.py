"""A sandbox that ends with somebody: ``python -m polyarch.sandbox.owner FOLDER``, one of the sandbox's own processes.

Test sessions own their sandbox. Whether such a session ends well, is interrupted or killed, this process is woken by
the kernel (a pidfd, no polling), ends the sandbox and deletes its folder.
"""

import asyncio
import os
import select
import sys
from pathlib import Path

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.processes import Record, is_running
from polyarch.sandbox.state import Folder


def wait_for(owner: Record) -> None:
    """Return when this program has ended; at once if it has already, even if its pid was given to another."""
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    try:
        # The pidfd is of whoever has the pid now: look only afterwards whether that still is the owner.
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
