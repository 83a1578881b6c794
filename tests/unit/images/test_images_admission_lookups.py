"""What admissions begin goes on within bounds, however many hosts hang."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets, failed, placement_metrics, resolved, value

from polyarch.images.fair_queue import CONCURRENT_LOOKUPS, MAX_CONCURRENT_PER_HOST
from polyarch.images.pull_secrets import PullSecretNames, PullSecrets
from polyarch.images.resolver import NEVER, QUEUED_LOOKUPS, AdmissionLookups
from polyarch.oci.inspection import Inspection
from polyarch.oci.reference import Reference, parse


class AdmissionLookupWorld:
    """A webhook's look-ups, registries that take a while, and secrets."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=1000)
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.metrics, placement = placement_metrics()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.lookups = AdmissionLookups(self.registry, self.secrets, self.clock, placement.lookups)

    def ask(self, image: str, *names: str, namespace: str = "team", not_before: float = NEVER):
        return self.lookups.inspect(parse(image), PullSecretNames(namespace, names), not_before=not_before)

    @property
    def dropped(self) -> float:
        return value(self.metrics, "polyarch_placement_lookups_dropped_total")


@pytest.fixture
async def world() -> AsyncIterator[AdmissionLookupWorld]:
    world = AdmissionLookupWorld()
    yield world
    await world.lookups.close()
    await world.secrets.aclose()


def flood(world: AdmissionLookupWorld, namespaces: int, each: int) -> int:
    """Every image is on a host of its own, and none answers; how many were not asked for."""
    return [
        world.ask(f"hangs-{namespace}-{at}.example/app:1", namespace=f"team-{namespace}")
        for at in range(each)
        for namespace in range(namespaces)
    ].count(None)


@pytest.mark.req("PL-810", "PL-854")
async def test_ten_thousand_hanging_hosts_take_no_more_than_their_bound(world):
    """Before, each of them was a task, a connection and a few KiB for half a minute or longer."""
    world.registry.seconds = 3600.0
    tracemalloc.start()
    try:
        refused = flood(world, 100, 100)
        await world.clock.settle()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert world.registry.under_way <= CONCURRENT_LOOKUPS.maximum
    assert world.lookups.queued <= QUEUED_LOOKUPS.maximum
    assert refused == world.dropped >= 10_000 - CONCURRENT_LOOKUPS.maximum - QUEUED_LOOKUPS.maximum
    assert len(asyncio.all_tasks()) <= 2 * CONCURRENT_LOOKUPS.maximum + 1, "with a timer each"
    assert kept < 24 * 2**20


@pytest.mark.req("PL-851")
async def test_a_namespace_that_names_hanging_hosts_leaves_room_for_the_others(world):
    """Neither the places nor the line are for one alone."""
    world.registry.seconds = 3600.0
    assert flood(world, 1, 10_000) == world.dropped > 0
    await world.clock.settle()
    world.registry.seconds = 0.01
    world.registry.set("good.example/app:1", "linux/arm64")
    answer = world.ask("good.example/app:1", namespace="modest")
    assert answer is not None
    await world.clock.run(0.01)
    assert answer.result().status == "resolved"


@pytest.mark.req("PL-113")
async def test_what_stood_in_line_for_half_a_minute_is_forgotten(world):
    """No admission waits for it any more, and those that come find room again."""
    world.registry.seconds = 3600.0
    flood(world, 20, 500)
    await world.clock.settle()
    assert world.lookups.queued >= QUEUED_LOOKUPS.shared
    assert world.ask("late.example/app:1", namespace="team-1") is None
    await world.clock.run(30)
    answer = world.ask("late.example/app:1", namespace="team-1")
    assert answer is not None
    assert world.lookups.queued <= 1
    await world.clock.run(60)
    assert world.registry.under_way == 0, "those under way end after half a minute, too"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.req("PL-851")
async def test_a_host_that_hangs_takes_no_more_of_a_namespace_than_its_limit(world):
    world.registry.seconds = 3600.0
    for at in range(200):
        world.ask(f"hangs.example:{5000 + at}/app:1")
    await world.clock.settle()
    assert world.registry.under_way == MAX_CONCURRENT_PER_HOST


@pytest.mark.req("PL-851")
@pytest.mark.parametrize("hostile", [1, 8, 60])
async def test_hostile_namespaces_neither_delay_nor_drop_anothers_look_ups(world, hostile):
    """However many hosts of theirs hang, and even where they hang at the host of the other."""
    world.registry.seconds = 3600.0
    flood(world, hostile, 400)
    for namespace in range(hostile):
        for at in range(50):
            world.ask(f"good.example/hangs-{namespace}-{at}:1", namespace=f"team-{namespace}")
    await world.clock.settle()
    world.registry.seconds = 0.01
    dropped = world.dropped
    answers = []
    for at in range(50):
        world.registry.set(f"good.example/app{at}:1", "linux/arm64")
        answers.append(world.ask(f"good.example/app{at}:1", namespace="modest"))
    await world.clock.run(0.01 * 50 / CONCURRENT_LOOKUPS.minimum + 0.02)
    assert {answer.result().status for answer in answers} == {"resolved"}
    assert world.dropped == dropped


