"""A NUMA exporter's host, kubelet and API server on one clock; each part of the exporter with the others scripted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fake_api import FakeApi
from manual_clock import ManualClock
from numa_facts import facts
from numa_host import NODE, NumaHost, published
from prometheus_client import CollectorRegistry

from polyarch.kube.metrics import Metrics
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.exporter.cluster import OwnNode, WatchedObject
from polyarch.numa.exporter.publisher import Publisher, PublishRequest
from polyarch.numa.exporter.scan import Scanner, ScanResult
from polyarch.numa.exporter.scan_loop import FingerprintStatusFile, ScanLoop
from polyarch.numa.exporter.schedule import ScanTrigger
from polyarch.numa.exporter.server import ExporterMetrics
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.exporter.triggers import ScanTriggers, WatchedFiles
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import Allocatable, Container, HostSettings, ListedPod, ScanSettings
from polyarch.objects import Condition


class ScriptedKubelet:
    """Answers what a test sets, or fails with ``problem``, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cpus = {"a": (5,), "b": (6,)}
        self.answer = Allocatable(cpus=(1, 2, 3, 4, 5, 6, 7))
        self.problem: Exception | None = None

    async def list(self) -> list[ListedPod]:
        self._note("list")
        return [ListedPod("default", name, (Container(name="app", cpus=held),)) for name, held in self.cpus.items()]

    async def allocatable(self) -> Allocatable:
        self._note("allocatable")
        return self.answer

    def _note(self, call: str) -> None:
        self.asked.append(call)
        if self.problem is not None:
            raise self.problem


class ScriptedScanner:
    """Scans of a machine whose pods a test sets; ``problem`` is what they fail with."""

    def __init__(self) -> None:
        self.pods: tuple[ListedPod, ...] = ()
        self.problem: Exception | None = None
        self.stale = ""
        self.wakes: list[ScanTrigger] = []
        self.hangs: asyncio.Event | None = None

    async def scan(self, wake: ScanTrigger) -> ScanResult:
        self.wakes.append(wake)
        if self.hangs is not None:
            await self.hangs.wait()
        if self.problem is not None:
            raise self.problem
        return ScanResult({"kind": "made by the test"}, node_zones(facts(*self.pods), ScanSettings(), NODE), self.stale)


class PublisherCounts:
    """What the publisher says of itself."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []
        self.patch_failures: list[str] = []
        self.skips = 0

    def written(self, operation: str, trigger: str, *, seconds: float, size_ratio: float) -> None:
        self.writes.append((operation, trigger))

    def patch_failed(self, trigger: str) -> None:
        self.patch_failures.append(trigger)

    def skipped(self) -> None:
        self.skips += 1

    def published(self) -> None:
        pass


class ExporterWorld:
    """``settings`` are the exporter's; with ``root`` there are files of a host."""

    def __init__(self, root: Path | None = None, *, terminal: Collection[str] | None = None, **settings: Any) -> None:
        """``terminal`` are names of pods that have ended."""
        self.clock = ManualClock()
        self.api = FakeApi(self.clock)
        self.kubelet, self.counted = ScriptedKubelet(), PublisherCounts()
        if root is not None:
            self.host = NumaHost(root)
            host = {"root": str(root), "kubelet_config": "file", "podresources_socket": f"fake://{root / 'answers'}"}
            settings["host"] = HostSettings(**{**host, **settings.get("host", {})})
        self.settings = ExporterSettings(hostname=NODE, **settings)
        self.registry = CollectorRegistry(auto_describe=False)
        self.conditions: list[Condition] = []
        self.offers: list[PublishRequest] = []
        """What the scan loop offered."""
        self._terminal = terminal

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    # -- one scan, of the files of the host and the scripted kubelet ---------------------------------------------------

    async def scan(self, *reasons: Any) -> ScanResult:
        return await self._scanner.scan(ScanTrigger("reactive", frozenset(reasons or ("timer",)), 0.0))

    @cached_property
    def _scanner(self) -> Scanner:
        terminal = frozenset(("default", name) for name in self._terminal or ())
        known = None if self._terminal is None else SimpleNamespace(names=lambda: terminal)
        return Scanner(self.settings, self.kubelet, clock=self.clock, terminal=known)  # type: ignore[arg-type]

    # -- the loop, with a scripted scanner -----------------------------------------------------------------------------

    def scan_loop(
        self, *, status_file: Path | None = None, ready: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> ScanLoop:
        self.scanner = ScriptedScanner()
        self.triggers = ScanTriggers(self.settings.triggers, WatchedFiles(), clock=self.clock, stretch=lambda: 1.0)
        return ScanLoop(
            triggers=self.triggers,
            scanner=self.scanner,  # type: ignore[arg-type]
            publisher=SimpleNamespace(fingerprint="pfp0v001before", offer=self.offers.append),  # type: ignore[arg-type]
            metrics=ExporterMetrics(Metrics(self.registry), NODE),
            clock=self.clock,
            chance=lambda: 0.5,
            period=self.settings.triggers.sleep_interval,
            ready=ready or _at_once,
            conditions=SimpleNamespace(set=self.conditions.append),  # type: ignore[arg-type]
            status_file=FingerprintStatusFile(str(status_file)) if status_file else None,
        )

    @asynccontextmanager
    async def scanning(self, **options: Any) -> AsyncIterator["ExporterWorld"]:
        self.loop = self.scan_loop(**options)
        async with self._running(self.loop):
            yield self

    # -- the publisher, on the API server ------------------------------------------------------------------------------

    @asynccontextmanager
    async def publishing(self, *, owned: bool = True) -> AsyncIterator["ExporterWorld"]:
        def wake() -> None:
            self.publisher.wake()

        owner = OwnNode(self.api, NODE, clock=self.clock, chance=lambda: 0.5, replaced=wake)  # type: ignore[arg-type]
        topology = WatchedObject(
            self.api,  # type: ignore[arg-type]
            TOPOLOGIES,
            NODE,
            NodeResourceTopology,
            clock=self.clock,
            resync=600.0,
            chance=lambda: 0.5,
            changed=wake,
        )
        self.publisher = Publisher(
            self.api,  # type: ignore[arg-type]
            self.settings,
            topology=topology,
            owner=owner if owned else None,
            metrics=self.counted,  # type: ignore[arg-type]
            clock=self.clock,
            chance=lambda: 0.5,
            on_condition=self.conditions.append,
        )
        self._offered = 0
        async with self._running(self.publisher, topology, *([owner] if owned else [])):
            yield self

    def offer(self, document: Any, trigger: Any = "periodic") -> None:
        """A scan has ended with this topology."""
        self._offered += 1
        self.publisher.offer(PublishRequest(document, trigger, self.clock.monotonic(), f"scan {self._offered}"))

    @property
    def owner_uid(self) -> str:
        [reference] = published(self.api)["metadata"]["ownerReferences"]
        return reference["uid"]

    @property
    def available(self) -> str:
        return published(self.api)["zones"][0]["resources"][0]["available"]

    @asynccontextmanager
    async def _running(self, *parts: Any) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(part.run()) for part in parts]
        self.task = tasks[0]
        try:
            await self.clock.settle()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _at_once() -> None:
    pass
