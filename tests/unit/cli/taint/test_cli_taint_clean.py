"""``polyarch taint clean``: whose taints they are, and who has to be asked to stop first."""

import asyncio
from typing import Any

import pytest
from manual_clock import ManualClock
from taint_cluster import taint_api
from taint_nodes import document, taints_of

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.output.messages import Messages
from polyarch.cli.taint.clean import CleanOptions, CleanResult, TaintCleaner, rendered
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import LEASES, MUTATING_WEBHOOKS, NODES, Resource
from polyarch.taints.api import ARCHITECTURE_TAINTS

OURS = "supported-arch=arm64:NoSchedule"
GKE = "kubernetes.io/arch=arm64:NoSchedule"


class TaintCleanWorld:
    """An API server, a Lease that somebody renews or not, and time that passes."""

    def __init__(self) -> None:
        self.api = taint_api()
        self.clock = ManualClock()
        self.renewing = False
        self.sees = False
        """The controller takes note of the object."""

    def configured(self, **spec: Any) -> None:
        metadata = {"name": "cluster", "generation": 1}
        self.api.put(ARCHITECTURE_TAINTS, {"metadata": metadata, "spec": spec, "status": {"observedGeneration": 0}})

    @property
    def state(self) -> str:
        return str(self.api.read(ARCHITECTURE_TAINTS, "cluster")["spec"].get("state", ""))

    async def clean(self, **asked: Any) -> CleanResult:
        cleaned = CleanResult(dry_run=bool(asked.get("dry_run")))
        run = TaintCleaner(self.api, CleanOptions(yes=True, **asked), cleaned, Messages(quiet=True), clock=self.clock)
        work = asyncio.create_task(run.run())
        for second in range(200):
            if work.done():
                break
            if self.renewing:
                self.lease(str(second))
            await self.clock.run(1.0)
            if self.sees and self.state == "removing":
                found = self.api.read(ARCHITECTURE_TAINTS, "cluster")
                self.api.put(
                    ARCHITECTURE_TAINTS, {**found, "status": {"observedGeneration": found["metadata"]["generation"]}}
                )
        await work
        return cleaned

    def lease(self, renewed: str) -> None:
        metadata = {"name": "polyarch-taints", "namespace": "tools", "uid": "u"}
        self.api.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "a", "renewTime": renewed}})


@pytest.fixture
def world() -> TaintCleanWorld:
    return TaintCleanWorld()


@pytest.mark.req("TN-072")
@pytest.mark.parametrize(
    ("configuration", "asked", "taken"),
    [
        pytest.param(None, {}, [], id="by default what was recorded"),
        pytest.param(None, {"adopt": True}, [OURS], id="by default the key of archaware"),
        pytest.param({}, {}, [OURS], id="an object with the key of archaware adopts its taints"),
        pytest.param(None, {"preset": "gke"}, [], id="of a vendor's key what was recorded"),
        pytest.param(None, {"preset": "gke", "adopt": True}, [GKE], id="of a vendor's key all of it"),
        pytest.param(None, {"key": "kubernetes.io/arch"}, [], id="a key that is typed is no preset's"),
        pytest.param(None, {"key": "kubernetes.io/arch", "adopt": True}, [GKE], id="a key that is typed, adopted"),
        pytest.param({"taint": {"preset": "gke"}}, {}, [], id="the object says whose they are"),
        pytest.param({"taint": {"preset": "gke"}}, {"adopt": True}, [GKE], id="the object's key, adopted"),
        pytest.param({"taint": {"preset": "gke"}}, {"preset": "archaware"}, [], id="an earlier key"),
        pytest.param(
            {"taint": {"preset": "gke"}}, {"preset": "archaware", "adopt": True}, [OURS], id="an earlier key, adopted"
        ),
    ],
)
async def test_what_is_ours_is_said_by_object_and_flags(world, configuration, asked, taken) -> None:
    if configuration is not None:
        world.configured(**configuration)
    world.api.put(NODES, document("n-1", "arm64", OURS, GKE))
    await world.clean(**asked)
    assert taints_of(world.api.read(NODES, "n-1")) == [each for each in (OURS, GKE) if each not in taken]


@pytest.mark.req("TN-070")
async def test_a_controller_that_works_is_told_and_waited_for_before_anything_is_removed(world) -> None:
    world.configured()
    world.api.put(NODES, document("n-1", "arm64", OURS))
    world.renewing = world.sees = True
    writes: list[tuple[str, int]] = []

    async def note(verb: str, resource: Resource, name: str) -> None:
        if verb not in ("get", "list"):
            found = world.api.read(ARCHITECTURE_TAINTS, "cluster")
            writes.append((resource.kind, found["status"]["observedGeneration"]))

    world.api.hook = note
    cleaned = await world.clean()
    assert writes == [("ArchitectureTaints", 0), ("Node", 2)]
    assert not cleaned.left


