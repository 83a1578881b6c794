"""When a pod that waits is given up, and when not yet: what can still be known constrains."""

from typing import Any

import pytest
from controller_world import ControllerWorld
from placement_world import failed, pod

from polyarch.images.fair_queue import MAX_CONCURRENT_PER_HOST
from polyarch.kube.controller import Result
from polyarch.kube.errors import ServerTimeout
from polyarch.oci.inspection import Inspection
from polyarch.oci.reference import Reference, parse
from polyarch.placement import names
from polyarch.placement.pod_state import QUEUED_TIMEOUT, REMEMBERED_REFUSALS
from polyarch.placement.release import DecisionContext, DecisionWriter

NO_REFERENCE = "two words"
MINUTE = 60.0


def hold(limit: str | None = None) -> dict[str, Any]:
    return {"onUnresolved": {"action": "hold"} | ({"holdLimit": limit} if limit is not None else {})}


SOME_HOLD = {"overrides": [{"name": "strict", "namespaceSelector": {"matchLabels": {"strict": "yes"}}} | hold()]}


def denied(reference: Reference) -> Inspection:
    return failed(reference, "denied", status=403)


async def waited(
    world: ControllerWorld, name: str, image: str = "registry.example/team/app:1", **options: Any
) -> float:
    """Seconds until a new pod of this image has no gate any more."""
    key = await world.create(image, name=name, **options)
    for seconds in range(200):
        if not world.cluster.is_gated(key):
            return seconds
        await world.run(1)
    raise AssertionError("it is held")


@pytest.mark.req("PL-330")
async def test_the_second_pod_of_a_denied_repository_waits_for_one_answer(worlds):
    """As of images that nodes pull by an identity of their own, which polyarch does not have; whatever the tag."""
    world = worlds()
    for image in ("team/app:1", "team/app:2", "team/other:1"):
        world.registry.images[f"registry.example/{image}"] = denied
    assert await waited(world, "first") >= 29
    assert await waited(world, "second") <= 6
    assert await waited(world, "third", "registry.example/team/app:2") <= 6
    assert await waited(world, "fourth", "registry.example/team/other:1") >= 29
    assert await waited(world, "fifth", "registry.example/team/other:1") <= 6


@pytest.mark.req("PL-336")
async def test_no_namespace_ends_the_window_of_another(worlds):
    """Both pods have no pull secrets, so they share the lookups of an image, and its credentials."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    for name in ("first", "second", "third"):
        await waited(world, name, namespace="hostile")
    assert await waited(world, "first", namespace="team") >= 29
    assert await waited(world, "second", namespace="team") <= 6


@pytest.mark.req("PL-330")
async def test_other_credentials_of_the_same_namespace_have_a_window_of_their_own(worlds):
    """A pod with a pull secret may be let in where one without is not."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    world.reader.put("team", "pull")
    assert await waited(world, "first") >= 29
    assert await waited(world, "with-secret", secrets=["pull"]) >= 29
    assert await waited(world, "with-secret-again", secrets=["pull"]) <= 8
    assert await waited(world, "second") <= 6


@pytest.mark.req("PL-330")
async def test_the_second_pod_of_a_denied_repository_is_held_at_once_where_the_policy_holds(worlds):
    world = worlds(policy=hold())
    world.registry.images["registry.example/team/app:1"] = denied
    await world.create("registry.example/team/app:1", name="first")
    await world.run(20)
    assert world.controller.held == 0
    await world.run(15)
    assert world.controller.held == 1
    await world.create("registry.example/team/app:1", name="second")
    await world.run(6)
    assert world.controller.held == 2


