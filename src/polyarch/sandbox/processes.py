"""Start, record and stop processes that outlive the command that started them.

Each runs in a session of its own. Its record holds pid, start time (field 22 of ``/proc/<pid>/stat``, clock ticks since
boot) and boot id; a process is signalled only if all three still agree, so a reused pid or a restarted machine never
makes us kill another program. The command line is no evidence: a script in ``--assets`` may ``exec`` the real program.
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
    """A program to start: its name in the sandbox, arguments, whole environment, output files and URL."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    log: str
    output: str = ""
    """File for standard output; empty: standard output goes to the log, with standard error."""
    url: str = ""
    inputs: str = ""
    """Digest of what the process depends on (:func:`inputs_of`); if it changes, the process is restarted."""
    pod: str = ""
    """``namespace/name``, if the process is a container."""
    container: str = ""
    attempt: int = 0
    """How often the container was started before."""

    def with_environment(self, environment: dict[str, str]) -> "Command":
        return msgspec.structs.replace(self, environment=environment)


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A started process, as recorded in the sandbox's folder."""

    name: str
    pid: int
    start_time: int
    arguments: tuple[str, ...]
    log: str
    output: str = ""
    url: str = ""
    inputs: str = ""
    boot: str = ""
    """The boot id of the machine; empty in records of older versions."""
    pod: str = ""
    container: str = ""
    attempt: int = 0


class Stat(NamedTuple):
    """Fields of ``/proc/<pid>/stat``: state letter, process group, start time in clock ticks since boot."""

    state: str
    group: int
    start_time: int

    @property
    def has_ended(self) -> bool:
        """Zombies count as ended."""
        return self.state in {"Z", "X"}


def inputs_of(*values: str, files: Iterable[str | Path] = ()) -> str:
    """A digest of values and of file contents; an empty path and an absent file count as empty content."""
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
    """Parse ``/proc/<pid>/stat``; the command name in it may contain spaces and parentheses."""
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[2]), int(fields[19]))


def _stat(pid: int) -> Stat | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def boot() -> str:
    """The boot id of the machine; it changes with every restart."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _reap(pid: int) -> None:
    """Reap an ended child of ours; a zombie would otherwise keep its pid."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def is_running(record: Record) -> bool:
    """Whether the recorded process still runs: same boot, pid and start time, and not a zombie."""
    stat = _stat(record.pid)
    if stat is None or stat.start_time != record.start_time or (record.boot and record.boot != boot()):
        return False
    if stat.has_ended:
        _reap(record.pid)
        return False
    return True


def memory_of(record: Record) -> int:
    """Bytes of resident memory of a recorded process; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{record.pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") if is_running(record) else 0


def start(command: Command, *, records: Path) -> Record:
    """Start ``command`` in a session of its own and write its record into the folder ``records``.

    ``posix_spawn`` and not ``subprocess``: the process outlives this one, and no handle on it is kept.
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
        pod=command.pod,
        container=command.container,
        attempt=command.attempt,
    )
    save(record, records)
    return record


def identify(name: str, pid: int) -> Record | None:
    """The record of a process that we did not start; None if there is no such process."""
    stat = _stat(pid)
    if stat is None:
        return None
    command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    arguments = tuple(os.fsdecode(argument) for argument in command_line.split(b"\0")[:-1])
    return Record(name=name, pid=pid, start_time=stat.start_time, arguments=arguments, log="", boot=boot())


def save(record: Record, records: Path) -> None:
    """Write one record atomically."""
    write_json(records / f"{record.name}.json", record)


def load(records: Path) -> dict[str, Record]:
    """All records of a sandbox, by name; the error names a file that is not a record."""
    found: dict[str, Record] = {}
    for path in sorted(records.glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except FileNotFoundError:
            continue  # stopped since the folder was listed
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProcessFailed(
                f"{path}: not a process record ({error}); stop its process by hand, then delete the file"
            ) from error
        found[record.name] = record
    return found


def failure(record: Record, problem: str) -> ProcessFailed:
    """The error for a component: its name, the problem, and the last lines of its log."""
    try:
        text = Path(record.log).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        tail = "    (no log)"
    else:
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-LOG_TAIL_LINES:]) or "    (empty log)"
    return ProcessFailed(f"{record.name} {problem}; the last lines of {record.log}:\n{tail}")


async def stop(running: Iterable[Record], *, records: Path, grace: float = TERMINATE_SECONDS) -> None:
    """Stop these processes together: SIGTERM, after ``grace`` seconds SIGKILL; then delete their records.

    A process that leads a group, as all do that :func:`start` started, is stopped with its whole group. The identity is
    checked before each signal; the calling process is skipped.
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
    """The running processes of a group. While there are any, the kernel does not reuse the leader's pid."""
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
    """The few variables that a component inherits: paths, locale, how it collects garbage, and ``names``.

    No proxy unless it is named.
    """
    paths = ("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
    kept = (*paths, "LANG", "LC_ALL", "TZ", "GOGC", "GOMEMLIMIT", *names)
    return {name: environ[name] for name in kept if name in environ}
