"""Images that fail, are slow or need credentials: when they are asked for, what becomes of pods."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from controller_world import ControllerWorld
from placement_world import failed, pod, resolved

from polyarch.images.fair_queue import CONCURRENT_LOOKUPS, MAX_CONCURRENT_PER_HOST, FairQueue
from polyarch.images.pull_secrets import PER_POD, PullSecretNames, document_of
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse
from polyarch.placement import names

MARKER = "m4rk3r"


# -- retrying ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-335")
async def test_an_outage_of_thirty_seconds_releases_nothing_unconstrained(world):
    world.registry.set("app:1", error="network")
    keys = [await world.create("app:1", name=f"app-{number}") for number in range(50)]
    await world.run(30)
    assert all(world.cluster.is_gated(key) for key in keys)
    asked = world.registry.count("app:1")
    assert asked <= 12
    world.registry.set("app:1", "linux/arm64")
    await world.run(20)
    assert {tuple(world.cluster.architectures(key)) for key in keys} == {("arm64",)}


@pytest.mark.req("PL-330", "PL-335")
@pytest.mark.parametrize(
    ("error", "earliest", "latest"),
    [
        ("not-found", 30, 40),
        ("unauthorized", 30, 40),
        ("refused-address", 30, 40),
        ("network", 120, 140),
        ("rate-limited", 120, 140),
        ("malformed", 0, 1),
    ],
)
async def test_the_window_depends_on_the_class_of_the_failure(world, error, earliest, latest):
    world.registry.set("app:1", error=error)
    key = await world.create("app:1")
    if earliest:
        await world.run(earliest - 0.5)
        assert world.cluster.is_gated(key)
        await world.run(latest - earliest + 0.5)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) is None
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


@pytest.mark.req("PL-330")
async def test_a_change_of_class_takes_the_new_window_counted_from_the_first_attempt(world):
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(60)
    assert world.cluster.is_gated(key)
    world.registry.set("app:1", error="not-found")
    await world.run(16)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-330")
async def test_the_window_is_each_pods_own_though_attempts_are_shared(world):
    world.registry.set("app:1", error="not-found")
    first = await world.create("app:1", name="first")
    await world.run(25)
    second = await world.create("app:1", name="second")
    await world.run(6)
    assert not world.cluster.is_gated(first)
    assert world.cluster.is_gated(second)
    await world.run(25)
    assert not world.cluster.is_gated(second)


@pytest.mark.req("PL-332", "PL-800")
async def test_a_broken_image_costs_two_patches_and_three_events(worlds):
    world = worlds(cppc={"fallbackArchitecture": "ppc64le"})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(1.9)
    assert world.patched(key) == 0
    await world.run(0.2)
    assert world.patched(key) == 1
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "1"
    assert "absent" in world.cluster.stored[key]["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]
    await world.run(40)
    assert world.patched(key) == 2
    assert world.told.reasons == [
        "ArchAwareInspectionError",
        "ArchAwareInspectionError",
        "ArchAwareFallbackPredicateSet",
    ]
    assert world.cluster.labels(key)[names.FALLBACK_ARCH_LABEL] == "ppc64le"
    assert world.cluster.architectures(key) == ["ppc64le"]


@pytest.mark.req("PL-331", "PL-403", "PL-900")
async def test_five_hundred_pods_of_one_cold_image_ask_once(world):
    world.registry.seconds = 1.0
    world.registry.set("app:1", "linux/amd64")
    for number in range(500):
        world.cluster.create(pod("app:1", name=f"app-{number}", gated=True))
    await world.run(2)
    assert world.registry.count("app:1") == 1
    assert len(world.api.patches) == 500


@pytest.mark.req("PL-750")
async def test_ten_thousand_waits_are_told_once_a_minute(world, capsys):
    world.registry.set("app:1", error="network")
    for number in range(30):
        await world.create("app:1", name=f"app-{number}")
    await world.run(59)
    assert capsys.readouterr().out.count("image cannot be resolved") == 1


@pytest.mark.req("PL-212")
async def test_an_image_that_is_never_pulled_is_asked_once_and_then_neutral(world):
    world.registry.set("local:1", error="not-found")
    world.registry.know("app:1", "linux/arm64")
    document = pod("app:1", "local:1", gated=True)
    document["spec"]["containers"][1]["imagePullPolicy"] = "Never"
    key = world.cluster.create(document)
    await world.run(1)
    assert world.cluster.architectures(key) == ["arm64"]
    assert world.registry.count("local:1") == 1


@pytest.mark.req("PL-210", "PL-404")
async def test_always_is_checked_after_the_pod_was_seen(world):
    world.registry.know("app:1", "linux/amd64", age=60)
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", pull="Always")
    assert world.registry.count("app:1") == 1
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-404")
async def test_a_digest_is_not_checked_again(world):
    image = "app@sha256:" + "a" * 64
    world.registry.know(image, "linux/amd64")
    key = await world.create(image, pull="Always")
    assert world.registry.asked == []
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-407")
async def test_an_old_reading_stands_in_while_the_registry_is_away(world):
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(0.1)
    assert world.cluster.architectures(key) == ["s390x"]
    assert json.loads(world.cluster.stored[key]["metadata"]["annotations"][names.DECISION_ANNOTATION])["stale"] is True


@pytest.mark.req("PL-407")
async def test_for_always_the_old_reading_counts_only_when_the_window_ends(world):
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1", pull="Always")
    await world.run(100)
    assert world.cluster.is_gated(key)
    await world.run(30)
    assert world.cluster.architectures(key) == ["s390x"]


@pytest.mark.req("PL-407")
async def test_a_reading_that_is_too_old_for_the_policy_does_not_stand_in(worlds):
    world = worlds(policy={"images": {"staleFor": "30m"}})
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(10)
    assert world.cluster.is_gated(key)


@pytest.mark.req("PL-217")
async def test_two_images_that_exclude_each_other_need_no_third(world):
    world.registry.know("one:1", "linux/amd64", kind="image")
    world.registry.know("two:1", "linux/arm64", kind="image")
    world.registry.set("three:1", error="network")
    key = await world.create("one:1", "two:1", "three:1")
    assert names.NO_SUPPORTED_ARCH_LABEL in world.cluster.labels(key)
    assert world.told.reasons == ["NoSupportedArchitecturesFound"]


@pytest.mark.req("PL-331")
async def test_answers_that_nobody_else_remembers_are_kept_until_the_others_are_there(world):
    """As with credentials of a plugin that allows no caching; the images do not take turns for ever."""
    Slow(world, 3.0, "slow-")
    for image in ("fast.example/app:1", "slow-0.example/app:1"):
        world.registry.needs_credentials.add(world.registry.set(image, "linux/arm64"))
        world.reader.put("team", image[:4], host=image.partition("/")[0])
    key = await world.create("fast.example/app:1", "slow-0.example/app:1", secrets=["fast", "slow"])
    await world.run(4)
    assert world.cluster.architectures(key) == ["arm64"]
    assert len(world.registry.asked) == 2
    assert len(list(world.waiting.lookups())) == 0


@pytest.mark.req("RG-046")
async def test_before_a_pod_is_impossible_its_indexes_are_looked_at_for_bundles(world):
    world.registry.set("bundle:1", "linux/amd64", "linux/s390x")
    neutral = Inspection(parse("bundle:1"), Status.NEUTRAL, kind="index", neutral_reason="operator-bundle")
    world.registry.bundles["docker.io/library/bundle:1"] = neutral
    world.registry.know("app:1", "linux/arm64", kind="image")
    key = await world.create("app:1", "bundle:1")
    await world.run(1)
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-331", "RG-046")
async def test_what_was_found_of_bundles_is_kept_until_the_others_are_looked_at(world):
    """Where nobody else remembers it, as above."""
    Slow(world, 3.0, "slow-")
    for image, platform in (("fast.example/app:1", "linux/arm64"), ("slow-0.example/app:1", "linux/amd64")):
        world.registry.needs_credentials.add(world.registry.set(image, platform))
        world.reader.put("team", image[:4], host=image.partition("/")[0])
    key = await world.create("fast.example/app:1", "slow-0.example/app:1", secrets=["fast", "slow"])
    await world.run(8)
    assert not world.cluster.is_gated(key)
    assert len(world.registry.asked) == 4


@pytest.mark.req("RG-046")
async def test_indexes_that_are_no_bundles_leave_the_pod_impossible(world):
    world.registry.know("one:1", "linux/amd64", "linux/s390x")
    world.registry.know("two:1", "linux/arm64", "linux/ppc64le")
    key = await world.create("one:1", "two:1")
    await world.run(1)
    assert names.NO_SUPPORTED_ARCH_LABEL in world.cluster.labels(key)
    assert world.registry.asked == ["docker.io/library/one:1", "docker.io/library/two:1"]


@pytest.mark.req("PL-331", "PL-424")
async def test_when_mirrors_or_certificates_change_what_failed_is_asked_for_at_once(world):
    """But not what a registry asked us to wait for."""
    world.registry.set("app:1", error="network")
    world.registry.set("quay.io/app:1", raises=lambda reference: failed(reference, "rate-limited", retry_after=100))
    key = await world.create("app:1", name="one")
    await world.create("quay.io/app:1", name="two")
    await world.run(16)
    world.registry.set("app:1", "linux/arm64")
    world.controller.registries_changed()
    await world.run(0.6)
    assert world.cluster.architectures(key) == ["arm64"]
    assert world.registry.count("quay.io/app:1") == 1


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-422")
async def test_public_images_that_are_known_cost_no_secret(world):
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", secrets=["pull"])
    assert not world.cluster.is_gated(key)
    assert world.reader.gets.total() == 0


@pytest.mark.req("PL-421", "PL-800")
async def test_a_secret_is_read_once_for_many_pods(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull")
    for number in range(20):
        await world.create("registry.example/app:1", name=f"app-{number}", secrets=["pull"])
    await world.run(5)
    assert not any(map(world.cluster.is_gated, world.cluster.stored))
    assert world.reader.gets["team", "pull"] == 1


@pytest.mark.req("PL-333")
async def test_a_secret_that_appears_is_seen_at_the_next_attempt(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    key = await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(4)
    assert world.cluster.is_gated(key)
    world.reader.put("team", "pull")
    await world.run(5)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-333")
async def test_a_secret_that_is_corrected_is_seen_at_the_next_attempt(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="other.example")
    key = await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(10)
    assert world.cluster.is_gated(key)
    world.reader.put("team", "pull", host="registry.example")
    await world.run(16)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-333")
async def test_a_changed_global_secret_is_used_at_once(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    key = await world.create("registry.example/app:1")
    await world.run(20)
    world.reader.put("ns", "global")
    document, _ = document_of(world.reader.content["ns", "global"], "ns/global")
    world.secrets.set_global([document])
    world.controller.credentials_changed()
    await world.run(1)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-331", "PL-852")
async def test_an_answer_is_shared_only_by_those_who_may_show_what_got_it(world):
    """Equal secrets share a look-up until one of them changes."""
    for namespace in ("team-a", "team-b"):
        world.reader.put(namespace, "pull", password="old")

    async def inspect(reference, *, credentials, **_):
        source = SimpleNamespace(host=reference.registry, repository=reference.repository)
        shown = {each.password for each in await credentials.candidates(reference, source)}
        return resolved(reference, "linux/amd64") if "new" in shown else failed(reference, "network")

    world.registry.inspect = inspect
    image = "registry.example/app:1"
    changed = await world.create(image, namespace="team-a", secrets=["pull"])
    same = await world.create(image, namespace="team-b", secrets=["pull"])
    world.reader.put("team-a", "pull", password="new")
    await world.secrets.get(PullSecretNames("team-a", ("pull",)), since=world.clock.monotonic() + 1)
    await world.run(20)
    assert world.cluster.architectures(changed) == ["amd64"]
    assert world.cluster.is_gated(same)


@pytest.mark.req("PL-334", "PL-423")
async def test_a_revoked_global_secret_is_shown_no_more_though_the_pods_own_was_read_long_ago(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.reader.put("ns", "global", password="global")
    world.reader.put("team", "pull", host="other.example")
    document, _ = document_of(world.reader.content["ns", "global"], "ns/global")
    world.secrets.set_global([document])
    shown: list[str] = []

    async def inspect(reference, *, credentials, **_):
        source = SimpleNamespace(host=reference.registry, repository=reference.repository)
        shown.extend(each.password for each in await credentials.candidates(reference, source))
        return failed(reference, "network")

    world.registry.inspect = inspect
    await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(1300)
    assert "global" in shown
    world.secrets.set_global([])
    shown.clear()
    await world.run(1300)
    assert shown
    assert "global" not in shown


@pytest.mark.req("PL-306")
async def test_a_bug_met_while_secrets_are_read_does_not_end_the_attempts_of_others(world):
    """What one pod's secret brings about is that pod's affair."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.registry.set("registry.example/other:1", "linux/amd64")
    broken = await world.create("registry.example/app:1", secrets=["pull"])
    world.reader.content["team", "pull"] = RuntimeError("bug")
    await world.run(40)
    other = await world.create("registry.example/other:1", name="other")
    await world.run(1)
    assert world.cluster.architectures(other) == ["amd64"]
    await world.run(130)
    assert not world.cluster.is_gated(broken)


