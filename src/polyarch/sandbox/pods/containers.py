"""The processes of containers: started, adopted, watched, ended (SB-011).

Each has a session of its own and outlives the nodes' process, as a container outlives its kubelet. Its record is in the
sandbox's folder, so that a later nodes' process adopts it, and ``polyarch down`` ends it. The exit code of an adopted
process is unknown: the kernel tells it to the parent only.

A process that ended between its start and its record is found by a variable in its environment.
"""

import asyncio
import contextlib
import datetime as dt
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.sandbox import processes
from polyarch.sandbox.pods.outcome import Exit, lost
from polyarch.sandbox.processes import Command, Record, is_running

log = structlog.get_logger(__name__)

MARK: Final = "POLYARCH_SANDBOX_CONTAINER"
"""In the environment of every process of a container: the path of its record."""
GRACE_SECONDS: Final = 10.0


def records_of(root: Path) -> Path:
    """The folder of the containers' records, below the sandbox's folder ``root``."""
    return root / "processes" / "containers"


def record_name(uid: str, container: str) -> str:
    return f"{uid}.{container}"


def uid_of(record: Record) -> str:
    return record.name.partition(".")[0]


class Container:
    """One started process; ``exit`` is set when it has ended."""

    def __init__(self, record: Record, since: dt.datetime, descriptor: int | None, exit: Exit | None = None) -> None:
        self.record = record
        self.since = since
        self.exit = exit
        self.ended = asyncio.Event()
        self._descriptor = descriptor
        if exit is not None:
            self.ended.set()

    def signal(self, number: signal.Signals) -> None:
        """Send it to the process itself, as a container runtime does. The pidfd cannot mean another process."""
        if self._descriptor is not None and self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)


class Containers:
    """All containers that run. ``changed`` is called with each one that has ended."""

    def __init__(self, root: Path, *, clock: Clock, changed: Callable[[Container], None]) -> None:
        self._records = records_of(root)
        self._clock = clock
        self._changed = changed

    def adopt(self) -> list[Container]:
        """The recorded containers, running or lost; ends processes that were started but never recorded."""
        found = [self._adopt(record) for record in processes.load(self._records).values()]
        _end_strays(self._records)
        return found

    def _adopt(self, record: Record) -> Container:
        written = (self._records / f"{record.name}.json").stat().st_mtime
        since = dt.datetime.fromtimestamp(written, dt.UTC)
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return Container(record, since, None, lost(self._clock.now()))
        # The pidfd means whoever has the pid now, so check after opening it that this is our process.
        if not is_running(record):
            os.close(descriptor)
            return Container(record, since, None, lost(self._clock.now()))
        return self._watch(record, since, descriptor)

    def start(self, command: Command) -> Container:
        """Start it; ProcessFailed if the program cannot be executed."""
        environment = {**command.environment, MARK: str(self._records / f"{command.name}.json")}
        record = processes.start(command.with_environment(environment), records=self._records)
        return self._watch(record, self._clock.now(), os.pidfd_open(record.pid))

    def _watch(self, record: Record, since: dt.datetime, descriptor: int) -> Container:
        container = Container(record, since, descriptor)
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._ended, container, descriptor)
        return container

    def _ended(self, container: Container, descriptor: int) -> None:
        """The kernel says that the process has ended."""
        asyncio.get_running_loop().remove_reader(descriptor)
        try:
            # While it is not reaped its pid is not reused, nor is its group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if _is_child(descriptor):
                    os.killpg(container.record.pid, signal.SIGKILL)
            status = os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
        except ChildProcessError:
            status = None
        container.exit = lost(self._clock.now())
        if status is not None:
            killed = status.si_code != os.CLD_EXITED
            container.exit = Exit(128 + status.si_status if killed else status.si_status, self._clock.now())
        os.close(descriptor)
        container.ended.set()
        self._changed(container)

    def forget(self, container: Container) -> None:
        """Delete the record of a container that has ended."""
        (self._records / f"{container.record.name}.json").unlink(missing_ok=True)


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if it has ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(each).partition("=") for each in variables if each)
    return {name: value for name, _, value in pairs}


def _is_child(descriptor: int) -> bool:
    try:
        return os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


async def end_all(root: Path) -> None:
    """End every container of a sandbox whose nodes' process does not run."""
    records = records_of(root)
    await processes.stop(processes.load(records).values(), records=records, grace=GRACE_SECONDS)
    _end_strays(records)


def _end_strays(records: Path) -> None:
    """Kill processes of containers without a record: theirs is missing, or names another process."""
    known = {record.pid for record in processes.load(records).values()}
    prefix = f"{MARK}={records}/".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in known:
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            group = os.getpgid(int(entry.name))
        except (OSError, ProcessLookupError):
            continue
        if group not in known and any(each.startswith(prefix) for each in variables):
            log.warning("container without a record ended", pid=int(entry.name))
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
