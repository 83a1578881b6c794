"""Programs that outlive us: started in their own session, recorded, and ended only if they are still the same program.

A record holds pid, start time (field 22 of ``/proc/<pid>/stat``, clock ticks since boot) and boot. A pid that was given
to another program since, or a machine that was restarted, never makes us end a stranger (SB-003). The command line says
nothing: a script that starts the real program replaces it, and stays what we started.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.files import write_json

POLL_SECONDS = 0.05
TERMINATE_SECONDS = 8.0
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
    inputs: str = ""
    """What it depends on besides (:func:`inputs_of`): with other inputs it is started again."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A started program, as kept in the sandbox's folder."""

    name: str
    pid: int
    start_time: int
    arguments: tuple[str, ...]
    log: str
    output: str = ""
    url: str = ""
    inputs: str = ""
    boot: str = ""
    """Empty in records of older versions."""


class Stat(NamedTuple):
    """What ``/proc/<pid>/stat`` says: state letter, process group, start time in clock ticks since boot."""

    state: str
    group: int
    start_time: int

    @property
    def has_ended(self) -> bool:
        """A zombie does nothing any more."""
        return self.state in {"Z", "X"}


def inputs_of(*values: str, files: Iterable[str | Path] = ()) -> str:
    """A digest of values and of the content of files; no name and a file that is not there count as empty."""
    digest = hashlib.sha256()
    parts = [*(value.encode() for value in values), *(_content(path) for path in files)]
    for data in parts:
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except FileNotFoundError:
        return b""


def parse_stat(text: str) -> Stat:
    """A line of ``/proc/<pid>/stat``; the name in it may hold spaces and parentheses."""
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[2]), int(fields[19]))


def _stat(pid: int) -> Stat | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def boot() -> str:
    """Which start of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _reap(pid: int) -> None:
    """Collect a child of ours that ended; a zombie would look alive for ever."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def is_running(record: Record) -> bool:
    """Whether this very program still runs: same boot, same pid, same start time, not a zombie."""
    stat = _stat(record.pid)
    if stat is None or stat.start_time != record.start_time or (record.boot and record.boot != boot()):
        return False
    if stat.has_ended:
        _reap(record.pid)
        return False
    return True


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
    stat = _stat(pid)
    record = Record(
        name=command.name,
        pid=pid,
        start_time=stat.start_time if stat else 0,
        arguments=command.arguments,
        log=command.log,
        output=command.output,
        url=command.url,
        inputs=command.inputs,
        boot=boot(),
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
    return Record(name=name, pid=pid, start_time=stat.start_time, arguments=arguments, log="", boot=boot())


def save(record: Record, records: Path) -> None:
    """Write one record; readers see the old one or the new one, never half of it."""
    write_json(records / f"{record.name}.json", record)


def load(records: Path) -> dict[str, Record]:
    """All records of a sandbox by name; a file that is no record is named in the error."""
    found: dict[str, Record] = {}
    for path in sorted(records.glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except msgspec.MsgspecError as error:
            raise ProcessFailed(
                f"{path}: not a process record ({error}); end its process yourself, then delete it"
            ) from error
        found[record.name] = record
    return found


def failure(record: Record, problem: str) -> ProcessFailed:
    """The error for a component: its name, what is wrong with it, and the last lines of its log."""
    try:
        text = Path(record.log).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        tail = "    (no log)"
    else:
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-LOG_TAIL_LINES:]) or "    (empty log)"
    return ProcessFailed(f"{record.name} {problem}; the last lines of {record.log}:\n{tail}")


async def stop(running: Iterable[Record], *, records: Path, grace: float = TERMINATE_SECONDS) -> None:
    """End these programs together: SIGTERM, after ``grace`` seconds SIGKILL; their records are deleted.

    Whoever leads a process group, as all that :func:`start` starts, ends with the whole group. The identity is checked
    before anything is signalled; the caller's own process is passed over.
    """
    ended = [record for record in running if record.pid != os.getpid()]
    left = [(record, _leads_group(record.pid)) for record in ended if is_running(record)]
    for record, leads in left:
        _signal(record, leads, signal.SIGTERM)
    deadline = asyncio.get_running_loop().time() + grace
    killed = False
    while left := [(record, leads) for record, leads in left if is_running(record) or (leads and _group(record.pid))]:
        if not killed and asyncio.get_running_loop().time() > deadline:
            killed = True
            for record, leads in left:
                _signal(record, leads, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)
    for record in ended:
        (records / f"{record.name}.json").unlink(missing_ok=True)


def _leads_group(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat.group == pid


def _group(leader: int) -> list[int]:
    """The processes of a group that have not ended. While there are any, nobody else can get the leader's pid."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    members = ((pid, _stat(pid)) for pid in pids)
    return [pid for pid, stat in members if stat is not None and stat.group == leader and not stat.has_ended]


def _signal(record: Record, group: bool, number: signal.Signals) -> None:
    try:
        if group:
            os.killpg(record.pid, number)
        elif is_running(record):
            os.kill(record.pid, number)
    except ProcessLookupError:
        return


def inherited_environment(environ: Mapping[str, str], *, names: Sequence[str] = ()) -> dict[str, str]:
    """The few variables a component gets: paths and locale, and those named; never a proxy by accident."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", *names)
    return {name: environ[name] for name in kept if name in environ}