@pytest.mark.req("PL-403")
async def test_pods_without_secrets_of_their_own_share_a_look_up_wherever_they_are(world):
    world.registry.seconds = 0.05
    world.registry.set("app:1", "linux/arm64")
    answers = [world.ask("app:1", namespace=f"team-{at}") for at in range(50)]
    await world.clock.run(0.05)
    assert {answer.result().status for answer in answers} == {"resolved"}
    assert world.registry.count("app:1") == 1


@pytest.mark.req("PL-112")
async def test_who_wants_a_later_check_of_a_tag_shares_the_next_one(world):
    """A burst of pods with ``imagePullPolicy: Always``."""
    world.registry.seconds = 0.05
    world.registry.set("app:1", "linux/arm64")
    first = world.ask("app:1", not_before=world.clock.monotonic())
    await world.clock.run(0.02)
    later = [world.ask("app:1", not_before=world.clock.monotonic()) for _ in range(10)]
    asked_at = world.clock.monotonic()
    anybody = world.ask("app:1")
    await world.clock.run(0.03)
    assert first.done()
    assert anybody.done(), "any check is good enough for it"
    assert not any(answer.done() for answer in later)
    await world.clock.run(0.05)
    assert all(answer.result().checked_at >= asked_at for answer in later)
    assert world.registry.count("app:1") == 2


@pytest.mark.req("PL-421")
async def test_a_secret_that_was_replaced_is_read_again_when_a_registry_refuses(world):
    """Before, pods of that secret took the gate until the webhook's copy was ten minutes old."""
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="private.example", password="old")
    await world.secrets.get(PullSecretNames("team", ("pull",)))
    world.clock.advance(60)
    world.reader.put("team", "pull", host="private.example", password="new")
    world.registry.accepts[image] = "new"
    answer = world.ask("private.example/app:1", "pull")
    await world.clock.settle()
    assert answer.result().status == "resolved"
    assert world.reader.gets["team", "pull"] == 2
    assert world.registry.count("private.example/app:1") == 2


@pytest.mark.req("PL-421")
@pytest.mark.parametrize("names", [(), ("pull",)], ids=["no secrets", "the same secret"])
async def test_a_refusal_is_asked_about_once_if_no_secret_changed(world, names):
    image = world.registry.set("private.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(image)
    world.registry.accepts[image] = "another"
    world.reader.put("team", "pull", host="private.example", password="old")
    await world.secrets.get(PullSecretNames("team", names))
    world.clock.advance(60)
    answer = world.ask("private.example/app:1", *names)
    await world.clock.settle()
    assert answer.result().error.error_class == "auth"
    assert world.registry.count("private.example/app:1") == 1
    assert world.reader.gets["team", "pull"] == 2 * len(names)


@pytest.mark.req("PL-113")
async def test_a_failure_is_remembered_for_half_a_minute(world):
    world.registry.set("app:1", error="network")
    world.ask("app:1")
    await world.clock.settle()
    reference, source = parse("app:1"), PullSecretNames("another", ())
    assert world.lookups.recent_failure(reference, source).error.code == "network"
    assert world.lookups.recent_failure(reference, PullSecretNames("another", ("pull",))) is None
    world.clock.advance(30)
    assert world.lookups.recent_failure(reference, source) is None


@pytest.mark.req("RG-118")
async def test_that_one_namespace_is_at_its_limit_is_no_failure_for_another(world):
    world.registry.set("app:1", error="tenant-limit")
    asked = world.ask("app:1", namespace="greedy"), world.ask("app:1", namespace="modest")
    await world.clock.settle()
    assert [each.result() for each in asked] == [None, None]
    assert world.lookups.recent_failure(parse("app:1"), PullSecretNames("modest", ())) is None
    world.registry.set("app:1", "linux/arm64")
    asked = world.ask("app:1", namespace="modest")
    await world.clock.settle()
    assert asked.result().platforms


@pytest.mark.req("PL-810", "PL-854")
async def test_what_is_remembered_of_failures_is_bounded_in_bytes(world):
    """Registries choose how long their words and their indexes are, pods how many names there are."""
    platforms = [f"linux/arm/v{number}" for number in range(500)]

    def fails(reference: Reference) -> Inspection:
        error = failed(reference, "server-error")
        good = resolved(reference, *platforms, checked_at=world.clock.monotonic())
        told = msgspec.structs.replace(error.error, message="x" * 10_000)
        return msgspec.structs.replace(error, error=told, last_good=good, last_good_age=1.0)

    tracemalloc.start()
    try:
        for number in range(60):
            image = f"registry-{number}.example/app:1"
            world.registry.images[parse(image).canonical] = fails
            world.ask(image, *(f"{at}-" + "n" * 240 for at in range(30)))
            await world.clock.settle()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 8 * 2**20
