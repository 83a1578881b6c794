"""The publisher: one write per change, none without one, and what it does when writes fail."""

import asyncio
import itertools

import pytest
from exporter_world import ExporterWorld
from numa_host import NODE, published, register
from structlog.testing import capture_logs

from polyarch.kube.errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.exporter.publisher import (
    TopologyNotServed,
    retry_delay,
)
from polyarch.numa.exporter.settings import PublishSettings, TriggerSettings
from polyarch.numa.facts import ScanSettings


def document(available="3", **metadata):
    amounts = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": available}
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": NODE, **metadata},
        "attributes": [{"name": names.POLICY, "value": "none"}],
        "zones": [{"name": "node-0", "type": "Node", "resources": [amounts]}],
    }


def running(*, owned=True, prepared=lambda world: register(world.api, "one"), **settings):
    world = ExporterWorld(**settings)
    prepared(world)
    return world.publishing(owned=owned)


# -- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-110")
async def test_equal_results_cause_no_request_at_all():
    async with running() as world:
        world.offer(document())
        await world.clock.run(0)
        before = len(world.api.requests)
        for trigger in ("periodic", "reactive") * 5:
            world.offer(document(), trigger)
            await world.clock.run(10)
        assert world.api.requests[before:] == []
        assert (world.counted.writes, world.counted.skips) == ([("create", "periodic")], 10)


@pytest.mark.req("NE-111")
async def test_a_change_is_one_merge_patch_of_what_differs_and_names_its_trigger():
    async with running() as world:
        world.offer(document())
        await world.clock.run(0)
        patches = []
        real = world.api.patch

        async def patch(resource, name, patch, **more):
            patches.append(patch.document)
            return await real(resource, name, patch, **more)

        world.api.patch = patch
        world.offer(document("1"), "reactive")
        await world.clock.run(1)
        [sent] = patches
        assert sent == {"zones": document("1")["zones"], "metadata": {"annotations": {names.TRIGGER: "reactive"}}}
        assert world.counted.writes == [("create", "periodic"), ("patch", "reactive")]


@pytest.mark.req("NE-111")
async def test_without_patch_mode_the_object_is_read_and_put_with_what_others_wrote():
    async with running(publish=PublishSettings(patch_mode=False)) as world:
        world.offer(document())
        await world.clock.run(1)
        found = published(world.api)
        found["metadata"]["labels"] = {"theirs": "stays"}
        world.api.put(TOPOLOGIES, found)
        world.offer(document("1"))
        await world.clock.run(1)
        assert (world.available, published(world.api)["metadata"]["labels"]) == ("1", {"theirs": "stays"})
        assert world.api.verbs(TOPOLOGIES) == ["create", "get", "replace"]


@pytest.mark.req("NE-111")
async def test_a_topology_that_somebody_else_has_just_created_is_patched():
    async with running() as world:

        async def race(verb, resource, name):
            if (verb, resource) == ("create", TOPOLOGIES):
                world.api.hook = None
                world.api.put(TOPOLOGIES, document("9"))

        world.api.hook = race
        world.offer(document())
        await world.clock.run(2)
        assert (world.available, world.owner_uid) == ("3", "one")
        assert world.api.verbs(TOPOLOGIES) == ["create", "get", "patch"]


@pytest.mark.req("NE-112")
async def test_an_edit_and_a_deletion_by_others_are_repaired_within_seconds():
    async with running() as world:
        world.offer(document())
        await world.clock.run(2)
        found = published(world.api)
        found["zones"][0]["resources"][0]["available"] = "77"
        found["metadata"]["annotations"]["theirs"] = "stays"
        world.api.put(TOPOLOGIES, found)
        await world.clock.run(5)
        assert (world.available, published(world.api)["metadata"]["annotations"]["theirs"]) == ("3", "stays")
        world.api.remove(TOPOLOGIES, NODE)
        await world.clock.run(5)
        assert (world.available, world.owner_uid) == ("3", "one")
        assert world.api.verbs(TOPOLOGIES) == ["create", "patch", "create"]


@pytest.mark.req("NE-112")
async def test_where_the_watch_is_forbidden_the_object_is_read_every_ten_minutes_and_repaired():
    def prepared(world):
        register(world.api, "one")
        world.api.refuse(TOPOLOGIES, "watch", "list")

    async with running(prepared=prepared) as world:
        world.offer(document())
        await world.clock.run(30)
        assert world.available == "3"
        found = published(world.api)
        found["zones"][0]["resources"][0]["available"] = "77"
        world.api.put(TOPOLOGIES, found)
        await world.clock.run(620)
        assert world.available == "3"


