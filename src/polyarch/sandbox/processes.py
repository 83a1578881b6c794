"""Programs that outlive us: started in their own session, recorded, and ended only if they are still the same program.

A record holds pid, start time (field 22 of ``/proc/<pid>/stat``, clock ticks since boot) and command line. A pid that
was given to another program since, or a machine that was restarted, never makes us end a stranger (SB-003).
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from polyarch.sandbox.errors import ProcessFailed

POLL_SECONDS = 0.05
TERMINATE_SECONDS = 8.0
EXEC_POLLS = 200
EXEC_POLL_SECONDS = 0.001
LOG_TAIL_LINES = 15


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to start: its name in the sandbox, argument list, environment (whole), files and address."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    log: str
    output: str = ""
    """Where standard output goes; empty: into the log, with standard error."""
    url: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A started program, as kept in the sandbox's folder."""

    name: str
    pid: int
    start_time: int
    arguments: tuple[str, ...]
    log: str
    output: str = ""
    url: str = ""


def parse_stat(text: str) -> tuple[str, int]:
    """State letter and start time of a ``/proc/<pid>/stat`` line; the name in it may hold spaces and parentheses."""
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def _reap(pid: int) -> None:
    """Collect a child of ours that ended; a zombie would look alive for ever."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def is_running(record: Record) -> bool:
    """Whether this very program still runs: same pid, same start time, same command line, not a zombie."""
    stat = _stat(record.pid)
    if stat is None or stat[1] != record.start_time:
        return False
    if stat[0] in {"Z", "X"}:
        _reap(record.pid)
        return False
    return _has_command_line(record.pid, record.arguments)


def _has_command_line(pid: int, arguments: Sequence[str]) -> bool:
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return command_line == b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _await_exec(pid: int, arguments: Sequence[str]) -> tuple[str, int] | None:
    """Its stat once the program's command line can be seen: the kernel lets us go on a moment before it is set."""
    for _ in range(EXEC_POLLS):
        stat = _stat(pid)
        if stat is None or stat[0] in {"Z", "X"} or _has_command_line(pid, arguments):
            return stat
        time.sleep(EXEC_POLL_SECONDS)
    return _stat(pid)


def start(command: Command, *, records: Path) -> Record:
    """Start ``command`` in a session of its own and write its record into the folder ``records``.

    Not ``subprocess``: the program is meant to outlive this process, and nobody keeps a handle on it.
    """
    log = Path(command.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, command.log, append, 0o600),
    ]
    if command.output:
        actions.append((os.POSIX_SPAWN_OPEN, 1, command.output, append | os.O_TRUNC, 0o600))
    else:
        actions.append((os.POSIX_SPAWN_DUP2, 2, 1))
    try:
        pid = os.posix_spawn(
            command.arguments[0], command.arguments, command.environment, file_actions=actions, setsid=True
        )
    except OSError as error:
        raise ProcessFailed(f"{command.name}: {command.arguments[0]} does not start: {error.strerror}") from error
    stat = _await_exec(pid, command.arguments)
    record = Record(
        name=command.name,
        pid=pid,
        start_time=stat[1] if stat else 0,
        arguments=command.arguments,
        log=command.log,
        output=command.output,
        url=command.url,
    )
    save(record, records)
    return record


def identify(name: str, pid: int) -> Record | None:
    """A record of a program that somebody else started; None if there is no such process."""
    stat = _stat(pid)
    if stat is None:
        return None
    command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    arguments = tuple(os.fsdecode(argument) for argument in command_line.split(b"\0")[:-1])
    return Record(name=name, pid=pid, start_time=stat[1], arguments=arguments, log="")


def save(record: Record, records: Path) -> None:
    """Write one record; readers see the old one or the new one, never half of it."""
    records.mkdir(parents=True, exist_ok=True)
    target = records / f"{record.name}.json"
    partial = records / f".{record.name}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    partial.replace(target)


def load(records: Path) -> dict[str, Record]:
    """All records of a sandbox by name; a file that is no record is named in the error."""
    found: dict[str, Record] = {}
    for path in sorted(records.glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except msgspec.MsgspecError as error:
            raise ProcessFailed(
                f"{path}: not a process record ({error}); end its process yourself, then delete it"
            ) from (error)
        found[record.name] = record
    return found


def log_tail(path: str, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log, indented, for an error message."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "    (no log)"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (empty log)"


async def stop(running: Iterable[Record], *, records: Path, grace: float = TERMINATE_SECONDS) -> None:
    """End these programs together: SIGTERM, after ``grace`` seconds SIGKILL; their records are deleted.

    The identity is checked again before each signal; the caller's own process is passed over.
    """
    ended = [record for record in running if record.pid != os.getpid()]
    for record in ended:
        _signal(record, signal.SIGTERM)
    deadline = asyncio.get_running_loop().time() + grace
    killed = False
    while waiting := [record for record in ended if is_running(record)]:
        if not killed and asyncio.get_running_loop().time() > deadline:
            killed = True
            for record in waiting:
                _signal(record, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)
    for record in ended:
        (records / f"{record.name}.json").unlink(missing_ok=True)


def _signal(record: Record, number: signal.Signals) -> None:
    if not is_running(record):
        return
    try:
        os.kill(record.pid, number)
    except ProcessLookupError:
        return


def inherited_environment(environ: Mapping[str, str], *, names: Sequence[str] = ()) -> dict[str, str]:
    """The few variables a component gets: paths and locale, and those named; never a proxy by accident."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", *names)
    return {name: environ[name] for name in kept if name in environ}
