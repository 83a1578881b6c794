"""The manager of one process: starts and stops its components in order (KR-034).

::

    start   health and metrics servers → caches, certificates → admission and other servers → controllers of every
            replica → Leases → (leading) the leader's controllers and tasks
    stop    unready → keep serving until endpoints have dropped us → servers and workers drain → Leases released →
            events posted → caches → metrics and health servers

A process whose leader makes the certificate (``leads_first``) starts its controllers and candidacies before it waits
for one, and serves as soon as there is one.

A standby runs everything except what needs the Lease, so that takeover is immediate. If any component fails, the whole
process ends, and its replacement starts with a clean state. The first SIGTERM or SIGINT starts a graceful shutdown, a
second one cuts it short.
"""

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from polyarch.kube.clock import Clock, SystemClock, is_cancelled
from polyarch.kube.process.components import Components, Leadership, Server, Task
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.lease import LeaderElection, LeadershipError
from polyarch.kube.serving.certificates import Certificates
from polyarch.kube.serving.health import Check, Health, LoopWatch

log = structlog.get_logger(__name__)


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each step of the shutdown; with the release of Leases below a pod's default grace period of 30 s."""

    unready: float = 5.0
    drain: float = 12.0
    events: float = 3.0


class Manager:
    """Runs components. ``probes`` are the servers of ``health`` and of metrics, which start before everything else.

    ``remark`` is shown with the readiness of caches. ``abort`` exits at once if workers do not stop after the Lease was
    lost: waiting could allow two leaders.
    """

    def __init__(
        self,
        components: Components,
        *,
        health: Health,
        probes: Sequence[Server] = (),
        certificates: Sequence[Certificates] = (),
        leads_first: bool = False,
        remark: Check = lambda: None,
        clock: Clock | None = None,
        settings: ManagerSettings | None = None,
        abort: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self.started = asyncio.Event()
        self._duties = components
        self._clock = clock or SystemClock()
        self._settings = settings or ManagerSettings()
        self._probes = probes
        self._certificates = certificates
        self._leads_first = leads_first
        self._servers = list(components.servers.values())
        self._abort = abort
        self._stop_asked = asyncio.Event()
        self._cut_short = False
        self._elections: dict[LeaderElection, asyncio.Task[None]] = {}
        self._workers: dict[Controller[Any], asyncio.Task[None]] = {}
        self._leading: dict[int, list[asyncio.Task[None]]] = {}
        self._loop_watch = LoopWatch(self._clock)
        health.liveness.add("event-loop", self._loop_watch.check)
        health.readiness.add("running", self._not_running)
        health.readiness.add("caches", self._incomplete, remark=remark)
        health.readiness.add("certificates", self._uncertified)
        for checks, further in ((health.liveness, components.liveness), (health.readiness, components.readiness)):
            for name, check in further.items():
                checks.add(name, check)

    def stop(self) -> None:
        """Starts the graceful shutdown, as SIGTERM does."""
        self._stop_asked.set()

    async def run(self, *, signals: bool = True) -> None:
        """Returns after the shutdown, or at the second signal; raises an ExceptionGroup if a component failed."""
        with self._signals() if signals else _nothing():
            try:
                await self._run()
            except asyncio.CancelledError:
                main = asyncio.current_task()
                if not self._cut_short or main is None:
                    raise
                main.uncancel()
            finally:
                for server in self._servers:
                    await server.stop()
                for server in reversed(self._probes):
                    await server.stop()
        log.info("stopped")

    async def _run(self) -> None:
        for server in self._probes:
            await server.start()
        async with asyncio.TaskGroup() as tasks:
            running = self._run_background(tasks)
            starting = tasks.create_task(self._start(tasks), name="start")
            await self._stop_asked.wait()
            log.info("stopping")
            await self._end(starting)
            await _cancel(running)

    def _run_background(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        components = self._duties
        parts: list[tuple[str, Task]] = [
            ("event loop", self._loop_watch.run),
            *((f"caches {number}", caches.run) for number, caches in enumerate(components.caches)),
            *((f"certificates {number}", source.run) for number, source in enumerate(self._certificates)),
            *components.background.items(),
            *((f"events {number}", recorder.run) for number, recorder in enumerate(components.recorders)),
        ]
        return [tasks.create_task(_run(run), name=name) for name, run in parts]

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        for caches in self._duties.caches:
            await caches.synced()
        if self._leads_first:
            await self._start_work(tasks)
        for source in self._certificates:
            await source.ready()
        for server in self._servers:
            await server.start()
        if not self._leads_first:
            await self._start_work(tasks)
        self.started.set()
        log.info("started", servers=[server.url for server in self._servers])

    async def _start_work(self, tasks: asyncio.TaskGroup) -> None:
        """The controllers of every replica, and the elections."""
        for controller in self._duties.controllers:
            self._workers[controller] = tasks.create_task(controller.run(), name=controller.name)
        for leadership in self._duties.leaderships:
            begin = functools.partial(self._lead, leadership, tasks)
            if leadership.election is None:
                await begin()
            else:
                leadership.election.subscribe(begin, functools.partial(self._step_down, leadership))
        for election in dict.fromkeys(each.election for each in self._duties.leaderships if each.election is not None):
            self._elections[election] = tasks.create_task(
                _run(functools.partial(self._hold_lease, election)), name="lease"
            )

    async def _end(self, starting: asyncio.Task[None]) -> None:
        """Unready, wait, drain, release, post events: each step has its own deadline."""
        await _cancel([starting])
        settings = self._settings
        if self._servers and self.started.is_set():
            for server in self._servers:
                server.retire()
            await self._clock.sleep(settings.unready)
        await _cancel(holding for election, holding in self._elections.items() if not election.is_leader)
        async with asyncio.TaskGroup() as drains:
            for server in self._servers:
                drains.create_task(server.stop(settings.drain))
            for controller in self._controllers():
                drains.create_task(self._drain(controller))
        await _cancel(self._elections.values())
        await _cancel([*self._workers.values(), *(task for led in self._leading.values() for task in led)])
        async with asyncio.TaskGroup() as posts:
            for recorder in self._duties.recorders:
                posts.create_task(recorder.close(settings.events))

    def _controllers(self) -> list[Controller[Any]]:
        led = (controller for leadership in self._duties.leaderships for controller in leadership.controllers)
        return [*self._duties.controllers, *led]

    async def _drain(self, controller: Controller[Any]) -> None:
        """Keys in a standby's queue are dropped: the leader has them too."""
        if controller not in self._workers:
            controller.queue.shut_down(drain=False)
        elif not await controller.stop(self._settings.drain):
            log.warning("shutdown: reconciles cancelled after the drain timeout", controller=controller.name)

    async def _hold_lease(self, election: LeaderElection) -> None:
        try:
            await election.run()
        except LeadershipError as error:
            log.critical("ending the process at once", problem=str(error))
            self._abort()
            raise

    async def _lead(self, leadership: Leadership, tasks: asyncio.TaskGroup) -> None:
        """Starts what only the leader runs; its workers are fenced by the Lease (KR-030)."""
        election = leadership.election
        holds = (lambda: election.is_leader) if election is not None else None
        for controller in leadership.controllers:
            self._workers[controller] = tasks.create_task(controller.run(holds=holds), name=controller.name)
        self._leading[id(leadership)] = [
            tasks.create_task(_run(run), name=name) for name, run in leadership.background.items()
        ]

    async def _step_down(self, leadership: Leadership) -> None:
        ended = [task for each in leadership.controllers if (task := self._workers.pop(each, None)) is not None]
        await _cancel([*ended, *self._leading.pop(id(leadership), [])])

    def _not_running(self) -> str | None:
        if self._stop_asked.is_set():
            return "this process is stopping"
        return None if self.started.is_set() else "this process is starting"

    def _incomplete(self) -> str | None:
        return "; ".join(problem for caches in self._duties.caches for problem in caches.problems) or None

    def _uncertified(self) -> str | None:
        return "; ".join(problem for source in self._certificates if (problem := source.not_ready())) or None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()

        def received() -> None:
            if self._stop_asked.is_set() and main is not None:
                log.warning("second signal: exiting at once")
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


async def _run(run: Task) -> None:
    """Runs a task. If something it awaited was cancelled, it has failed; its task group would not notice (KR-034)."""
    try:
        await run()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise RuntimeError("a task of this process was cancelled by something that it awaited") from None


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels the tasks and waits for them; their task group reports what they raise."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