@pytest.mark.req("TN-070")
async def test_a_controller_that_renews_its_lease_and_sees_nothing_ends_it_after_a_minute(world) -> None:
    world.configured()
    world.api.put(NODES, document("n-1", "arm64", OURS))
    world.renewing = True
    began = world.clock.monotonic()
    with pytest.raises(CouldNotComplete, match="has not seen"):
        await world.clean()
    assert 60 <= world.clock.monotonic() - began <= 70
    assert taints_of(world.api.read(NODES, "n-1")) == [OURS]
    assert not (await world.clean(force=True)).left
    assert taints_of(world.api.read(NODES, "n-1")) == []


@pytest.mark.req("TN-070")
async def test_a_dead_controller_is_found_dead_within_half_a_minute(world) -> None:
    world.configured()
    world.lease("long ago")
    world.api.put(NODES, document("n-1", "arm64", OURS))
    began = world.clock.monotonic()
    await world.clean()
    assert 30 <= world.clock.monotonic() - began <= 35
    assert world.state == "removing"
    assert taints_of(world.api.read(NODES, "n-1")) == []


@pytest.mark.req("TN-070")
async def test_a_controller_without_the_object_would_put_everything_back(world) -> None:
    """One that was started with ``--config``."""
    world.api.put(NODES, document("n-1", "arm64", OURS, record=OURS))
    world.renewing = True
    with pytest.raises(CouldNotComplete, match="polyarch run taints"):
        await world.clean()
    assert taints_of(world.api.read(NODES, "n-1")) == [OURS]
    await world.clean(force=True)
    assert taints_of(world.api.read(NODES, "n-1")) == []


@pytest.mark.req("TN-070")
async def test_who_may_write_nothing_is_not_told_that_there_is_nothing_to_do(world) -> None:
    world.api.put(NODES, document("n-1", "arm64", OURS))
    assert rendered(await world.clean(key="other/key"), "text").startswith("nothing to do")
    world.api.put(NODES, document("n-1", "arm64", OURS, record=OURS))

    async def refuse(verb: str, resource: Resource, name: str) -> None:
        if verb == "patch":
            raise Forbidden(403, message="no")

    world.api.hook = refuse
    cleaned = await world.clean()
    assert [each.ref.key.name for each in cleaned.failures] == ["n-1"]
    assert rendered(cleaned, "text") == "0 writes\n"


@pytest.mark.req("TN-072")
async def test_a_dry_run_asks_nobody_to_stop_and_waits_for_nobody(world) -> None:
    world.configured()
    world.renewing = True
    world.api.put(NODES, document("n-1", "arm64", OURS))
    began = world.clock.monotonic()
    cleaned = await world.clean(dry_run=True)
    assert world.clock.monotonic() - began <= 2
    assert [str(each.ref.key) for each in cleaned.changes] == ["cluster", "n-1"]
    assert world.state == ""
    assert taints_of(world.api.read(NODES, "n-1")) == [OURS]


@pytest.mark.req("TN-072")
async def test_what_comes_back_is_named(world) -> None:
    world.api.put(NODES, document("n-1", "arm64", OURS, record=OURS))

    async def put_back(verb: str, resource: Resource, name: str) -> None:
        if verb == "list" and resource == NODES and not taints_of(world.api.read(NODES, "n-1")):
            world.api.put(NODES, document("n-1", "arm64", OURS, record=OURS))

    world.api.hook = put_back
    cleaned = await world.clean()
    assert [str(each.key) for each in cleaned.left] == ["n-1"]


@pytest.mark.req("TN-070")
async def test_an_object_that_is_being_removed_is_left_as_it_is(world) -> None:
    world.configured(state="removing")
    world.api.put(MUTATING_WEBHOOKS, {"metadata": {"name": "polyarch-taints"}})
    cleaned = await world.clean()
    assert [each.ref.resource.kind for each in cleaned.changes] == ["MutatingWebhookConfiguration"]


@pytest.mark.req("TN-072")
async def test_a_taint_without_a_record_stays_and_is_named(world) -> None:
    world.api.put(NODES, document("n-1", "arm64", OURS, record=OURS))
    world.api.put(NODES, document("n-2", "arm64", OURS))
    cleaned = await world.clean()
    assert taints_of(world.api.read(NODES, "n-1")) == []
    assert taints_of(world.api.read(NODES, "n-2")) == [OURS]
    assert cleaned.foreign == (f"n-2 ({OURS})",)
    assert not (await world.clean(adopt=True)).foreign
