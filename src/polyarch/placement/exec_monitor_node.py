"""The node agent of the exec-format-error monitor: sees programs that the node's kernel cannot execute.

An instance of tracefs (:class:`TraceInstance`) has the kernel's events, a thread reads them (:class:`TraceReader`),
:class:`PodAttribution` finds the pod of a failed exec, and :class:`Reporter` writes an ENoExecEvent for the handler.
:class:`NodeAgent` runs all of it as one background task.
"""

import asyncio
import contextlib
import errno
import os
import re
import secrets
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, Invalid, KubernetesError
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import MergePatch
from polyarch.placement.api import ENOEXECEVENTS
from polyarch.placement.exec_monitor_rules import (
    ENOEXEC,
    Container,
    EventsLost,
    PodName,
    ProcessForked,
    ReportRateLimiter,
    SyscallReturned,
    containers_of_process,
    find_pod,
    parse_trace_line,
)

log = structlog.get_logger(__name__)

# -- an instance of tracefs --------------------------------------------------------------------------------------------
# An instance has its own buffer, events and filters, so other tracing on the node is not touched, and removing it
# leaves nothing behind. Two monitors may share a kernel: a pod that hangs and its successor, or two installations. So
# the name is this process's alone, and an instance that somebody holds is never changed: the kernel refuses to remove
# it (EBUSY), which tells it from what a killed monitor has left. No eBPF, no capability: uid 0 owns tracefs.
#
# Source: Documentation/trace/ftrace.rst, section "Instances".

TRACEFS_ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
INSTANCE_PREFIX: Final = "polyarch-exec"
"""What the name of every instance of ours starts with; the process's id and a random part follow."""
MAX_INSTANCES: Final = 8
"""On one kernel: each takes memory for every CPU until its process has ended."""
BUFFER_KIB: Final = 64
"""Per CPU. A failed exec takes about 50 bytes."""
FAILED_CALLS: Final = "ret == -8"
RUNTIME_FORKS: Final = 'parent_comm ~ "runc*" || parent_comm ~ "crun*" || parent_comm ~ "youki*"'
TRACE_EVENTS: Final = {
    "syscalls/sys_exit_execve": FAILED_CALLS,
    "syscalls/sys_exit_execveat": FAILED_CALLS,
    "sched/sched_process_fork": RUNTIME_FORKS,
}
"""Events and their filters. The kernel has execveat since 3.19; sched needs no configuration of its own."""
NARROWING_FILES: Final = ("set_event_pid", "set_event_notrace_pid", "tracing_cpumask")
"""Files of an instance that leave out processes or CPUs of events that are on. Older kernels do not have all."""

_GONE: Final = (errno.ENOENT, errno.ENODEV)
"""What the kernel answers about an instance that another process has removed, or is removing."""
_OURS: Final = re.compile(rf"{INSTANCE_PREFIX}(-\d+-[0-9a-f]+)?")


class TraceUnavailable(Exception):  # noqa: N818 - a state of the node, which the monitor outlives
    """This node's tracefs cannot be used; the text says why and what to do."""


