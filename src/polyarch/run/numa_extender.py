"""``polyarch run numa-extender``: answers the kube-scheduler beside it by NUMA cells.

Every replica answers whoever asks; only the replica whose scheduler leads is asked. The parts, and who calls whom::

    kube-scheduler ──> service ──> engine ──> books <── sources <── API server
                                                │ room
                                                v
                                     kicks, preemption ──> API server
"""

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from polyarch.clock import SystemClock
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError
from polyarch.kube.manager import Addresses, Components, Process, Role, Task
from polyarch.kube.metrics import Metrics, RequestMetrics
from polyarch.kube.server import HttpServer
from polyarch.kube.settings import ProcessSettings
from polyarch.numa.extender import wire
from polyarch.numa.extender.diagnostics import ResyncDebugFiles, StalenessCheck
from polyarch.numa.extender.engine import Engine, SchedulerCache, exact_options
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.preemption import BudgetCache, PreemptionController
from polyarch.numa.extender.requeue import NodeAnnotationSignal, RequeueSignal, RequeueTrigger, StorageCapacitySignal
from polyarch.numa.extender.service import PodBinder, Rejections, Service
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.sources import CacheUpdater, FailoverBarrier
from polyarch.numa.extender.status import StateDocumentWriter, StatusListener
from polyarch.numa.preemption import PreemptionRules
from polyarch.run.logs import configure

NAME: Final = "numa-extender"
USAGE_ERRORS: Final = (ConfigurationError,)
CONTROLLER: Final = "polyarch.dev/numa-extender"
BODY_ROOM: Final = 2 * wire.LARGEST
"""Bytes of requests that are read at a time; the scheduler asks about one pod after the other."""
"""In Events."""
DEBUG: Final = 4
"""klog's level from which everything is logged."""
BEAT: Final = 0.5
"""Seconds between two looks at what time has ended."""


def play(settings: ExtenderSettings) -> int:
    """Answers until SIGTERM; the exit code. Raises ``USAGE_ERRORS`` and ``KubernetesError``."""
    configure(settings.log_format, "debug" if settings.verbosity >= DEBUG else "info")
    try:
        import uvloop
    except ImportError:
        asyncio.run(_play(settings))
    else:
        from polyarch.run.event_loop import EventLoop

        uvloop.run(_play(settings), loop_factory=EventLoop)
    return 0


async def _play(settings: ExtenderSettings) -> None:
    metrics, clock = Metrics(process=True), SystemClock()
    configuration = config.load(settings.kubeconfig or None, settings.context or None, os.environ)
    own = ProcessSettings(namespace=settings.namespace)
    async with (
        Client(configuration, role=NAME, clock=clock, metrics=RequestMetrics(metrics)) as client,
        Process(NAME, own, client, metrics, role_settings=(settings,), announce=_announce) as process,
    ):
        await process.run(ROLE)


async def setup(process: Process) -> Components:
    """The extender's parts, wired."""
    settings = process.settings_of(ExtenderSettings)
    client, clock = process.client, process.clock
    metrics = ExtenderMetrics(process.metrics)
    recorder = process.recorder(CONTROLLER)
    background: dict[str, Task] = {}
    books = SchedulerCache(settings, metrics)
    engine = Engine(settings, books, metrics)
    forgets: list[Callable[[str], None]] = [engine.forget]

    def forget(uid: str) -> None:
        for each in forgets:
            each(uid)

    sources = CacheUpdater(client, books, settings, clock=clock, forget=forget)
    background |= {f"watch {name}": each.run for name, each in sources.feeds.items()}
    rejections: tuple[Rejections, ...] = ()
    stale = StalenessCheck(books.ledger.silent, recorder=recorder, metrics=metrics)
    looks: list[Callable[[float], None]] = [books.tick, stale.look]
    if settings.resync_debug == "DumpJSONFile":
        dumps = ResyncDebugFiles(settings.dumps)
        books.unexplained = dumps.write
        background["dumps"] = dumps.run
    preempting: PreemptionController | None = None
    if settings.evicts:
        budgets = BudgetCache(client, clock=clock)
        preempting = PreemptionController(
            client,
            books,
            budgets=budgets,
            rules=_rules(settings),
            recorder=recorder,
            metrics=metrics,
            clock=clock,
        )
        books.nominations = preempting
        books.freed.append(preempting.freed)
        forgets.append(preempting.forget)
        rejections = (preempting,)
        looks.append(preempting.look)
        background |= {"watch budgets": budgets.run, "preemption": preempting.run}
    if (signal := _signal(settings, client)) is not None:
        kicks = RequeueTrigger(signal, metrics=metrics, clock=clock)
        looks.append(lambda now: kicks.wake(node) if (node := engine.node_with_capacity(now)) else None)
        if preempting is not None:
            preempting.wakes = kicks.wake
        background["kicks"] = kicks.run

    async def beat() -> None:
        while True:
            await clock.sleep(BEAT)
            now = clock.monotonic()
            for look in looks:
                look(now)

    takeover = FailoverBarrier(client, sources.pods, settings.scheduler_name, clock=clock)
    service = Service(
        engine,
        metrics=metrics,
        clock=clock,
        problem=lambda: sources.problem,
        arrives=takeover.passed,
        binds=PodBinder(client, engine, clock=clock) if settings.bind else None,
        rejections=rejections,
    )
    report = StateDocumentWriter(engine, caches=sources.states, problem=lambda: sources.problem, clock=clock)
    endpoints = StatusListener(
        settings, client=client, health=process.health, metrics=process.metrics, state=report.state, clock=clock
    )
    _gauges(metrics, books, sources)
    host, port = settings.listen
    return Components(
        servers={NAME: HttpServer(service.serve, host=host, port=port, body_room=BODY_ROOM)},
        background=background | {"time": beat, "certificate": endpoints.certificates.run},
        recorders=(recorder,),
        readiness={"certificate": endpoints.not_ready, "current": sources.not_ready},
        probes=(endpoints,),
    )


def _rules(settings: ExtenderSettings) -> PreemptionRules:
    return PreemptionRules(
        scheduler_name=settings.scheduler_name,
        options=exact_options(settings),
    )


def _signal(settings: ExtenderSettings, client: Client) -> RequeueSignal | None:
    """What wakes rejected pods; None: nothing does."""
    if settings.kick == "capacity":
        return StorageCapacitySignal(client, settings.namespace)
    return NodeAnnotationSignal(client) if settings.kick == "node-annotation" else None


def _gauges(metrics: ExtenderMetrics, books: SchedulerCache, sources: CacheUpdater) -> None:
    metrics.ask_ready(lambda: not sources.problem)
    metrics.ask_reservations(books.count)
    metrics.ask_zones_ignored(lambda: books.zones_ignored)
    for name, feed in sources.feeds.items():
        metrics.ask_cache(name, feed.__len__, partial(getattr, feed, "stale_seconds"))


def _announce(addresses: Addresses) -> None:
    """Print the addresses as one JSON line to stdout."""
    sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
    sys.stdout.flush()


ROLE: Final = Role(name=NAME, setup=setup, settings=(ExtenderSettings,))