@pytest.mark.req("PL-330")
async def test_a_pod_waits_for_its_other_image_whatever_is_remembered_of_the_first(worlds):
    """Otherwise an image that is read a moment later would not constrain it."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    assert await waited(world, "first") >= 29
    world.registry.images["quay.io/slow:1"] = lambda reference: failed(reference, "timeout")
    key = await world.create("registry.example/team/app:1", "quay.io/slow:1", name="both")
    await world.run(12)
    assert world.cluster.is_gated(key)
    world.registry.set("quay.io/slow:1", "linux/arm64")
    await world.run(16)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-336")
async def test_no_namespace_prolongs_the_windows_of_another(worlds):
    """Neither by an answer of its own credentials, nor by many repositories that fill a memory."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    assert await waited(world, "first") >= 29
    for number in range(REMEMBERED_REFUSALS + 5):
        world.registry.images[f"registry.example/r{number}:1"] = denied
        await world.create(f"registry.example/r{number}:1", name=f"p{number}", namespace="hostile")
    await world.run(60)
    assert await waited(world, "second") <= 6


@pytest.mark.req("PL-330")
@pytest.mark.parametrize("end", ["an answer", "an hour", "other credentials for all", "other registries"])
async def test_a_refusal_is_forgotten_after(end, worlds):
    world = worlds()
    image = "registry.example/team/app:1"
    world.registry.images[image] = denied
    assert await waited(world, "first") >= 29
    match end:
        case "an answer":
            world.registry.set(image, "linux/arm64")
            assert await waited(world, "read") <= 6
            world.registry.images[image] = denied
            await world.run(700)  # the answer is no longer used
        case "an hour":
            await world.run(3601)
        case "other credentials for all":
            world.controller.credentials_changed()
        case "other registries":
            world.controller.registries_changed()
    assert await waited(world, "last") >= 29


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    ("code", "status"),
    [("not-found", 404), ("timeout", None), ("server-error", 503), ("credential-helper", 401)],
    ids=str,
)  # fmt: skip
async def test_only_refusals_of_the_registry_are_remembered(code, status, worlds):
    """What is not there yet may be pushed in the next moment, and an outage ends, that of a cloud's tokens, too."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = lambda reference: failed(reference, code, status=status)
    assert await waited(world, "first") >= 29
    assert await waited(world, "second") >= 29


@pytest.mark.req("PL-330")
async def test_a_refusal_that_nobody_waited_for_is_not_remembered(worlds):
    """A pod that goes at once for another image's sake has waited for nothing."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    world.registry.images["registry.example/broken:1"] = lambda reference: failed(reference, "malformed")
    key = await world.create("registry.example/team/app:1", "registry.example/broken:1", name="both")
    await world.run(10)
    assert not world.cluster.is_gated(key)
    assert await waited(world, "alone") >= 25


@pytest.mark.req("PL-330")
@pytest.mark.parametrize("code", ["timeout", "server-error", "credential-helper"])
async def test_a_refusal_at_the_end_of_a_wait_for_something_else_is_not_remembered(code, worlds):
    """Only refusals for a whole window count, whatever the pod has waited for before."""
    world = worlds()
    image = "registry.example/team/app:1"
    world.registry.images[image] = lambda reference: failed(reference, code)
    key = await world.create(image, name="first")
    await world.run(25 if code == "credential-helper" else 100)
    world.registry.images[image] = denied
    await world.run(30)
    assert not world.cluster.is_gated(key)
    assert await waited(world, "second") >= 20


@pytest.mark.req("PL-330")
async def test_each_image_counts_its_own_refusals(worlds):
    """One that is refused for the whole window is remembered, one refused only at its end is not."""
    world = worlds()
    world.registry.images["registry.example/team/app:1"] = denied
    world.registry.images["registry.example/late:1"] = lambda reference: failed(reference, "timeout")
    key = await world.create("registry.example/team/app:1", "registry.example/late:1", name="both")
    await world.run(10)
    world.registry.images["registry.example/late:1"] = denied
    await world.run(30)
    assert not world.cluster.is_gated(key)
    assert await waited(world, "known") <= 6
    assert await waited(world, "late", "registry.example/late:1") >= 20


@pytest.mark.req("PL-306", "PL-334")
async def test_a_held_pod_whose_other_image_answered_at_once_is_looked_at_now_and_then(worlds):
    """It stood in line for a moment only, and nothing ends that would have to be seen."""
    world = worlds(policy=hold())
    world.registry.set("app:1", "linux/arm64")
    passes, peek = [], world.registry.peek

    def counted(*arguments: Any, **options: Any) -> Any:
        passes.append(arguments)
        if len(passes) > 100:
            raise RuntimeError("it is looked at all the time")
        return peek(*arguments, **options)

    world.registry.peek = counted
    key = await world.create("app:1", NO_REFERENCE)
    await world.run(QUEUED_TIMEOUT + MINUTE)
    assert len(passes) <= 10
    assert world.controller.held == 1
    assert world.cluster.is_gated(key)