class TraceInstance:
    """An instance of this process with its events enabled. Raises :class:`TraceUnavailable` if execve has no event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            _write(folder / "buffer_size_kb", str(BUFFER_KIB))
        except OSError as error:
            log.warning("the size of the trace buffer is the kernel's default", problem=error.strerror)
        filters = {event: _enable_event(folder / "events" / event, wanted) for event, wanted in TRACE_EVENTS.items()}
        self._filters = {event: text for event, text in filters.items() if text is not None}
        if not any(event.startswith("syscalls/") for event in self._filters):
            raise TraceUnavailable(
                f"{folder} has no event for execve: the kernel is built without CONFIG_FTRACE_SYSCALLS"
            )
        self._narrowing = {name: _read(folder / name) for name in NARROWING_FILES if (folder / name).exists()}
        log.info("watching for programs that cannot be executed", instance=str(folder), events=list(self._filters))

    @property
    def pipe(self) -> Path:
        return self.folder / "trace_pipe"

    def restore(self) -> list[str]:
        """Switches on again what somebody else has switched off; returns the names of those events and files.

        Raises OSError if they cannot be read or written any more.
        """
        changed: list[str] = []
        tracing = self.folder / "tracing_on"
        if not _read(tracing).startswith("1"):
            _write(tracing, "1")
            changed.append(tracing.name)
        for name, text in self._narrowing.items():
            if _read(self.folder / name) != text:
                (self.folder / name).write_text(text, encoding="utf-8")  # truncating empties the lists of processes
                changed.append(name)
        for event, text in self._filters.items():
            place = self.folder / "events" / event
            # The kernel appends "*" to the value of an event that has a trigger.
            if _read(place / "enable").startswith("1") and _read(place / "filter") == text:
                continue
            _write(place / "filter", TRACE_EVENTS[event])
            _write(place / "enable", "1")
            changed.append(event)
        return changed


@contextmanager
def open_instance(
    roots: Sequence[Path] = TRACEFS_ROOTS,
    *,
    make: Callable[[Path], None] = os.mkdir,
    remove: Callable[[Path], None] = os.rmdir,
) -> Iterator[TraceInstance]:
    """An instance of our own with its events enabled; removed at the end. What dead monitors left goes first.

    ``make`` and ``remove`` are mkdir and rmdir, by which tracefs creates and removes an instance with all its files.
    Raises :class:`TraceUnavailable`.
    """
    root = next((root for root in roots if (root / "instances").is_dir()), None)
    if root is None:
        places = " or ".join(str(root) for root in roots)
        raise TraceUnavailable(
            f"no tracefs at {places}: mount it on the node (systemctl start sys-kernel-tracing.mount)"
        )
    try:
        _remove_abandoned(root / "instances", remove)
        folder, held = _make(root / "instances", make, remove)
    except OSError as error:
        raise TraceUnavailable(f"{root}: an instance cannot be created: {error.strerror}") from error
    try:
        yield TraceInstance(folder)
    finally:
        os.close(held)
        try:
            remove(folder)
        except OSError as error:
            if error.errno not in _GONE:  # else a monitor that starts was quicker
                with contextlib.suppress(OSError):
                    _write(folder / "events" / "enable", "0")  # of no use to anybody: it is this process's alone
                log.warning("the tracefs instance could not be removed", path=str(folder), problem=error.strerror)


def _remove_abandoned(instances: Path, remove: Callable[[Path], None]) -> None:
    """Raises :class:`TraceUnavailable` if too many monitors are alive, or hang."""
    held: list[str] = []
    for folder in sorted(instances.iterdir()):
        if not _OURS.fullmatch(folder.name):
            continue
        try:
            remove(folder)
        except OSError as error:
            if error.errno not in _GONE:  # else another monitor was quicker
                held.append(folder.name)
        else:
            log.info("an instance that a former exec monitor left has been removed", instance=str(folder))
    if len(held) >= MAX_INSTANCES:
        raise TraceUnavailable(
            f"{len(held)} exec monitors hold an instance in {instances} already, and there may be {MAX_INSTANCES}: "
            f"end those that hang ({', '.join(held[:MAX_INSTANCES])}: the number is the process's id)"
        )


def _make(instances: Path, make: Callable[[Path], None], remove: Callable[[Path], None]) -> tuple[Path, int]:
    """A new instance and an open file of it, which keeps other monitors from removing it (``trace_pipe`` may be opened
    only once).

    Until that file is open, a monitor that starts at the same moment takes the instance for an abandoned one. Then the
    file cannot be opened, or it is open and belongs to an instance that was made in the same memory since.
    """
    for _ in range(MAX_INSTANCES):
        folder = instances / f"{INSTANCE_PREFIX}-{os.getpid()}-{secrets.token_hex(3)}"
        make(folder)
        try:
            held = os.open(folder / "tracing_on", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            try:
                remove(folder)
            except OSError as error:
                if error.errno in _GONE:
                    continue
            raise
        if folder.is_dir():
            return folder, held
        os.close(held)
    raise TraceUnavailable(f"{instances}: another program removes every instance as soon as it is made")


def _enable_event(event: Path, wanted: str) -> str | None:
    """The event's filter as the kernel says it, or None if the event cannot be used.

    The filter is set first: an unfiltered event would report every exec of the node.
    """
    if not event.is_dir():
        return None
    try:
        _write(event / "filter", wanted)
        text = _read(event / "filter")
        _write(event / "enable", "1")
    except OSError as error:
        log.warning("a trace event cannot be used", name=event.name, problem=error.strerror)
        return None
    return text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _write(path: Path, text: str) -> None:
    """Opens without creating: a missing file is an error."""
    with path.open("r+b", buffering=0) as file:
        file.write(text.encode())


# -- the thread that reads trace_pipe ----------------------------------------------------------------------------------
# It waits in ``poll``, so it costs nothing while nothing fails. It ends when told to: closing a file does not wake a
# thread that waits for it, so there is a pipe beside it.

READ_BYTES: Final = 65536
MAX_LINE_BYTES: Final = 4096
EMPTY_READ_PAUSE: Final = 1.0
"""Seconds after a read that brought nothing although poll said otherwise: somebody switched tracing off."""
STOP_TIMEOUT: Final = 5.0


class TraceReader:
    """Calls ``take`` with each event and ``unreadable`` with the kind of each line that is none: ``garbage``, ``cut``.

    ``tick`` is called after each read and returns the seconds after which it wants to be called again, or None. All
    three run in the thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        take: Callable[[SyscallReturned | ProcessForked | EventsLost], None],
        unreadable: Callable[[str], None],
        tick: Callable[[], float | None],
        ended: Callable[[Exception], None],
    ) -> None:
        """``ended``: called if the file cannot be read any more. Raises OSError if it cannot be opened."""
        self._take = take
        self._unreadable = unreadable
        self._tick = tick
        self._ended = ended
        self._rest = b""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._told, self._tell = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and closes the file; blocks for some milliseconds."""
        os.close(self._tell)
        self._thread.join(STOP_TIMEOUT)
        if self._thread.is_alive():
            log.warning("the trace reader did not end in time", seconds=STOP_TIMEOUT)
            return
        os.close(self._file)
        os.close(self._told)

    def _run(self) -> None:
        try:
            both, told = select.poll(), select.poll()
            for poll in (both, told):
                poll.register(self._told, 0)  # POLLHUP is always reported
            both.register(self._file, select.POLLIN)
            while True:
                wait = self._tick()
                ready = dict(both.poll(None if wait is None else wait * 1000))
                if self._told in ready:
                    return
                if self._file in ready and not self._read() and told.poll(EMPTY_READ_PAUSE * 1000):
                    return
        except Exception as error:  # noqa: BLE001 - raised by the event loop, which must learn that the thread has ended
            self._ended(error)

    def _read(self) -> bool:
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            self._unreadable("cut")
        return bool(data)

    def _line(self, line: bytes) -> None:
        event = parse_trace_line(line)
        if event is not None:
            self._take(event)
        elif line.strip():
            self._unreadable("garbage")


# -- the pod of a failed exec ------------------------------------------------------------------------------------------
# The process often ends within a millisecond, so ``/proc`` is read at once, in the reading thread. Of the processes
# that a container runtime forks the cgroup is remembered beforehand, because that of a container's first program is
# gone first: the runtime reports the error and ends. A pid is used again in time, so what is remembered counts only for
# the same process: by its start time, and where it is gone already, by its age or its name.

PROC: Final = Path("/proc")
POD_LOGS: Final = Path("/var/log/pods")
MAX_FORKED: Final = 4096
"""Forked processes."""
FORKED_PERIOD: Final = 600.0
"""Seconds for which a forked process is remembered."""
PID_REUSE_PERIOD: Final = 10.0
"""Seconds in which a kernel does not use a pid again: it counts up to at least 32 768 first."""
RUNTIME_NAMES: Final = ("runc", "crun", "youki")
"""How the names of a runtime's processes begin, also of those that become a container's first program."""
LATER_LOOKS: Final = (0.05, 0.5)
"""Seconds after which a forked process is looked at again: some runtimes fork first and move the child afterwards, and
systemd takes its time for that."""
MAX_LATER_LOOKS: Final = 256
"""Processes that wait for the same look."""

Unreported = Literal["duplicate", "limited", "unattributed", "not_a_pod"]


class Report(msgspec.Struct, frozen=True, gc=False):
    """What the ENoExecEvent will say."""

    pod_uid: str
    pod_namespace: str
    pod_name: str
    container_id: str


class _ForkedProcess(NamedTuple):
    """What is remembered of a process that a container runtime has forked."""

    at: float
    started: str
    """Its start time, in the kernel's ticks."""
    containers: tuple[Container, ...]


