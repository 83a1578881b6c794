"""The NUMA extender's parts about one API server and one clock, for tests; and what kube-scheduler sends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import HttpServer
from polyarch.kube.watch import Apply, Delete, Init, InitApply, InitDone
from polyarch.numa.extender.engine import Engine, SchedulerCache
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.requeue import RequeueTrigger
from polyarch.numa.extender.service import Service
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.extender.sources import CacheUpdater
from polyarch.numa.fit.facts import NodeFacts
from polyarch.objects import ObjectKey

OURS = "topo-aware-scheduler"


class ExtenderWorld:
    """Engine, books and metrics, which have started with the nodes; the feeds are told by :meth:`list`, :meth:`see` and
    :meth:`lose` what their watches would."""

    def __init__(self, *nodes: NodeFacts, **settings: Any) -> None:
        self.clock = ManualClock()
        self.api = FakeApi(self.clock)
        self.settings = ExtenderSettings(**settings)
        self.registry = Metrics()
        self.metrics = ExtenderMetrics(self.registry)
        self.books = SchedulerCache(self.settings, self.metrics)
        self.engine = Engine(self.settings, self.books, self.metrics)
        for number, each in enumerate(nodes):
            self.books.node_seen(msgspec.structs.replace(each, resource_version=str(number + 1)), 0.0)
        self.books.start(0.0, 0.0)
        self.sources = CacheUpdater(
            self.api,  # type: ignore[arg-type]
            self.books,
            self.settings,
            clock=self.clock,
            forget=self.engine.forget,
        )
        self.problem = ""
        """Of the listener's caches."""
        self.arrival: Callable[[], Awaitable[object]] | None = None
        """Awaited by each filter call."""

    def page(self) -> str:
        return self.registry.render()[0].decode()

    # -- watches -------------------------------------------------------------------------------------------------------

    def list(self, feed: str, *contents: dict[str, Any]) -> None:
        several = [self._stored(feed, each) for each in contents]
        for output in (Init(), *map(InitApply, several), InitDone(str(self.api.version))):
            self.sources.feeds[feed].take(output)  # type: ignore[arg-type]

    def see(self, feed: str, content: dict[str, Any]) -> None:
        self.sources.feeds[feed].take(Apply(self._stored(feed, content)))

    def lose(self, feed: str, name: str, namespace: str = "") -> None:
        self.api.remove(self.sources.feeds[feed].resource, name, namespace)
        self.sources.feeds[feed].take(Delete(ObjectKey(namespace, name), str(self.api.version)))

    def _stored(self, feed: str, content: dict[str, Any]) -> Any:
        of, metadata = self.sources.feeds[feed], content["metadata"]
        self.api.put(of.resource, content)
        return msgspec.convert(self.api.read(of.resource, metadata["name"], metadata.get("namespace", "")), of.type)

    # -- what runs -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def kicking(self, signal: Any) -> AsyncIterator["ExtenderWorld"]:
        self.kicks = RequeueTrigger(signal, metrics=self.metrics, clock=self.clock)
        task = asyncio.create_task(self.kicks.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def listening(self, **options: Any) -> AsyncIterator["ExtenderWorld"]:
        """The listener, on the machine's own clock."""
        service = Service(
            self.engine,
            metrics=self.metrics,
            clock=SystemClock(),
            problem=lambda: self.problem,
            arrives=self._arrives,
            **options,
        )
        async with HttpServer(service.serve) as server, aiohttp.ClientSession() as self.session:
            self.url = server.url
            yield self

    async def post(self, verb: str, body: Any, *, session: aiohttp.ClientSession | None = None) -> tuple[int, Any]:
        async with (session or self.session).post(f"{self.url}/numa/{verb}", data=body) as answer:
            content = await answer.read()
            return answer.status, (await answer.json()) if answer.content_type == "application/json" else content

    async def _arrives(self) -> None:
        if self.arrival is not None:
            await self.arrival()


def document(name: str = "web", *, uid: str = "", scheduler: str = OURS, cpu: str = "2", **spec: Any) -> dict[str, Any]:
    """A Guaranteed Pod as the API server has it."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "namespace": "demo", "uid": uid or f"uid-{name}"},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def arguments(pod: dict[str, Any] | None, *names: str) -> bytes:
    """ExtenderArgs as Go writes them."""
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
