"""A controller that leads without asking still shows webhooks that it lives."""

import asyncio
from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeInspector, FakeSecrets, FakeWatches, facts_of

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PullSecrets
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.lease import Lease, LeaseAge
from polyarch.kube.manager import Process
from polyarch.kube.metrics import Metrics
from polyarch.kube.settings import ProcessSettings
from polyarch.oci.cache import Cache
from polyarch.placement import names
from polyarch.run.logs import Verbosity
from polyarch.run.placement_controller import components
from polyarch.run.placement_services import PlacementServices
from polyarch.run.services import CONTROLLER_SILENCE, ImageServices
from polyarch.run.settings import RegistrySettings


class Leases:
    """The Lease as an API server keeps it; ``age`` is what a webhook sees of it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.content: dict[str, Any] | None = None
        self.version = 0
        self.age = LeaseAge(clock)

    async def get(self, resource: Any, name: str, **_: Any) -> dict[str, Any]:
        if self.content is None:
            raise NotFound(404, reason="NotFound", verb="get", resource="leases", name=name)
        return self.content

    async def create(self, resource: Any, document: dict[str, Any], **_: Any) -> dict[str, Any]:
        return self.write(document)

    async def replace(self, resource: Any, document: dict[str, Any], **_: Any) -> dict[str, Any]:
        if document["metadata"].get("resourceVersion") != str(self.version):
            raise Conflict(409, reason="Conflict", verb="update", resource="leases", name=names.CONTROLLER_LEASE)
        return self.write(document)

    def write(self, document: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.content = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        self.age.observe(msgspec.convert(self.content, Lease))
        return self.content


class Registry(FakeInspector):
    """What a process asks of its registries besides."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.cache = Cache(clock)

    def on_change(self, handler: Any) -> None:
        pass

    def readings(self) -> int:
        return 0


@pytest.mark.req("PL-107")
@pytest.mark.parametrize("leader_elect", [True, False], ids=["with an election", "with --no-leader-elect"])
async def test_pods_are_gated_for_as_long_as_a_controller_runs(leader_elect):
    """Before, pods of images that were not known went through unconstrained from the 31st second on."""
    clock = ManualClock()
    leases = Leases(clock)
    settings = ProcessSettings(namespace=OPERATOR, leader_elect=leader_elect)
    given = [RegistrySettings(), Verbosity()]
    process = Process("placement-controller", settings, leases, Metrics(), role_settings=given)  # type: ignore[arg-type]
    secrets = PullSecrets(FakeSecrets(), clock)
    images = ImageServices(process, secrets, Registry(clock), LookupMetrics(process.metrics))  # type: ignore[arg-type]
    parts = PlacementServices(process, facts_of(FakeWatches()), images)
    role = components(process, parts)
    (leadership,) = role.leaderships
    writer = leadership.election.run if leadership.election is not None else role.background["lease"]
    writing = asyncio.create_task(writer())
    await clock.run(300)
    assert leases.age.age() < CONTROLLER_SILENCE
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert (leadership.election is None) is not leader_elect, "without the flag it leads, whoever holds the Lease"