class PodAttribution:
    """``now``: seconds on a clock that does not go back."""

    def __init__(
        self,
        *,
        proc: Path = PROC,
        logs: Path = POD_LOGS,
        now: Callable[[], float],
        limits: ReportRateLimiter | None = None,
    ) -> None:
        self._proc = proc
        self._logs = logs
        self._now = now
        self._limits = limits or ReportRateLimiter()
        self._forked: dict[int, _ForkedProcess] = {}
        self._later: tuple[deque[tuple[float, int]], ...] = tuple(deque(maxlen=MAX_LATER_LOOKS) for _ in LATER_LOOKS)
        """Of each later look the processes that wait for it, with the time when it is due."""

    def forked(self, event: ProcessForked) -> None:
        """Remembers the child's container."""
        self._forked.pop(event.pid, None)
        if not self._remember(event.pid):
            self._look_later(event.pid, 0)

    def look_again(self) -> float | None:
        """Looks at the children that were in no container yet; returns the seconds until the next one is due."""
        for number, waiting in enumerate(self._later):
            while waiting and waiting[0][0] <= self._now():
                _, pid = waiting.popleft()
                if not self._remember(pid):
                    self._look_later(pid, number + 1)
        due = [waiting[0][0] for waiting in self._later if waiting]
        return max(0.0, min(due) - self._now()) if due else None

    def _look_later(self, pid: int, number: int) -> None:
        if number < len(LATER_LOOKS):
            earlier = LATER_LOOKS[number - 1] if number else 0.0
            self._later[number].append((self._now() + LATER_LOOKS[number] - earlier, pid))

    def missed(self) -> None:
        """Events are lost, of forks perhaps: what is older than the time in which a pid is used again may be of another
        process by now."""
        oldest = self._now() - PID_REUSE_PERIOD
        self._forked = {pid: process for pid, process in self._forked.items() if process.at >= oldest}

    def failed(self, event: SyscallReturned) -> Report | Unreported | None:
        """The report, or why there is none; None if the call did not fail with ENOEXEC."""
        if event.ret != ENOEXEC:
            return None
        containers, is_known = self._containers(event)
        if not containers:
            return "not_a_pod" if is_known else "unattributed"
        now = self._now()
        if any(self._limits.is_duplicate(container.id, now) for container in containers):
            return "duplicate"
        found = self._pod(containers)
        if found is None:
            return "unattributed"
        container, pod = found
        if not self._limits.admit(container.id, now):
            return "limited"
        return Report(container.pod_uid, pod.namespace, pod.name, container.id)

    def _containers(self, event: SyscallReturned) -> tuple[tuple[Container, ...], bool]:
        """The containers now, else when the process was forked; and whether anything is known of the process."""
        text = self._read(event.pid, "cgroup")
        if text is not None and (containers := containers_of_process(text)):
            return containers, True
        kept = self._forked.get(event.pid)
        if kept is None or not self._is_the_same(kept, event):
            return (), text is not None
        return kept.containers, True

    def _is_the_same(self, kept: _ForkedProcess, event: SyscallReturned) -> bool:
        """Whether the process that failed is the one that was forked, and no later one with its pid."""
        age = self._now() - kept.at
        if (started := self._started(event.pid)) is not None:
            return started == kept.started
        return age < (FORKED_PERIOD if event.comm.startswith(RUNTIME_NAMES) else PID_REUSE_PERIOD)

    def _remember(self, pid: int) -> bool:
        """False if the process lives in no container now."""
        text = self._read(pid, "cgroup")
        if text is None:
            return True
        containers = containers_of_process(text)
        if not containers:
            return False
        if (started := self._started(pid)) is None:
            return True
        self._forked.pop(pid, None)
        self._forked[pid] = _ForkedProcess(self._now(), started, containers)
        if len(self._forked) > MAX_FORKED:
            del self._forked[next(iter(self._forked))]
        return True

    def _started(self, pid: int) -> str | None:
        """Field 22 of proc_pid_stat(5). The second one, the name in parentheses, may have anything in it."""
        text = self._read(pid, "stat")
        fields = text.rpartition(")")[2].split() if text is not None else []
        return fields[19] if len(fields) > 19 else None

    def _read(self, pid: int, name: str) -> str | None:
        try:
            return (self._proc / str(pid) / name).read_text("utf-8", "replace")
        except OSError:
            return None

    def _pod(self, containers: tuple[Container, ...]) -> tuple[Container, PodName] | None:
        """The container whose pod is one of this node's kubelet, and that pod."""
        try:
            directories = [entry.name for entry in self._logs.iterdir()]
        except OSError:
            return None
        found = ((container, find_pod(directories, container.pod_uid)) for container in containers)
        return next(((container, pod) for container, pod in found if pod is not None), None)


