"""When a pod that waits is given up, and when not yet: what can still be known constrains (PL-230, PL-306, PL-330)."""

from typing import Any

from polyarch.kube.controller import Result
from polyarch.kube.errors import ServerTimeout
from polyarch.placement import names
from polyarch.placement.gated import IN_LINE
from polyarch.placement.releases import Decided, Releases

NO_REFERENCE = "two words"
MINUTE = 60.0


def hold(limit: str | None = None) -> dict[str, Any]:
    return {"onUnresolved": {"action": "hold"} | ({"holdLimit": limit} if limit is not None else {})}


async def test_a_held_pod_whose_other_image_answered_at_once_is_looked_at_now_and_then(worlds):
    """PL-306, PL-334: it stood in line for a moment only, and nothing ends that would have to be seen."""
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
    await world.run(IN_LINE + MINUTE)
    assert len(passes) <= 10
    assert world.controller.held == 1
    assert world.api.is_gated(key)


async def test_an_image_that_cannot_be_asked_for_is_held_no_longer_than_the_limit(worlds):
    """PL-040, PL-230: no attempt is made for it, and its window runs all the same."""
    world = worlds(policy=hold("10m"))
    key = await world.create(NO_REFERENCE)
    await world.run(10 * MINUTE - 1)
    assert world.api.is_gated(key)
    await world.run(2)
    assert not world.api.is_gated(key)
    assert world.api.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


async def test_at_the_limit_of_holding_images_checked_long_ago_are_asked_for_once_more(worlds):
    """PL-230: what is known always constrains, and the check of a tag is good for ten minutes."""
    world = worlds(policy=hold("30m"))
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", "lost:1")
    await world.run(30 * MINUTE + 1)
    assert world.api.architectures(key) == ["arm64"]
    assert world.registry.count("app:1") == 2


async def test_an_image_that_does_not_answer_again_is_waited_for_as_long_as_one_in_line(worlds):
    """PL-230: not for ever."""
    world = worlds(policy=hold("30m"))
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", "lost:1")
    await world.run(30 * MINUTE - 1)
    world.registry.seconds = 24 * 60 * MINUTE
    await world.run(IN_LINE)
    assert world.api.is_gated(key)
    await world.run(2)
    assert not world.api.is_gated(key)
    assert world.api.architectures(key) is None


async def test_an_api_server_away_for_longer_than_a_tag_is_good_for_is_sent_nothing_less(world):
    """PL-230, PL-305: the pod waited for its image once, which answered; that it does so again is not awaited less."""
    world.registry.set("app:1", "linux/arm64")
    world.api.refuse = ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook")
    await world.create("app:1")
    await world.run(IN_LINE + MINUTE)
    assert len(world.api.patches) > 30
    assert all("arm64" in str(patch) for _, patch in world.api.patches)


async def test_an_end_that_comes_in_the_midst_of_a_pass_is_not_missed(world, monkeypatch):
    """PL-332: the pod is looked at two seconds after it was seen, and is failing two seconds after its first attempt;
    if the latter comes while that look decides that the pod waits, there still is an end to wait for."""
    keep, peek = Releases.keep, world.registry.peek

    async def a_moment_later(releases: Releases, decided: Decided, **times: Any) -> Result:
        world.clock.advance(0.01)
        return await keep(releases, decided, **times)

    def a_moment_before(*arguments: Any, **options: Any) -> Any:
        world.registry.peek = peek
        world.clock.advance(0.005)
        return peek(*arguments, **options)

    world.registry.set("app:1", error="network")
    world.registry.peek = a_moment_before
    key = await world.create("app:1")
    monkeypatch.setattr(Releases, "keep", a_moment_later)
    await world.run(3)
    assert world.api.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "1"