@pytest.mark.req("NE-152")
async def test_where_the_watch_is_forbidden_an_hour_takes_at_most_a_dozen_requests():
    """Nothing is written while nothing changes."""

    def prepared(world):
        register(world.api, "one")
        world.api.refuse(TOPOLOGIES, "watch", "list")

    async with running(prepared=prepared) as world:
        world.offer(document())
        await world.clock.run(60)
        before = len(world.api.requests)
        await world.clock.run(3600)
        asked = [verb for verb, resource, _ in world.api.requests[before:] if resource == str(TOPOLOGIES)]
        assert 6 <= len(asked) <= 12, asked


@pytest.mark.req("NE-132")
async def test_without_a_watch_the_object_is_read_after_some_patches():
    def prepared(world):
        register(world.api, "one")
        world.api.refuse(TOPOLOGIES, "watch", "list")

    async with running(publish=PublishSettings(patch_resync=3), prepared=prepared) as world:
        world.offer(document())
        await world.clock.run(20)
        before = len(world.api.verbs(TOPOLOGIES))
        for available in ("1", "2", "1", "2"):
            world.offer(document(available))
            await world.clock.run(2)
        assert world.api.verbs(TOPOLOGIES)[before:] == ["patch", "patch", "patch", "get", "patch"]


# -- the owner ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-018")
async def test_a_node_that_was_registered_again_owns_the_topology_within_a_minute_though_no_scan_is_made():
    async with running() as world:
        world.offer(document())
        await world.clock.run(2)
        assert world.owner_uid == "one"
        register(world.api, "two")
        await world.clock.run(60)
        assert world.owner_uid == "two"


@pytest.mark.req("NE-018")
async def test_a_uid_that_died_while_the_watch_was_blind_is_never_written():
    """The watch of the Node shows the old one; the Node is read once more before its uid is written."""
    async with running() as world:
        world.api.holds_back = True
        register(world.api, "two")
        world.offer(document())
        await world.clock.run(2)
        assert (world.owner_uid, world.api.verbs(TOPOLOGIES)) == ("two", ["create"])


@pytest.mark.req("NE-018")
async def test_without_a_node_the_topology_is_published_without_owner_until_there_is_one():
    async with running(prepared=lambda world: None) as world:
        world.offer(document())
        await world.clock.run(2)
        assert "ownerReferences" not in published(world.api)["metadata"]
        register(world.api, "late")
        await world.clock.run(60)
        assert world.owner_uid == "late"


@pytest.mark.req("NE-018")
async def test_references_of_others_are_kept_and_one_that_they_add_meanwhile_is_not_lost():
    """The list of owners is replaced as a whole, so the patch says which version it is made from."""
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "7"}
    async with running(prepared=lambda world: world.api.put(TOPOLOGIES, document())) as world:
        world.offer(document())
        await world.clock.run(2)

        async def race(verb, resource, name):
            if (verb, resource) == ("patch", TOPOLOGIES):
                world.api.hook = None
                found = published(world.api)
                found["metadata"]["ownerReferences"] = [theirs]
                world.api.put(TOPOLOGIES, found)

        world.api.hook = race
        register(world.api, "one")
        await world.clock.run(5)
        references = published(world.api)["metadata"]["ownerReferences"]
        assert [each["uid"] for each in references] == ["7", "one"]


@pytest.mark.req("NE-018")
async def test_an_owner_that_is_not_wanted_is_not_looked_for():
    async with running(owned=False) as world:
        world.offer(document())
        await world.clock.run(2)
        assert "ownerReferences" not in published(world.api)["metadata"]
        assert not [each for each in world.api.requests if each[1] == "nodes"]


# -- one at a time -----------------------------------------------------------------------------------------------------


@pytest.mark.req("NE-116")
async def test_scans_do_not_wait_for_a_slow_write_and_the_newest_result_replaces_an_unsent_one():
    async with running() as world:
        released = asyncio.Event()
        writing = []

        async def slow(verb, resource, name):
            if resource is TOPOLOGIES and verb in ("create", "patch"):
                writing.append(verb)
                assert writing.count("in flight") == 0, "two writes at once"
                await released.wait()

        world.api.hook = slow
        for available in "3210":
            world.offer(document(available))
            await world.clock.run(10)
        assert writing == ["create"]
        released.set()
        await world.clock.run(2)
        assert (world.available, writing) == ("0", ["create", "patch"])


@pytest.mark.req("NE-152")
async def test_two_writes_begin_at_least_a_second_apart():
    async with running() as world:
        times = []

        async def note(verb, resource, name):
            if resource is TOPOLOGIES and verb in ("create", "patch"):
                times.append(world.clock.monotonic())

        world.api.hook = note
        for number in range(40):
            world.offer(document(str(number)))
            await world.clock.run(0.1)
        await world.clock.run(2)
        assert world.available == "39"
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 1.0