# -- reports -----------------------------------------------------------------------------------------------------------
# The object is created, then its status, which has all the facts: the status of an object cannot be set when it is
# created. The handler leaves an event without status alone for a minute.

MAX_QUEUED_REPORTS: Final = 100
"""Reports in line; at five a second they are those of twenty seconds."""
REPORT_BACKOFF: Final = (1.0, 5.0)
"""Seconds before the second and the third try."""
REPORT_TIMEOUT: Final = 10.0
"""For one try."""


def event_name(report: Report) -> str:
    """The same for each report of a container, so that a restarted monitor does not report it twice."""
    return f"{report.pod_uid}-{report.container_id.rpartition('/')[2]}"


class Reporter:
    """``count`` is called with ``reported`` or ``failed`` for each report."""

    def __init__(
        self, client: Client, *, namespace: str, node: str, clock: Clock, count: Callable[[str], None]
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._node = node
        self._clock = clock
        self._count = count
        self._reports: asyncio.Queue[Report] = asyncio.Queue(MAX_QUEUED_REPORTS)

    def offer(self, report: Report) -> None:
        """Puts the report in line, or drops it; never waits. For the event loop's thread."""
        try:
            self._reports.put_nowait(report)
        except asyncio.QueueFull:
            self._drop(report, f"{MAX_QUEUED_REPORTS} reports are in line already")

    async def run(self) -> None:
        """Writes reports until cancelled."""
        while True:
            await self._write(await self._reports.get())

    async def _write(self, report: Report) -> None:
        for pause in (*REPORT_BACKOFF, None):
            try:
                async with deadline(self._clock, REPORT_TIMEOUT):
                    await self._send(report)
            except (KubernetesError, TimeoutError) as error:
                if pause is None or isinstance(error, Invalid):
                    self._drop(report, str(error) or f"no answer within {REPORT_TIMEOUT:g} s")
                    return
                await self._clock.sleep(pause)
            else:
                self._count("reported")
                log.info("reported", pod=f"{report.pod_namespace}/{report.pod_name}", container=report.container_id)
                return

    async def _send(self, report: Report) -> None:
        name = event_name(report)
        document = {
            "apiVersion": ENOEXECEVENTS.api_version,
            "kind": ENOEXECEVENTS.kind,
            "metadata": {"name": name, "namespace": self._namespace},
        }
        try:
            await self._client.create(ENOEXECEVENTS, document, namespace=self._namespace, retry=False)
        except AlreadyExists:
            log.debug("the event exists already; its status is written again", name=name)
        status = {
            "nodeName": self._node,
            "podName": report.pod_name,
            "podNamespace": report.pod_namespace,
            "containerID": report.container_id,
        }
        await self._client.patch(
            ENOEXECEVENTS,
            name,
            MergePatch({"status": status}),
            namespace=self._namespace,
            subresource="status",
            retry=False,
        )

    def _drop(self, report: Report, problem: str) -> None:
        self._count("failed")
        log.warning(
            "an exec format error could not be reported",
            pod=f"{report.pod_namespace}/{report.pod_name}",
            container=report.container_id,
            problem=problem,
        )


# -- the agent ---------------------------------------------------------------------------------------------------------
# A node without usable tracefs is no failure of the process: the gauge says 0, one line of the log says why, and it is
# looked for again every minute. So a tracefs that is mounted later is used. Gauge and readiness follow what the kernel
# says of the events, not what was once written to it: anybody with root may switch them off.

RETRY_INTERVAL: Final = 60.0
"""Seconds until tracefs is looked for again."""
CHECK_INTERVAL: Final = 10.0
"""Seconds after which the kernel is asked again whether our events are on."""
RESULTS: Final = ("reported", "duplicate", "limited", "unattributed", "not_a_pod", "failed")
UNREAD: Final = ("garbage", "cut", "lost", "off")
INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""Pids in a trace are those of this namespace (the kernel's PROC_PID_INIT_INO)."""


@contextmanager
def open_node_trace(proc: Path = PROC, roots: Sequence[Path] = TRACEFS_ROOTS) -> Iterator[TraceInstance]:
    """The node's trace. Raises :class:`TraceUnavailable`, also where the kernel's pids mean nothing here (kind)."""
    link = proc / "self" / "ns" / "pid"
    if link.is_symlink() and str(link.readlink()) != INITIAL_PID_NAMESPACE:
        raise TraceUnavailable(
            "this node has a pid namespace of its own, as a node of kind has: the kernel's pids cannot be found in it"
        )
    with open_instance(roots) as instance:
        yield instance


class NodeAgentMetrics:
    """Metrics of the node agent, all exported from the first scrape on."""

    def __init__(self, metrics: Metrics) -> None:
        self.up = metrics.gauge("polyarch_exec_monitor_up", "1 while the kernel's events of failed execs are read")
        errors = metrics.counter(
            "polyarch_exec_format_errors_total", "Execs that failed with ENOEXEC, by what became of them", ("result",)
        )
        self.results = {result: errors.labels(result) for result in RESULTS}
        unread = metrics.counter(
            "polyarch_exec_trace_unread_total",
            "Trace lines that could not be read, events that were lost, and checks that found events switched off",
            ("kind",),
        )
        self.unread = {kind: unread.labels(kind) for kind in UNREAD}


class NodeAgent:
    """``instance`` opens the trace: :func:`open_node_trace`, or in tests one without a kernel."""

    def __init__(
        self,
        attribution: PodAttribution,
        reporter: Reporter,
        *,
        instance: Callable[[], AbstractContextManager[TraceInstance]],
        metrics: NodeAgentMetrics,
        clock: Clock,
    ) -> None:
        self._attribution = attribution
        self._reporter = reporter
        self._instance = instance
        self._metrics = metrics
        self._clock = clock
        self._problem = ""
        self._unready: str | None = "the node's tracefs has not been opened yet"

    def unready(self) -> str | None:
        """Readiness. A node whose kernel cannot be asked is ready: it has nothing that a rollout could wait for."""
        return self._unready

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            try:
                with self._instance() as instance:
                    await self._read(instance)
            except (TraceUnavailable, OSError) as error:
                self._unready = None
                self._tell(str(error))
            await self._clock.sleep(RETRY_INTERVAL)

    async def _read(self, instance: TraceInstance) -> None:
        """Reads until cancelled. Raises OSError if the file cannot be read any more."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exception] = loop.create_future()

        def settle(error: Exception) -> None:
            if not ended.done():
                ended.set_result(error)

        def end(error: Exception) -> None:
            loop.call_soon_threadsafe(settle, error)

        def take(event: SyscallReturned | ProcessForked | EventsLost) -> None:
            match event:
                case ProcessForked():
                    self._attribution.forked(event)
                case EventsLost(events):
                    self._attribution.missed()
                    self._metrics.unread["lost"].inc(events)
                case SyscallReturned():
                    result = self._attribution.failed(event)
                    if isinstance(result, Report):
                        loop.call_soon_threadsafe(self._reporter.offer, result)
                    elif result is not None:
                        self._metrics.results[result].inc()

        reader = TraceReader(
            instance.pipe,
            take=take,
            unreadable=lambda kind: self._metrics.unread[kind].inc(),
            tick=self._attribution.look_again,
            ended=end,
        )
        reader.start()
        try:
            while not ended.done():
                self._check(instance)
                with contextlib.suppress(TimeoutError):
                    async with deadline(self._clock, CHECK_INTERVAL):
                        await asyncio.shield(ended)
            raise ended.result()
        finally:
            self._metrics.up.set(0)
            reader.stop()

    def _check(self, instance: TraceInstance) -> None:
        """The gauge is 1 again after an interval in which the events stayed on. Raises OSError."""
        off = instance.restore()
        self._metrics.up.set(0 if off else 1)
        if not off:
            self._problem, self._unready = "", None
            return
        self._metrics.unread["off"].inc()
        self._unready = f"another program switched off {', '.join(off)} of {instance.folder}; switched on again"
        self._tell(self._unready)

    def _tell(self, problem: str) -> None:
        """One line per problem, however long it lasts."""
        if problem != self._problem:
            self._problem = problem
            log.warning("exec format errors of this node are not seen", problem=problem)