@pytest.mark.req("PL-040", "PL-230")
async def test_an_image_that_cannot_be_asked_for_is_held_no_longer_than_the_limit(worlds):
    """No attempt is made for it, and its window runs all the same."""
    world = worlds(policy=hold("10m"))
    key = await world.create(NO_REFERENCE)
    await world.run(10 * MINUTE - 1)
    assert world.cluster.is_gated(key)
    await world.run(2)
    assert not world.cluster.is_gated(key)
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


@pytest.mark.req("PL-230")
async def test_at_the_limit_of_holding_images_checked_long_ago_are_asked_for_once_more(worlds):
    """What is known always constrains, and the check of a tag is good for ten minutes."""
    world = worlds(policy=hold("30m"))
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", "lost:1")
    await world.run(30 * MINUTE + 1)
    assert world.cluster.architectures(key) == ["arm64"]
    assert world.registry.count("app:1") == 2


@pytest.mark.req("PL-230")
async def test_an_image_that_does_not_answer_again_is_waited_for_as_long_as_one_in_line(worlds):
    """Not for ever."""
    world = worlds(policy=hold("30m"))
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", "lost:1")
    await world.run(30 * MINUTE - 1)
    world.registry.seconds = 24 * 60 * MINUTE
    await world.run(QUEUED_TIMEOUT)
    assert world.cluster.is_gated(key)
    await world.run(2)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) is None


@pytest.mark.req("PL-230", "PL-305")
async def test_an_api_server_away_for_longer_than_a_tag_is_good_for_is_sent_nothing_less(world):
    """The pod waited for its image once, which answered; that it does so again is not awaited less."""
    world.registry.set("app:1", "linux/arm64")
    world.cluster.refuse(ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook"))
    await world.create("app:1")
    await world.run(QUEUED_TIMEOUT + MINUTE)
    assert len(world.api.patches) > 30
    assert all("arm64" in str(patch) for _, patch in world.api.patches)


@pytest.mark.req("PL-332")
async def test_an_end_that_comes_in_the_midst_of_a_pass_is_not_missed(world, monkeypatch):
    """The pod is looked at two seconds after it was seen, and is failing two seconds after its first attempt;
    if the latter comes while that look decides that the pod waits, there still is an end to wait for."""
    keep, peek = DecisionWriter.keep, world.registry.peek

    async def a_moment_later(releases: DecisionWriter, decided: DecisionContext, **times: Any) -> Result:
        world.clock.advance(0.01)
        return await keep(releases, decided, **times)

    def a_moment_before(*arguments: Any, **options: Any) -> Any:
        world.registry.peek = peek
        world.clock.advance(0.005)
        return peek(*arguments, **options)

    world.registry.set("app:1", error="network")
    world.registry.peek = a_moment_before
    key = await world.create("app:1")
    monkeypatch.setattr(DecisionWriter, "keep", a_moment_later)
    await world.run(3)
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "1"


# -- each image gets its attempt ---------------------------------------------------------------------------------------


def slowly(world: ControllerWorld, **seconds: float) -> None:
    """These images take so long to answer: ``slowly(world, app=3.0)``."""
    inspect = world.registry.inspect

    async def later(reference: Reference, **options: Any) -> Inspection:
        await world.clock.sleep(seconds.get(reference.repository.rpartition("/")[2], 0.0))
        return await inspect(reference, **options)

    world.registry.inspect = later  # type: ignore[method-assign]


@pytest.mark.req("PL-330")
@pytest.mark.parametrize(
    ("error", "seconds"), [("malformed", 3.0), ("not-found", 45.0), ("unauthorized", 45.0), ("network", 150.0)]
)
@pytest.mark.parametrize("images", [("lost:1", "app:1"), ("app:1", "lost:1")], ids=["lost first", "lost last"])
async def test_what_is_final_for_one_image_waits_for_the_first_answer_of_another(
    world, error: str, seconds: float, images: tuple[str, str]
):
    """Which registry answers first decides nothing; the pod gets what its other image supports."""
    world.registry.set("lost:1", error=error)
    world.registry.set("app:1", "linux/arm64")
    slowly(world, app=seconds)
    key = await world.create(*images)
    await world.run(seconds - 0.5)
    assert world.cluster.is_gated(key)
    await world.run(1)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) == ["arm64"]
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