@pytest.mark.req("PL-306")
async def test_a_bug_met_before_a_registry_is_asked_ends_with_the_retry_window(world):
    """As one met by the inspection does."""
    world.registry.set("app:1", "linux/amd64")
    world.secrets.get = bug
    key = await world.create("app:1")
    await world.run(10)
    assert world.cluster.is_gated(key)
    await world.run(130)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-306", "RG-046")
async def test_a_bug_met_while_it_is_asked_for_bundles_holds_nobody_for_ever(world):
    """No retry window ends that wait."""
    for image, platform in (("app:1", "linux/amd64"), ("other:1", "linux/arm64")):
        world.registry.set(image, platform)
        await world.create(image, name=image[:3])
    await world.run(2)
    world.secrets.get = bug
    key = await world.create("app:1", "other:1", name="late")
    await world.run(700)
    assert not world.cluster.is_gated(key)


async def bug(source, **_):
    raise RuntimeError("bug")


@pytest.mark.req("PL-422")
async def test_a_missing_secret_is_named_in_the_event_of_the_failure(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(3)
    (warning,) = world.told.warnings
    assert "pull secret team/pull does not exist" in warning.note


@pytest.mark.req("PL-850")
async def test_a_secret_is_in_no_event_label_annotation_or_log(world, capsys):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="other.example", password=MARKER)
    await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(60)
    texts = [repr(world.cluster.stored), repr(world.told.events), capsys.readouterr().out]
    texts.append(world.metrics.render()[0].decode())
    assert not any(MARKER in text for text in texts)


