"""The processes of containers: started, adopted, watched, ended.

Each has a session of its own and outlives the nodes' process, as a container outlives its kubelet. Its record is in the
sandbox's folder, so that a later nodes' process adopts it, and ``polyarch down`` ends it. The exit code of an adopted
process is unknown: the kernel tells it to the parent only.

A process that ended between its start and its record is found by a variable in its environment."""

import asyncio
import contextlib
import datetime as dt
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Self

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


class RunningContainer:
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

    def __init__(self, root: Path, *, clock: Clock, changed: Callable[[RunningContainer], None]) -> None:
        self._records = records_of(root)
        self._clock = clock
        self._changed = changed

    def adopt(self) -> list[RunningContainer]:
        """The recorded containers, running or lost; ends processes that were started but never recorded."""
        found = [self._adopt(record) for record in processes.load(self._records).values()]
        _end_strays(self._records)
        return found

    def _adopt(self, record: Record) -> RunningContainer:
        written = (self._records / f"{record.name}.json").stat().st_mtime
        since = dt.datetime.fromtimestamp(written, dt.UTC)
        try:
            descriptor = os.pidfd_open(record.pid)
        except ProcessLookupError:
            return RunningContainer(record, since, None, lost(self._clock.now()))
        # The pidfd means whoever has the pid now, so check after opening it that this is our process.
        if not is_running(record):
            os.close(descriptor)
            return RunningContainer(record, since, None, lost(self._clock.now()))
        return self._watch(record, since, descriptor)

    def start(self, command: Command) -> RunningContainer:
        """Start it; ProcessFailed if the program cannot be executed."""
        environment = {**command.environment, MARK: str(self._records / f"{command.name}.json")}
        record = processes.start(command.with_environment(environment), records=self._records)
        return self._watch(record, self._clock.now(), os.pidfd_open(record.pid))

    def _watch(self, record: Record, since: dt.datetime, descriptor: int) -> RunningContainer:
        container = RunningContainer(record, since, descriptor)
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._ended, container, descriptor)
        return container

    def _ended(self, container: RunningContainer, descriptor: int) -> None:
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

    def forget(self, container: RunningContainer) -> None:
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


# -- logs: the last lines, those since a time, with times --------------------------------------------------------------
# Containers write into their log files directly, so that they outlive the nodes' process. The time of a line is the one
# that it tells itself, as all lines of polyarch do; one without has that of the line before, the first ones the start.


_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?")
LOOK_BYTES: Final = 4096
"""How far into a line its time is looked for."""
MAXIMUM_BYTES: Final = 10 * 1024**2
"""How much of the end of a log is shown: as much as a kubelet keeps in one file."""


def time_of(line: bytes) -> dt.datetime | None:
    """The first time that the line tells; without a zone it is UTC."""
    for match in _TIME.finditer(line[:LOOK_BYTES]):
        date, clock, zone = match.groups()
        text = b"T".join((date, clock.replace(b",", b"."))) + (zone or b"Z")
        try:
            return dt.datetime.fromisoformat(text.decode())
        except ValueError:
            continue
    return None


def timed(lines: Iterable[bytes], start: dt.datetime) -> Iterator[tuple[dt.datetime, bytes]]:
    """Each line with its time; times never go back."""
    at = start
    for line in lines:
        found = time_of(line)
        at = max(at, found) if found is not None else at
        yield at, line


def stamp(at: dt.datetime) -> bytes:
    """What stands before a line with ``--timestamps``."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()


class LogReader:
    """Reads a log from its end, and then what is added to it. A context manager."""

    def __init__(self, path: Path, *, start: dt.datetime, timestamps: bool) -> None:
        """``start``: when the container started."""
        self._path = path
        self._at = start
        self._timestamps = timestamps
        self._rest = b""

    def __enter__(self) -> Self:
        self._file = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def begin(self, *, tail: int | None = None, since: dt.datetime | None = None) -> list[bytes]:
        """The lines that are there, with their ends. As in kubelets, ``since`` comes before ``tail``."""
        size = os.fstat(self._file.fileno()).st_size
        if size > MAXIMUM_BYTES:
            self._file.seek(size - MAXIMUM_BYTES)
            self._file.readline()
        found = self._timed(self._complete(over=False))
        if since is not None:
            found = [(at, line) for at, line in found if at >= since]
        if tail is not None and tail >= 0:
            found = found[max(0, len(found) - tail) :]
        return self._shown(found)

    def more(self, *, over: bool) -> list[bytes]:
        """The lines that were added; with ``over`` also a last one without an end."""
        return self._shown(self._timed(self._complete(over=over)))

    def _complete(self, *, over: bool) -> list[bytes]:
        lines = (self._rest + self._file.read(MAXIMUM_BYTES)).splitlines(keepends=True)
        partial = bool(lines) and not lines[-1].endswith(b"\n") and not over
        self._rest = lines.pop() if partial else b""
        return lines

    def _timed(self, lines: list[bytes]) -> list[tuple[dt.datetime, bytes]]:
        found = list(timed(lines, self._at))
        self._at = found[-1][0] if found else self._at
        return found

    def _shown(self, lines: list[tuple[dt.datetime, bytes]]) -> list[bytes]:
        return [stamp(at) + line if self._timestamps else line for at, line in lines]


def tail_of(path: Path, *, lines: int, size: int) -> str:
    """The last lines of a file, at most ``size`` bytes."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return b"".join(file.read().splitlines(keepends=True)[-lines:]).decode("utf-8", "replace")
