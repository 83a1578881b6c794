"""A controller process against fakes: its queue, its attempts, and a clock that is moved by hand.

Only the API server, the informers and the registry client are fakes (``placement_world``), and the client only if a
test has no registry of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from fake_pods import FakePods
from fake_recorder import EventLog
from manual_clock import ManualClock
from placement_world import (
    FakeInspector,
    FakeSecrets,
    FakeWatches,
    cppc,
    facts_of,
    placement_metrics,
    pod,
)

from polyarch.images.lookup_runner import LookupRunner
from polyarch.images.pod_mutation import PodMutator
from polyarch.images.pull_secrets import PullSecretReader, PullSecrets
from polyarch.images.waiting import WaitingPods
from polyarch.kube.controller import Controller
from polyarch.kube.queue import WorkQueue
from polyarch.objects import ObjectKey, Pod
from polyarch.placement import names
from polyarch.placement.controller import PodController


def is_labelled(pod: Pod) -> bool:
    """The selector of the watch."""
    return (pod.metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL) == names.GATED


class ControllerWorld:
    """A controller process against fakes; ``await world.run(seconds)`` lets time pass."""

    def __init__(
        self,
        *,
        leading: bool = True,
        cluster: FakePods | None = None,
        mutator: PodMutator | None = None,
        inspector: Callable[[ManualClock], Any] = FakeInspector,
        nodes_are_listed: bool = True,
        **configuration: Any,
    ) -> None:
        self.clock = ManualClock(start=0)
        self.watches = FakeWatches()
        self.watches.nodes_are_listed = nodes_are_listed
        self.facts = facts_of(self.watches, self.clock, **configuration)
        self.cluster = cluster or FakePods(shows=is_labelled)
        self.api = self.cluster.api
        self.registry = inspector(self.clock)
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.told = EventLog()
        self.leading = leading
        self.connected = True
        """Whether the watch of pods holds."""
        self.metrics, placement = placement_metrics()
        placement.watch_facts(lambda: self.facts.left_out)
        self.pods: WorkQueue[ObjectKey] = WorkQueue("pods", self.clock)
        images: WorkQueue[Any] = WorkQueue("images", self.clock)
        self.waiting = WaitingPods(
            self.clock,
            schedule=images.add_after,
            wake=self.pods.add,
            insists=lambda: self.leading,
            uniform=lambda: 0.5,
        )
        self.attempts = LookupRunner(self.waiting, images, self.registry, self.secrets, self.clock, placement.lookups)
        self.reads = PullSecretReader(self.secrets, self.pods.add_after)
        self.controller = PodController(
            pods=self.cluster,
            facts=self.facts,
            secrets=self.secrets,
            reads=self.reads,
            inspector=self.registry,
            waiting=self.waiting,
            client=self.api,
            post=self.told,
            enqueue=self.pods.add,
            clock=self.clock,
            metrics=placement,
            is_leading=lambda: self.leading,
            is_connected=lambda: self.connected,
            uniform=lambda: 0.5,
            mutator=mutator,
        )
        self.cluster.on_event = self.pods.add
        self._tasks = [
            asyncio.create_task(self.facts.run()),
            asyncio.create_task(self.attempts.run()),
            asyncio.create_task(self.reads.run()),
            asyncio.create_task(
                Controller("pods", self.controller.reconcile, queue=self.pods, workers=4, clock=self.clock).run()
            ),
        ]

    async def run(self, seconds: float = 0.0) -> None:
        await self.clock.run(seconds)

    async def create(self, *images: str, **options: Any) -> ObjectKey:
        """A gated pod appears and is looked at."""
        document = pod(*images, gated=True, **options)
        document["metadata"] = {"creationTimestamp": self.clock.now().isoformat(), **document["metadata"]}
        key = self.cluster.create(document)
        await self.run()
        return key

    async def namespaces(self, **labels: dict[str, str]) -> None:
        """The Namespaces that there are; asked for only while a policy has overrides."""
        await self.run()
        for name, own in labels.items():
            self.configure("namespaces", {"metadata": {"name": name, "labels": own}})
        self.watches["namespaces"].sync()
        await self.run()

    def configure(self, plural: str, document: dict[str, Any]) -> None:
        self.watches[plural].put(document)

    def switch_off(self) -> None:
        """The ClusterPodPlacementConfig is being deleted."""
        deleting = cppc()
        deleting["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
        self.configure("clusterpodplacementconfigs", deleting)

    def patched(self, key: ObjectKey) -> int:
        return self.cluster.patched.count(key)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.secrets.aclose()
