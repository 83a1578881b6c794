"""The configuration of taints in a process that may have other work, or none without it."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeWatches
from structlog.testing import capture_logs

from polyarch.objects import Pod
from polyarch.taints.api import ArchitectureTaints
from polyarch.taints.facts import READ_TIMEOUT, RETRY_INTERVAL, TaintFacts

PLURAL = "architecturetaints"
POD = Pod()
SELECTING = {"pods": {"namespaceSelector": {"matchLabels": {"team": "yes"}}}}
NAMES = ("amd64", "arm64")


def taints(status: dict[str, Any] | None = None, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    """The object as it is stored."""
    metadata = {"name": "cluster"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    return {"metadata": metadata, "spec": spec, "status": status or {}}


class Process:
    """A process with these facts; ``clock.run`` lets time pass."""

    def __init__(self, given: dict[str, Any] | None = None) -> None:
        self.clock = ManualClock(start=0)
        self.watches = FakeWatches()
        object_ = msgspec.convert(given, ArchitectureTaints) if given is not None else None
        self.facts = TaintFacts(self.watches, namespace=OPERATOR, clock=self.clock, given=object_)
        self.told: list[str | None] = []
        self.facts.on_change(self.told.append)

    async def has(self, document: dict[str, Any] | None) -> None:
        """The API server answers with this object, or with none; the namespaces are known, too."""
        if document is not None:
            self.watches[PLURAL].put(document)
        self.watches[PLURAL].sync()
        if document is not None:
            self.watches["namespaces"].sync()
        await self.clock.run(1)

    def lease(self, time: str) -> None:
        spec = {"holderIdentity": "a", "renewTime": time}
        self.watches["leases"].put({"metadata": {"name": "polyarch-taints", "namespace": OPERATOR}, "spec": spec})

    @property
    def decides(self) -> bool:
        return self.facts.about(POD, "team", stored=False) is not None


@asynccontextmanager
async def running(process: Process):
    task = asyncio.create_task(process.facts.run())
    await process.clock.run(0)
    try:
        yield process
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def process():
    async with running(Process()) as started:
        yield started


@pytest.mark.req("TN-010")
async def test_without_the_object_nothing_is_decided_and_nothing_else_is_watched(process):
    """A cluster with the custom resource and without an object of it."""
    assert not process.facts.is_ready
    await process.has(None)
    assert process.facts.is_ready
    assert process.facts.settings is None
    assert not process.decides
    assert not process.facts.leader_lives
    assert process.watches.owned == {PLURAL: 1}
    await asyncio.wait_for(process.facts.synced(), 1)


@pytest.mark.req("TN-010")
async def test_a_cluster_that_does_not_let_us_read_it_costs_no_readiness_and_few_requests():
    """No custom resource, or no right. The process is ready at once, and looks again once a minute."""
    process = Process()
    process.watches.refused[PLURAL] = "the server could not find the requested resource"
    with capture_logs() as logs:
        async with running(process):
            await asyncio.wait_for(process.facts.synced(), 1)
            assert process.facts.problems == []
            await process.clock.run(READ_TIMEOUT + 1)
            assert not process.watches[PLURAL].running
            assert not process.decides
            await process.clock.run(3 * (RETRY_INTERVAL + READ_TIMEOUT))
            assert process.watches.owned[PLURAL] == 4
            process.watches.refused.clear()
            while not process.watches[PLURAL].running:
                await process.clock.run(1)
            await process.has(taints())
            assert process.decides, "it is used when it can be read"
    told = [line["problem"] for line in logs if "cannot be read" in line["event"]]
    assert told == ["the server could not find the requested resource"], "said once"


@pytest.mark.req("TN-001", "TN-014")
async def test_the_object_is_compiled_once_per_change_and_told(process):
    """Our own status does not make anybody decide again, but architectures of nodes do."""
    await process.has(taints(mode="tolerations"))
    settings = process.facts.settings
    assert settings.mode == "tolerations"
    assert process.told == [None]
    process.watches[PLURAL].put(taints({"observedGeneration": 3}, mode="tolerations"))
    assert process.told == [None]
    assert process.facts.settings is settings
    process.watches[PLURAL].put(taints({"architectures": [{"name": name} for name in NAMES]}, mode="tolerations"))
    assert process.facts.existing == set(NAMES)
    process.watches[PLURAL].put(taints(mode="both"))
    assert process.told == [None, None, None]


@pytest.mark.req("TN-010", "TN-073")
@pytest.mark.parametrize("gone", [False, True])
async def test_an_object_that_is_being_deleted_adds_nothing_more(process, gone):
    await process.has(taints())
    process.watches[PLURAL].put(taints(deleted=True))
    assert process.facts.settings.state == "removing"
    if gone:
        process.watches[PLURAL].remove("cluster")
        assert process.facts.settings is None
        assert not process.decides
        assert not process.watches["namespaces"].running
        assert not process.watches["leases"].running


@pytest.mark.req("TN-010")
async def test_only_the_object_named_cluster_counts(process):
    """An object of another name cannot be created; one from before is no configuration."""
    process.watches[PLURAL].put({**taints(mode="both"), "metadata": {"name": "other"}})
    await process.has(None)
    assert process.facts.settings is None


@pytest.mark.req("TN-012")
async def test_the_object_of_a_file_needs_no_custom_resource():
    """``--config FILE``."""
    async with running(Process(given=taints(mode="both"))) as process:
        process.watches["namespaces"].sync()
        await process.clock.run(1)
        assert process.decides
        assert process.facts.settings.mode == "both"
        assert process.watches.owned[PLURAL] == 0
        process.facts.take_architectures(NAMES)
        assert process.facts.about(POD, "team", stored=False).existing == set(NAMES)


# -- namespaces --------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-810", "TN-041")
async def test_only_namespaces_that_opt_out_are_kept_in_memory(process):
    """The API server selects them; all others have no label that matters."""
    await process.has(taints())
    assert process.watches.selected["namespaces"] == {"label_selector": "polyarch.dev/taints=disabled"}
    process.watches["namespaces"].put({"metadata": {"name": "left", "labels": {"polyarch.dev/taints": "disabled"}}})
    assert process.told == [None, "left"]
    assert process.facts.about(POD, "left", stored=False).namespace_labels == {"polyarch.dev/taints": "disabled"}
    assert process.facts.about(POD, "team", stored=False).namespace_labels == {}


@pytest.mark.req("TN-041")
async def test_a_selector_needs_all_namespaces_and_nothing_is_decided_before_they_are_known(process):
    """Tolerations cannot be taken back, so a pod of an unknown namespace waits for who looks later."""
    process.watches[PLURAL].put(taints(**SELECTING))
    process.watches[PLURAL].sync()
    await process.clock.run(1)
    assert process.watches.selected["namespaces"] == {}
    assert not process.decides
    process.watches["namespaces"].sync()
    assert not process.decides, "its namespace was created a moment ago"
    process.watches["namespaces"].put({"metadata": {"name": "team", "labels": {"team": "yes"}}})
    assert process.facts.about(POD, "team", stored=False).namespace_labels == {"team": "yes"}


@pytest.mark.req("TN-041", "TN-081")
async def test_namespaces_that_cannot_be_read_leave_the_process_ready(process):
    """Nothing is added, and it is tried again."""
    process.watches[PLURAL].put(taints(**SELECTING))
    process.watches[PLURAL].sync()
    process.watches["namespaces"].problem = "not allowed to list namespaces"
    process.watches["namespaces"].last_error = "forbidden"
    assert process.facts.problem == "not allowed to list namespaces"
    await process.clock.run(READ_TIMEOUT + 1)
    await asyncio.wait_for(process.facts.synced(), 1)
    assert not process.decides
    await process.clock.run(RETRY_INTERVAL)
    await process.has(taints(**SELECTING))
    process.watches["namespaces"].put({"metadata": {"name": "team", "labels": {"team": "yes"}}})
    assert process.decides


@pytest.mark.req("PL-810", "TN-041")
async def test_a_change_of_the_selector_changes_what_is_watched(process):
    await process.has(taints())
    process.watches[PLURAL].put(taints(**SELECTING))
    assert process.watches.selected["namespaces"] == {}
    process.watches[PLURAL].put(taints())
    assert process.watches.selected["namespaces"] == {"label_selector": "polyarch.dev/taints=disabled"}
    assert not process.decides
    process.watches["namespaces"].sync()
    assert process.decides


# -- the Lease ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-046")
async def test_the_leader_lives_while_its_lease_moves(process):
    """For 30 s after a change that this process saw, on its own clock."""
    await process.has(taints())
    assert process.watches.selected["leases"] == {
        "namespace": OPERATOR,
        "field_selector": "metadata.name=polyarch-taints",
    }
    for second in range(0, 120, 10):
        process.lease(f"2001-01-01T00:00:00.{second}Z")
        assert process.facts.leader_lives
        process.clock.advance(29)
        assert process.facts.leader_lives
    process.clock.advance(1)
    assert not process.facts.leader_lives


@pytest.mark.req("TN-046")
async def test_without_a_lease_there_is_no_leader(process):
    """No gate is added that nobody has ever lifted."""
    await process.has(taints())
    assert not process.facts.leader_lives
    process.lease("t")
    assert process.facts.leader_lives
    process.watches["leases"].remove("polyarch-taints", OPERATOR)
    assert not process.facts.leader_lives


@pytest.mark.req("PL-107", "TN-046")
async def test_an_outage_of_the_api_server_is_no_silence_of_the_leader(process):
    """No renewal could be seen meanwhile."""
    await process.has(taints())
    process.lease("t")
    process.clock.advance(65)
    process.watches["leases"].blind_seconds = 60.0
    assert process.facts.leader_lives
    process.clock.advance(25)
    assert not process.facts.leader_lives


@pytest.mark.req("PL-424")
async def test_short_names_are_searched_as_the_nodes_search_them(process):
    """Pods are decided again by the images that their names mean now."""
    await process.has(taints())
    process.facts.search_short_names(True)
    assert process.facts.about(POD, "team", stored=False).short_names_searched
    assert process.told == [None, None]


@pytest.mark.req("TN-012")
async def test_an_invalid_value_is_named_in_the_log(process):
    """In an object of an older schema."""
    with capture_logs() as logs:
        await process.has(taints(mode="sideways"))
    assert [line["problem"] for line in logs if line["log_level"] == "warning"] == [
        "spec.mode: 'sideways' is not one of tolerations, secondary-only, both; it counts as absent"
    ]