@pytest.mark.req("PL-333")
async def test_secrets_are_read_again_side_by_side(world):
    """One that the API server is slow to give would otherwise keep an attempt's place times thirty-two."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    teams = [f"team-{number}" for number in range(12)]
    for team in teams:
        world.reader.put(team, "pull", host="other.example")
        await world.create("registry.example/app:1", namespace=team, secrets=["pull"])
    await world.run(10)
    world.reader.gets.clear()
    world.reader.wait = asyncio.Event()
    await world.run(16)
    assert {team for team, _ in world.reader.gets} == set(teams), "none of these requests has been answered"
    world.reader.wait.set()
    for team in teams:
        world.reader.put(team, "pull", host="registry.example")
    await world.run(16)
    assert not any(map(world.cluster.is_gated, world.cluster.stored))


@pytest.mark.req("PL-422", "PL-854")
async def test_a_pod_that_names_very_many_secrets_is_told_that_not_all_are_read(world):
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    await world.create("registry.example/app:1", secrets=[f"pull-{number}" for number in range(2000)])
    await world.run(3)
    assert len(world.reader.gets) == PER_POD
    (warning,) = world.told.warnings
    assert "(only the first 32 pull secrets of the pod are read, 1968 more are not; " in warning.note


# -- standing in line --------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-403")
async def test_one_host_that_hangs_does_not_keep_the_others_waiting(world):
    hanging = [f"slow.example/app-{number}:1" for number in range(400)]

    def hang(reference):
        return failed(reference, "timeout")

    for image in hanging:
        world.registry.images[parse(image).canonical] = hang
    world.registry.set("quay.io/fast:1", "linux/amd64")
    original = world.registry.inspect

    async def inspect(reference, **options):
        if reference.registry == "slow.example":
            await world.clock.sleep(60)
        return await original(reference, **options)

    world.registry.inspect = inspect  # type: ignore[method-assign]
    for number, image in enumerate(hanging):
        world.cluster.create(pod(image, name=f"slow-{number}", gated=True))
    await world.run(1)
    fast = await world.create("quay.io/fast:1", name="fast")
    await world.run(1)
    assert not world.cluster.is_gated(fast)


@pytest.mark.req("PL-330")
async def test_a_pod_in_line_is_not_given_up_before_its_image_was_asked_for(world):
    """The window runs from the first attempt for the pod; a slow registry with many images is no failure."""
    original = world.registry.inspect

    async def inspect(reference, **options):
        await world.clock.sleep(55)
        return await original(reference, **options)

    world.registry.inspect = inspect
    for number in range(150):
        image = f"slow.example/app-{number}:1"
        world.registry.set(image, "linux/amd64")
        world.cluster.create(pod(image, name=f"slow-{number}", gated=True))
    await world.run(6 * 55)
    assert {tuple(world.cluster.architectures(key) or ()) for key in world.cluster.stored} == {("amd64",)}


@pytest.mark.req("PL-851")
async def test_a_namespace_that_names_many_hosts_that_hang_keeps_only_its_own_pods_waiting(world):
    """Twenty hosts, or ports, that never answer would otherwise take every place there is."""
    original = world.registry.inspect

    async def inspect(reference, **options):
        if reference.registry.startswith("slow-"):
            await world.clock.sleep(60)
        return await original(reference, **options)

    world.registry.inspect = inspect
    for number in range(400):
        image = f"slow-{number % 20}.example/app-{number}:1"
        world.registry.set(image, "linux/amd64")
        world.cluster.create(pod(image, name=f"slow-{number}", namespace="tenant", gated=True))
    await world.run(1)
    world.registry.set("quay.io/fast:1", "linux/amd64")
    fast = await world.create("quay.io/fast:1", name="fast")
    await world.run(1)
    assert not world.cluster.is_gated(fast)
    await world.run(7 * 60)
    assert not any(map(world.cluster.is_gated, world.cluster.stored)), "and its own turn comes"


class Slow:
    """A registry client of which an attempt at some hosts takes so many seconds."""

    def __init__(self, world: ControllerWorld, seconds: float, *hosts: str) -> None:
        self.under_way = 0
        self._answer = world.registry.inspect
        self._clock = world.clock
        self._seconds = seconds
        self._hosts = hosts
        world.registry.inspect = self  # type: ignore[method-assign, assignment]

    async def __call__(self, reference: Any, **options: Any) -> Any:
        if reference.registry.startswith(self._hosts):
            self.under_way += 1
            await self._clock.sleep(self._seconds)
            self.under_way -= 1
        return await self._answer(reference, **options)


def flood(world: ControllerWorld, namespace: str, count: int, hosts: int = 1) -> None:
    for number in range(count):
        image = f"slow-{number % hosts}.example/{namespace}-{number}:1"
        world.registry.set(image, "linux/amd64")
        world.cluster.create(pod(image, name=f"flood-{number}", namespace=namespace, gated=True))


@pytest.mark.req("PL-851")
async def test_a_namespace_with_ten_thousand_slow_images_delays_another_by_one_attempt_at_most(world):
    """All places at the host are taken, and of ten thousand and one look-ups in line the last one is next."""
    Slow(world, 10.0, "slow-")
    flood(world, "greedy", 10_000)
    await world.run(5)
    world.registry.set("slow-0.example/mine:1", "linux/arm64")
    mine = await world.create("slow-0.example/mine:1", name="mine", namespace="modest")
    await world.run(5 + 10 + 0.1)
    assert world.cluster.architectures(mine) == ["arm64"]
    assert len(world.waiting) >= 9_900, "the others still wait"


@pytest.mark.req("PL-851")
async def test_namespaces_take_turns_however_many_images_they_name(world):
    Slow(world, 10.0, "slow-")
    flood(world, "greedy", 500)
    for namespace in ("one", "two", "three"):
        flood(world, namespace, 8)
    await world.run(20.1)
    placed = Counter(key.namespace for key in world.cluster.stored if not world.cluster.is_gated(key))
    assert placed["one"] == placed["two"] == placed["three"] == 8
    assert placed["greedy"] == 2 * MAX_CONCURRENT_PER_HOST, "it has its share as well"


@pytest.mark.req("PL-851")
async def test_some_greedy_namespaces_leave_places_for_others(world):
    """Sixty-four each would be all there are, and theirs are taken for a minute at a time."""
    slow = Slow(world, 60.0, "slow-")
    for number in range(8):
        flood(world, f"greedy-{number}", 100, hosts=20)
    await world.run(1)
    assert slow.under_way > 200
    world.registry.set("quay.io/fast:1", "linux/amd64")
    fast = await world.create("quay.io/fast:1", name="fast")
    await world.run(0.1)
    assert not world.cluster.is_gated(fast)


@pytest.mark.req("PL-403", "PL-851")
async def test_an_image_that_a_greedy_namespace_named_first_is_not_kept_from_the_others(world):
    """It stands in line for each that waits for it."""
    Slow(world, 60.0, "slow-")
    flood(world, "greedy", 300, hosts=20)
    world.registry.set("quay.io/shared:1", "linux/arm64")
    await world.create("quay.io/shared:1", name="shared", namespace="greedy")
    await world.run(1)
    tenants: list[str] = []
    answer = world.registry.inspect

    async def inspect(reference: Any, *, tenant: str, **options: Any) -> Any:
        tenants.append(tenant)
        return await answer(reference, **options)

    world.registry.inspect = inspect
    mine = await world.create("quay.io/shared:1", name="mine", namespace="modest")
    await world.run(0.1)
    assert world.cluster.architectures(mine) == ["arm64"]
    assert tenants == ["modest"], "and it is asked for in the name of who had the turn"


@pytest.mark.req("RG-118")
async def test_a_namespace_at_its_limit_fails_nobody_else_s_pods(world):
    """Whose turn it is asks for all; what it may not do then, another asks for in its own turn."""
    answer = world.registry.inspect

    async def inspect(reference: Any, *, tenant: str, **options: Any) -> Any:
        return failed(reference, "tenant-limit") if tenant == "greedy" else await answer(reference, **options)

    world.registry.inspect = inspect
    world.registry.set("quay.io/shared:1", "linux/arm64")
    await world.create("quay.io/shared:1", name="shared", namespace="greedy")
    mine = await world.create("quay.io/shared:1", name="mine", namespace="modest")
    await world.run(0.9)
    assert world.cluster.architectures(mine) == ["arm64"]


@pytest.mark.req("PL-335", "RG-118")
async def test_a_namespace_at_its_limit_waits_like_for_a_rate_limit(world):
    image = world.registry.set("quay.io/own:1", error="tenant-limit")
    mine = await world.create("quay.io/own:1", namespace="greedy")
    await world.run(5)
    assert world.cluster.is_gated(mine)
    assert 2 <= world.registry.count(image) <= 5


@pytest.mark.req("PL-851")
async def test_who_has_left_the_line_takes_nobody_s_turn(world):
    """Pods that were deleted meanwhile."""
    Slow(world, 10.0, "slow-")
    flood(world, "greedy", 1000)
    await world.run(1)
    for key in [key for key in world.cluster.stored if key.namespace == "greedy"]:
        world.cluster.delete(key)
    flood(world, "modest", 32)
    await world.run(9.1 + 10.1)
    assert not any(map(world.cluster.is_gated, world.cluster.stored))
    assert len(world.waiting) == 0


@pytest.mark.req("PL-851", "PL-854")
async def test_look_ups_that_nobody_waits_for_stand_in_no_line(world):
    """Pods that are made and deleted while the host of their images hangs."""
    Slow(world, 60.0, "slow-")
    flood(world, "greedy", 200)
    await world.run(1)
    for key in [key for key in world.cluster.stored if key.namespace == "greedy"]:
        world.cluster.delete(key)
    await world.run(1)
    assert len(list(world.waiting.lookups())) == 32, "those that are asked for right now"
    assert world.attempts.queued == 0


@pytest.mark.req("PL-801")
async def test_a_thousand_look_ups_that_become_due_together_are_lined_up_before_one_is_begun(world, monkeypatch):
    """As after a take-over; to ask who is next costs a look at every namespace."""
    asked = Counter[str]()
    ask = FairQueue.next

    def counted(turns: FairQueue, *conditions: Any, **more: Any) -> Any:
        asked["next"] += 1
        return ask(turns, *conditions, **more)

    monkeypatch.setattr(FairQueue, "next", counted)
    Slow(world, 60.0, "slow-")
    await world.run(1)
    for number in range(100):
        flood(world, f"team-{number}", 10)
    await world.run(1)
    begun = 1000 - world.attempts.queued
    assert begun >= 100 * CONCURRENT_LOOKUPS.minimum
    assert asked["next"] <= begun + 50
