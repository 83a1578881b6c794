"""The node side: tracefs, the reading thread and the reporter as one background task (PL-601).

A node without usable tracefs is no failure of the process: the gauge says 0, one line of the log says why, and it is
looked at again every minute. So a tracefs that is mounted later, or held by another instance for a moment, is used.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import structlog

from polyarch.kube.clock import Clock
from polyarch.kube.metrics import Metrics
from polyarch.placement.execmonitor import tracefs
from polyarch.placement.execmonitor.attribution import PROC, Attribution, Report
from polyarch.placement.execmonitor.reader import TraceReader
from polyarch.placement.execmonitor.reporter import Reporter
from polyarch.placement.execmonitor.trace import Forked, Lost, Returned

log = structlog.get_logger(__name__)

AGAIN: Final = 60.0
"""Seconds until tracefs is looked for again."""
RESULTS: Final = ("reported", "duplicate", "limited", "unattributed", "not_a_pod", "failed")
UNREAD: Final = ("garbage", "cut", "lost")
INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""Pids in a trace are those of this namespace (the kernel's PROC_PID_INIT_INO)."""


@contextmanager
def watched(proc: Path = PROC, roots: Sequence[Path] = tracefs.ROOTS, name: str = tracefs.INSTANCE) -> Iterator[Path]:
    """The node's trace. Raises ``tracefs.Unavailable``, also where the kernel's pids mean nothing here (kind)."""
    link = proc / "self" / "ns" / "pid"
    if link.is_symlink() and str(link.readlink()) != INITIAL_PID_NAMESPACE:
        raise tracefs.Unavailable(
            "this node has a pid namespace of its own, as a node of kind has: the kernel's pids cannot be found in it"
        )
    with tracefs.instance(roots, name) as pipe:
        yield pipe


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
            "Trace lines that could not be read, and events that were lost",
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
        instance: Callable[[], AbstractContextManager[Path]],
        metrics: NodeMetrics,
        clock: Clock,
    ) -> None:
        self._attribution = attribution
        self._reporter = reporter
        self._instance = instance
        self._metrics = metrics
        self._clock = clock
        self._problem = ""

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            try:
                with self._instance() as pipe:
                    await self._read(pipe)
            except (tracefs.Unavailable, OSError) as error:
                self._tell(str(error))
            await self._clock.sleep(AGAIN)

    async def _read(self, pipe: Path) -> None:
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
            pipe,
            take=take,
            unreadable=lambda kind: self._metrics.unread[kind].inc(),
            tick=self._attribution.look_again,
            ended=end,
        )
        reader.start()
        self._metrics.up.set(1)
        self._problem = ""
        try:
            error = await ended
        finally:
            self._metrics.up.set(0)
            reader.stop()
        raise error

    def _tell(self, problem: str) -> None:
        """One line per problem, however long it lasts."""
        if problem != self._problem:
            self._problem = problem
            log.warning("exec format errors of this node are not seen", problem=problem)