@pytest.mark.req("PL-330")
async def test_an_invalid_reference_waits_for_an_image_in_line(world):
    """An image that was not even asked for has not failed."""
    for number in range(MAX_CONCURRENT_PER_HOST):
        world.cluster.create(pod(f"slow.example/slow:{number}", name=f"slow-{number}", gated=True))
    world.registry.set("slow.example/app:1", "linux/s390x")
    slowly(world, slow=60.0)
    await world.run(1)
    key = await world.create("slow.example/app:1", NO_REFERENCE)
    await world.run(50)
    assert world.registry.count("slow.example/app:1") == 0
    assert world.cluster.is_gated(key)
    await world.run(20)
    assert world.cluster.architectures(key) == ["s390x"]


@pytest.mark.req("PL-330")
async def test_nobody_is_given_up_because_of_what_failed_before_it_came(worlds):
    """A held pod keeps the failure of an image in memory; who comes later has the image asked for again."""
    world = worlds(policy=SOME_HOLD)
    await world.namespaces(strict={"strict": "yes"}, team={})
    world.registry.set("app:1", error="malformed")
    held = await world.create("app:1", namespace="strict")
    await world.run(1.5)
    assert world.controller.held == 1
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1")
    assert world.cluster.is_gated(key)
    await world.run(3)
    assert world.cluster.architectures(key) == world.cluster.architectures(held) == ["arm64"]


@pytest.mark.req("PL-330")
async def test_a_failure_like_the_one_before_is_one_for_who_came_after_it(worlds):
    """And is told at once to who waits for it, though it is no news to the others."""
    world = worlds(policy=SOME_HOLD)
    await world.namespaces(strict={"strict": "yes"}, team={})
    world.registry.set("app:1", error="malformed")
    await world.create("app:1", namespace="strict")
    await world.run(1.5)
    key = await world.create("app:1")
    await world.run(3)
    assert world.registry.count("app:1") == 3
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-330", "PL-331")
async def test_a_registry_that_asked_to_wait_has_failed_for_who_comes_meanwhile(world):
    """It will not be asked again within the window, and nobody waits for it for longer than that."""
    world.registry.images[parse("app:1").canonical] = lambda image: failed(image, "rate-limited", retry_after=3600.0)
    await world.create("app:1", name="first")
    await world.run(30)
    key = await world.create("app:1", name="second")
    await world.run(119)
    assert world.cluster.is_gated(key)
    await world.run(2)
    assert not world.cluster.is_gated(key)
    assert world.registry.count("app:1") == 1


@pytest.mark.req("PL-330", "PL-334")
async def test_a_pod_is_not_held_either_before_its_other_image_answered(worlds):
    """Nobody is told that a pod is held that its other image may show to be impossible."""
    world = worlds(policy=hold())
    world.registry.set("lost:1", error="malformed")
    world.registry.set("app:1", "linux/arm64")
    slowly(world, app=3.0)
    await world.create("lost:1", "app:1")
    await world.run(2.9)
    assert "PolyarchPodHeld" not in world.told.reasons
    await world.run(0.2)
    assert world.told.reasons.count("PolyarchPodHeld") == 1


@pytest.mark.req("PL-330")
async def test_an_attempt_that_never_ends_keeps_no_pod_for_ever(world):
    world.registry.set("lost:1", error="malformed")
    slowly(world, app=24 * 60 * MINUTE)
    key = await world.create("lost:1", "app:1")
    await world.run(QUEUED_TIMEOUT - 1)
    assert world.cluster.is_gated(key)
    await world.run(2)
    assert not world.cluster.is_gated(key)