@pytest.mark.req("NE-113")
async def test_a_heartbeat_tells_the_last_scan_when_nothing_else_was_written_for_long():
    """The heartbeat."""
    async with running(publish=PublishSettings(heartbeat=100)) as world:
        for _ in range(10):
            world.offer(document())
            await world.clock.run(30)
        assert [verb for verb, _ in world.counted.writes] == ["create", "patch", "patch", "patch"]
        assert published(world.api)["metadata"]["annotations"][names.LAST_SCAN] == "scan 10"


@pytest.mark.req("NE-113")
async def test_an_exporter_that_finds_its_object_right_when_it_starts_has_a_heartbeat_too():
    def prepared(world):
        register(world.api, "one")
        world.api.put(TOPOLOGIES, document())

    async with running(publish=PublishSettings(heartbeat=100), owned=False, prepared=prepared) as world:
        for _ in range(10):
            world.offer(document())
            await world.clock.run(30)
        assert [verb for verb, _ in world.counted.writes] == ["patch", "patch", "patch"]
        assert published(world.api)["metadata"]["annotations"][names.LAST_SCAN] == "scan 10"


@pytest.mark.req("NE-113")
async def test_without_a_new_scan_there_is_no_heartbeat():
    """It says when the last scan was; one that does not come must be seen."""
    async with running(publish=PublishSettings(heartbeat=100)) as world:
        world.offer(document())
        waits = []
        wait = world.publisher._wait

        async def counted():
            waits.append(world.clock.monotonic())
            await wait()

        world.publisher._wait = counted
        await world.clock.run(1000)
        assert world.counted.writes == [("create", "periodic")]
        assert len(waits) < 5, "and nobody asks all the time"


@pytest.mark.req("NE-019")
async def test_timing_is_told_with_a_write_and_is_no_reason_for_one():
    async with running(scan=ScanSettings(expose_timing=True), triggers=TriggerSettings(sleep_interval=90)) as world:
        world.offer(document(), "periodic")
        await world.clock.run(40)
        world.offer(document(), "reactive")
        await world.clock.run(20)
        world.offer(document("1"), "reactive")
        await world.clock.run(2)
        annotations = published(world.api)["metadata"]["annotations"]
        assert annotations[names.TRIGGER] == "reactive"
        assert (annotations[names.SLEEP_DURATION], annotations[names.UPDATE_INTERVAL]) == ("1m30s", "1m")
        assert len(world.counted.writes) == 2


@pytest.mark.req("NE-114", "NO-053")
async def test_without_publishing_nothing_is_written_and_the_exporter_is_ready():
    """Readiness is the probe, and the condition that is a readiness gate of the Pod."""
    async with running(publish=PublishSettings(no_publish=True)) as world:
        assert world.publisher.not_ready() is not None
        with capture_logs() as logged:
            world.offer(document())
        await world.clock.run(10)
        assert (world.publisher.not_ready(), world.api.verbs(TOPOLOGIES)) == (None, [])
        assert [(each.type, each.status) for each in world.conditions] == [(names.TOPOLOGY_UPDATED, "True")]
        assert [(each["log_level"], each["topology"]) for each in logged] == [("debug", document())]


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_definition_that_is_missing_is_waited_for_and_readiness_says_so():
    def prepared(world):
        register(world.api, "one")
        world.api.unserved.add(TOPOLOGIES)

    async with running(prepared=prepared) as world:
        world.offer(document())
        await world.clock.run(100)
        assert "noderesourcetopologies.topology.node.k8s.io is not served" in world.publisher.not_ready()
        assert world.conditions[-1].status == "False"
        assert world.api.verbs(TOPOLOGIES) == [], "what is not served is not written"
        world.api.unserved.clear()
        await world.clock.run(45)
        assert (world.available, world.publisher.not_ready()) == ("3", None)
        assert world.conditions[-1].status == "True"


async def test_a_kind_that_discovery_shows_and_requests_do_not_find_counts_as_missing():
    def prepared(world):
        register(world.api, "one")
        world.api.refuse(TOPOLOGIES, "list", "watch", error=NotFound(404, reason="NotFound"))

    async with running(prepared=prepared) as world:
        world.offer(document())
        await world.clock.run(60)
        assert "is not served" in world.publisher.not_ready()
        assert world.api.verbs(TOPOLOGIES) == []
        world.api.allow()
        await world.clock.run(45)
        assert world.available == "3"


