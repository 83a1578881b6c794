"""One process: what starts after what, and what stops before what (KR-034).

::

    start   health and metrics servers → caches, certificates → admission → controllers that are safe on standbys
            → Lease → (leading) the other controllers
    stop    unready → wait until endpoints have forgotten us, still answering → admission and workers finish what they
            have → Lease given back → events posted → caches → metrics and health servers

A standby runs everything but the controllers that need the Lease, so that it takes over at once. Should anything that
runs here end with an exception, everything ends, and with it the process: its replacement begins with a clean state.
The first SIGTERM (or SIGINT) asks for the orderly end, a second one cuts it short.
"""

import asyncio
import functools
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import structlog

from polyarch.kube.clock import Clock, SystemClock
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.events import Recorder
from polyarch.kube.runtime.lease import LeaderElection, LeadershipError
from polyarch.kube.serving.admission import AdmissionServer
from polyarch.kube.serving.certificates import Certificates
from polyarch.kube.serving.health import HealthServer, LoopWatch, MetricsServer

log = structlog.get_logger(__name__)


class Caches(Protocol):
    """The informers of the process (``informer.Informers``)."""

    @property
    def problems(self) -> list[str]: ...

    async def run(self) -> None: ...

    async def synced(self) -> None: ...


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Together they stay below the 30 s that a pod has for its end by default."""

    unready: float = 5.0
    drain: float = 12.0
    events: float = 3.0


class Manager:
    """Runs the parts it is given. ``background`` are further coroutine functions that run from start to end.

    ``abort`` ends the process at once: for the one case in which waiting would let two lead, workers that do not stop
    although the Lease was lost.
    """

    def __init__(
        self,
        *,
        health: HealthServer,
        metrics: MetricsServer | None = None,
        caches: Sequence[Caches] = (),
        certificates: Sequence[Certificates] = (),
        admission: AdmissionServer | None = None,
        election: LeaderElection | None = None,
        controllers: Sequence[Controller[Any]] = (),
        recorder: Recorder | None = None,
        background: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        clock: Clock | None = None,
        settings: ManagerSettings | None = None,
        abort: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.started = asyncio.Event()
        self._clock = clock or SystemClock()
        self._settings = settings or ManagerSettings()
        self._health = health
        self._metrics = metrics
        self._caches = caches
        self._certificates = certificates
        self._admission = admission
        self._election = election
        self._controllers = controllers
        self._recorder = recorder
        self._background = background or {}
        self._abort = abort
        self._stop_asked = asyncio.Event()
        self._cut_short = False
        self._leading: asyncio.Task[None] | None = None
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._loop_watch = LoopWatch(self._clock)
        health.liveness.add("event-loop", self._loop_watch.check)
        health.readiness.add("running", self._not_running)
        health.readiness.add("caches", self._incomplete)
        health.readiness.add("certificates", self._uncertified)

    @property
    def is_leader(self) -> bool:
        """Without an election every process leads, from its start on."""
        return self._election.is_leader if self._election is not None else self.started.is_set()

    def stop(self) -> None:
        """Asks for the orderly end, as SIGTERM does."""
        self._stop_asked.set()

    async def run(self, *, signals: bool = True) -> None:
        """Returns after the orderly end, or at the second signal; raises an ExceptionGroup if a part failed."""
        with self._signals() if signals else _nothing():
            try:
                await self._run()
            except asyncio.CancelledError:
                main = asyncio.current_task()
                if not self._cut_short or main is None:
                    raise
                main.uncancel()
            finally:
                if self._admission is not None:
                    await self._admission.stop()
                if self._metrics is not None:
                    await self._metrics.stop()
                await self._health.stop()
        log.info("stopped")

    async def _run(self) -> None:
        await self._health.start()
        if self._metrics is not None:
            await self._metrics.start()
        async with asyncio.TaskGroup() as tasks:
            running = self._run_background(tasks)
            starting = tasks.create_task(self._start(tasks), name="start")
            await self._stop_asked.wait()
            log.info("stopping")
            await self._end(starting)
            await _cancel(running)

    def _run_background(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        parts: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("event loop", self._loop_watch.run),
            *((f"caches {number}", caches.run) for number, caches in enumerate(self._caches)),
            *((f"certificates {number}", source.run) for number, source in enumerate(self._certificates)),
            *self._background.items(),
        ]
        if self._recorder is not None:
            parts.append(("events", self._recorder.run))
        return [tasks.create_task(_run(run), name=name) for name, run in parts]

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        for caches in self._caches:
            await caches.synced()
        for source in self._certificates:
            await source.ready()
        if self._admission is not None:
            await self._admission.start()
        for controller in self._controllers:
            if controller.safe_on_standby or self._election is None:
                self._work(controller, tasks)
        if self._election is not None:
            self._election.subscribe(functools.partial(self._lead, tasks), self._step_down)
            self._leading = tasks.create_task(self._hold_lease(self._election), name="lease")
        self.started.set()
        log.info("started", admission=self._admission.url if self._admission is not None else None)

    async def _end(self, starting: asyncio.Task[None]) -> None:
        """Unready, wait, drain, release, post: each step has its own limit."""
        await _cancel([starting])
        settings = self._settings
        if self._admission is not None and self.started.is_set():
            self._admission.retire()
            await self._clock.sleep(settings.unready)
        if self._leading is not None and not self.is_leader:
            await _cancel([self._leading])
        async with asyncio.TaskGroup() as drains:
            if self._admission is not None:
                drains.create_task(self._admission.stop(settings.drain))
            for controller in self._controllers:
                drains.create_task(self._drain(controller))
        await _cancel([self._leading] if self._leading is not None else [])
        await _cancel(self._workers.values())
        if self._recorder is not None:
            await self._recorder.close(settings.events)

    async def _drain(self, controller: Controller[Any]) -> None:
        """Keys that a standby has collected are nobody's here: the leader has them, too."""
        if controller.name not in self._workers:
            controller.queue.shut_down(drain=False)
        elif not await controller.stop(self._settings.drain):
            log.warning("passes cut off at the end of the process", controller=controller.name)

    async def _hold_lease(self, election: LeaderElection) -> None:
        try:
            await election.run()
        except LeadershipError as error:
            log.critical("ending the process at once", problem=str(error))
            self._abort()
            raise

    async def _lead(self, tasks: asyncio.TaskGroup) -> None:
        for controller in self._controllers:
            if not controller.safe_on_standby:
                self._work(controller, tasks)

    async def _step_down(self) -> None:
        names = [controller.name for controller in self._controllers if not controller.safe_on_standby]
        await _cancel([task for name in names if (task := self._workers.pop(name, None)) is not None])

    def _work(self, controller: Controller[Any], tasks: asyncio.TaskGroup) -> None:
        """Workers that are not safe beside a leader's are fenced by the Lease (KR-030)."""
        election = self._election if not controller.safe_on_standby else None
        holds = (lambda: election.is_leader) if election is not None else None
        self._workers[controller.name] = tasks.create_task(controller.run(holds=holds), name=controller.name)

    def _not_running(self) -> str | None:
        if self._stop_asked.is_set():
            return "this process is stopping"
        return None if self.started.is_set() else "this process is starting"

    def _incomplete(self) -> str | None:
        return "; ".join(problem for caches in self._caches for problem in caches.problems) or None

    def _uncertified(self) -> str | None:
        return "; ".join(problem for source in self._certificates if (problem := source.not_ready())) or None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()

        def received() -> None:
            if self._stop_asked.is_set() and main is not None:
                log.warning("second signal: ending at once")
                self._cut_short = True
                main.cancel()
            self._stop_asked.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, received)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


async def _run(run: Callable[[], Awaitable[None]]) -> None:
    await run()


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels and waits for the end; what a task raises on the way is its task group's to report."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
