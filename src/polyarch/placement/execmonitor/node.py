"""The node side: tracefs, the reading thread and the reporter as one background task (PL-601).

A node without usable tracefs is no failure of the process: the gauge says 0, one line of the log says why, and it is
looked at again every minute. So a tracefs that is mounted later is used. Gauge and readiness follow what the kernel
says of the events, not what was once written to it: anybody with root may switch them off.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.metrics import Metrics
from polyarch.placement.execmonitor import tracefs
from polyarch.placement.execmonitor.attribution import PROC, Attribution, Report
from polyarch.placement.execmonitor.reader import TraceReader
from polyarch.placement.execmonitor.reporter import Reporter
from polyarch.placement.execmonitor.trace import Forked, Lost, Returned

log = structlog.get_logger(__name__)

AGAIN: Final = 60.0
"""Seconds until tracefs is looked for again."""
CHECK: Final = 10.0
"""Seconds after which the kernel is asked again whether our events are on."""
RESULTS: Final = ("reported", "duplicate", "limited", "unattributed", "not_a_pod", "failed")
UNREAD: Final = ("garbage", "cut", "lost", "off")
INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""Pids in a trace are those of this namespace (the kernel's PROC_PID_INIT_INO)."""


@contextmanager
def watched(proc: Path = PROC, roots: Sequence[Path] = tracefs.ROOTS) -> Iterator[tracefs.Instance]:
    """The node's trace. Raises ``tracefs.Unavailable``, also where the kernel's pids mean nothing here (kind)."""
    link = proc / "self" / "ns" / "pid"
    if link.is_symlink() and str(link.readlink()) != INITIAL_PID_NAMESPACE:
        raise tracefs.Unavailable(
            "this node has a pid namespace of its own, as a node of kind has: the kernel's pids cannot be found in it"
        )
    with tracefs.instance(roots) as instance:
        yield instance


class NodeMetrics:
    """PL-702, all exported from the first scrape on."""

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


class NodeSide:
    """``instance`` opens the trace: :func:`watched`, or in tests one without a kernel."""

    def __init__(
        self,
        attribution: Attribution,
        reporter: Reporter,
        *,
        instance: Callable[[], AbstractContextManager[tracefs.Instance]],
        metrics: NodeMetrics,
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
            except (tracefs.Unavailable, OSError) as error:
                self._unready = None
                self._tell(str(error))
            await self._clock.sleep(AGAIN)

    async def _read(self, instance: tracefs.Instance) -> None:
        """Reads until cancelled. Raises OSError if the file cannot be read any more."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exception] = loop.create_future()

        def settle(error: Exception) -> None:
            if not ended.done():
                ended.set_result(error)

        def end(error: Exception) -> None:
            loop.call_soon_threadsafe(settle, error)

        def take(event: Returned | Forked | Lost) -> None:
            match event:
                case Forked():
                    self._attribution.forked(event)
                case Lost(events):
                    self._metrics.unread["lost"].inc(events)
                case Returned():
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
                    async with deadline(self._clock, CHECK):
                        await asyncio.shield(ended)
            raise ended.result()
        finally:
            self._metrics.up.set(0)
            reader.stop()

    def _check(self, instance: tracefs.Instance) -> None:
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