async def test_where_patch_is_forbidden_the_object_is_put_without_asking_for_a_patch_each_time():
    async with running() as world:
        world.offer(document())
        await world.clock.run(2)
        world.api.refuse(TOPOLOGIES, "patch")
        with capture_logs() as logs:
            for available in ("1", "2"):
                world.offer(document(available))
                await world.clock.run(5)
        (told,) = [each for each in logs if each["event"].startswith("patch is forbidden")]
        assert "grant patch" in told["event"]
        assert "403" in told["error"]
        assert world.available == "2"
        assert world.api.verbs(TOPOLOGIES) == ["create", "patch", "get", "replace", "get", "replace"]
        assert world.conditions[-1].status == "True"
        assert world.counted.patch_failures == ["periodic"]
        world.api.allow()
        await world.clock.run(600)
        world.offer(document("1"))
        await world.clock.run(5)
        assert world.api.verbs(TOPOLOGIES)[-1] == "patch", "the right may have been granted meanwhile"


async def test_an_api_server_that_has_just_started_forbids_everything_for_a_moment():
    """It knows no roles yet: neither is the topology a minute late for it, nor are patches given up for ten."""
    async with running() as world:
        world.offer(document())
        await world.clock.run(2)
        world.api.refuse(TOPOLOGIES, "create", "get", "patch", "replace")
        world.offer(document("1"))
        with capture_logs() as logs:
            await world.clock.run(1)
            world.api.allow()
            await world.clock.run(4)
            assert (world.available, world.api.verbs(TOPOLOGIES)[-1]) == ("1", "patch")
            assert not [each for each in logs if "grant patch" in each["event"]]
            world.offer(document("2"))
            await world.clock.run(4)
        assert (world.available, world.api.verbs(TOPOLOGIES)[-1]) == ("2", "patch")


async def test_where_all_writes_are_forbidden_they_are_tried_once_a_minute_at_last():
    async with running() as world:
        world.api.refuse(TOPOLOGIES, "create", "patch", "replace")
        world.offer(document())
        await world.clock.run(45)
        assert world.conditions[-1].reason == "UpdateFailed"
        assert "403" in world.publisher.not_ready()
        assert world.api.verbs(TOPOLOGIES) == ["create"] * 4, "at 0, 2, 10 and 42 s"
        await world.clock.run(120)
        assert world.api.verbs(TOPOLOGIES) == ["create"] * 6
        world.api.allow()
        await world.clock.run(60)
        assert (world.available, world.conditions[-1].status) == ("3", "True")


async def test_conflicts_are_resolved_by_reading_again_three_times_in_a_row_at_most():
    async with running(publish=PublishSettings(patch_mode=False)) as world:
        world.offer(document())
        await world.clock.run(2)
        world.api.refuse(TOPOLOGIES, "replace", error=Conflict(409, reason="Conflict"))
        world.offer(document("1"))
        await world.clock.run(0.2)
        assert world.api.verbs(TOPOLOGIES).count("replace") == 3
        assert world.conditions[-1].status == "False"
        world.api.allow()
        await world.clock.run(10)
        assert world.available == "1"


async def test_after_a_failure_the_newest_result_is_sent():
    async with running() as world:
        world.api.refuse(TOPOLOGIES, "create", error=Unavailable(503))
        for available in "321":
            world.offer(document(available))
            await world.clock.run(20)
        world.api.allow()
        await world.clock.run(60)
        assert (world.available, world.counted.writes) == ("1", [("create", "periodic")])


@pytest.mark.parametrize(
    ("error", "failures", "seconds"),
    [
        (TopologyNotServed(404), 0, 30),
        (Forbidden(403), 0, 2),
        (Forbidden(403), 5, 60),
        (Invalid(422), 0, 60),
        (TooManyRequests(429, retry_after=7), 0, 7.5),
        (Unavailable(503), 0, 0.5),
        (Unavailable(503), 3, 4),
        (ConnectionFailed("reset"), 20, 30),
        (Conflict(409), 1, 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_how_long_a_failed_write_rests(error, failures, seconds):
    """With chance in the middle; 60 s is the most, plus what the server asked for."""
    assert retry_delay(error, failures, chance=lambda: 0.5) == seconds


async def test_a_stop_lets_the_write_in_flight_end():
    async with running() as world:
        ended = asyncio.Event()

        async def slow(verb, resource, name):
            if verb == "create":
                await ended.wait()

        world.api.hook = slow
        world.offer(document())
        await world.clock.run(0)
        world.task.cancel()
        await world.clock.run(0)
        assert not world.task.done()
        ended.set()
        await asyncio.gather(world.task, return_exceptions=True)
        assert world.available == "3"


async def test_an_error_of_the_api_that_nobody_foresaw_is_a_failed_write_like_others():
    async with running() as world:
        world.api.refuse(TOPOLOGIES, "create", error=ApiError(418, reason="Teapot"))
        world.offer(document())
        await world.clock.run(1)
        assert "Teapot" in world.conditions[-1].message
        world.api.allow()
        await world.clock.run(5)
        assert world.available == "3"
