"""Who does not lead helps without getting in the way, and takes over at once."""

import pytest
from controller_world import is_labelled
from fake_pods import FakePods
from placement_world import pod, refused_by_validation, value


@pytest.mark.req("PL-530")
async def test_a_standby_places_what_the_leader_leaves_after_a_second_and_tells_nothing(worlds):
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(1.4)
    assert world.cluster.is_gated(key)
    await world.run(0.7)
    assert world.cluster.architectures(key) == ["amd64"]
    assert world.told.events == []


@pytest.mark.req("PL-530")
async def test_a_standby_neither_gives_up_nor_labels_nor_holds(worlds):
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    world.registry.know("other:1", "linux/amd64")
    keys = [await world.create("app:1", name="a"), await world.create("other:1", "app:1", name="b")]
    await world.run(300)
    assert all(map(world.cluster.is_gated, keys))
    assert world.api.patches == []


@pytest.mark.req("PL-530")
async def test_a_new_leader_takes_over_what_waits(worlds):
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(300)
    world.leading = True
    world.controller.started_leading()
    await world.run(2)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-301", "PL-331", "PL-530")
async def test_a_standby_asks_once_for_what_does_not_exist_and_insists_as_a_leader(worlds):
    """The leader repeats the attempts, and the end of the waiting is the leader's to write."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1", name="a")
    await world.run(30)
    await world.create("app:1", name="b")
    await world.run(60)
    assert world.registry.count("app:1") == 1
    world.leading = True
    world.controller.started_leading()
    await world.run(0.4)
    assert world.cluster.is_gated(key), "nobody gives up because of what somebody saw a minute ago"
    await world.run(0.2)
    assert world.registry.count("app:1") == 2
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-301", "PL-330")
async def test_a_new_leader_gives_nobody_up_because_of_what_was_unusable_before(worlds):
    """What is final at once is so when it has been seen again."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="malformed")
    key = await world.create("app:1")
    await world.run(60)
    world.registry.set("app:1", "linux/arm64")
    world.leading = True
    world.controller.started_leading()
    await world.run(2.0)
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-301", "PL-306")
async def test_a_new_leader_looks_at_its_pods_again_when_their_image_has_answered_and_not_all_the_time(worlds):
    """With ten thousand pods a look at each every second is all that a process can do."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    keys = [await world.create("app:1", name=f"app-{number}") for number in range(20)]
    await world.run(60)
    passes = value(world.metrics, "mto_ppo_ctrl_time_to_process_pod_seconds_count")
    world.registry.seconds = 50.0
    world.leading = True
    world.controller.started_leading()
    await world.run(50)
    assert all(map(world.cluster.is_gated, keys))
    assert value(world.metrics, "mto_ppo_ctrl_time_to_process_pod_seconds_count") - passes <= 3 * len(keys)
    await world.run(1)
    assert not any(map(world.cluster.is_gated, keys))


@pytest.mark.req("PL-301", "PL-330")
async def test_a_new_leader_waits_for_an_image_that_never_answers_as_long_as_for_one_in_line(worlds):
    """And not for ever."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(60)
    world.registry.seconds = 3600.0
    world.leading = True
    world.controller.started_leading()
    await world.run(590)
    assert world.cluster.is_gated(key)
    await world.run(20)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-301", "PL-530")
async def test_a_new_leader_places_what_appeared_while_nobody_led(worlds):
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(60)
    world.registry.set("app:1", "linux/arm64")
    world.leading = True
    world.controller.started_leading()
    await world.run(2.0)
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-530", "PL-811")
async def test_a_standby_repeats_attempts_that_fail_for_passing_reasons(worlds):
    """Whoever of the two reaches the registry first places the pods."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(20)
    assert world.registry.count("app:1") > 2
    world.registry.set("app:1", "linux/amd64")
    await world.run(20)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-530")
async def test_a_standby_that_waited_for_an_image_lets_the_leader_write(worlds):
    """Both have the answer at the same moment, and few of their PATCHes shall meet."""
    world = worlds(leading=False)
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(1.5 + 3.0 + 0.7)
    assert world.registry.count("app:1") == 1
    assert world.cluster.is_gated(key)
    await world.run(0.1)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-530")
async def test_a_standby_leaves_pods_to_a_leader_that_is_busy_releasing_others(worlds):
    """At most 1 % more PATCHes; and who is gated for long is helped all the same."""
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    others = [await world.create("app:1", name=f"other-{number}") for number in range(10)]
    await world.run(0.9)
    key = await world.create("app:1", name="mine")
    for other in others:
        world.cluster.delete(other)
        await world.run(0.35)
    assert world.cluster.is_gated(key)
    await world.run(1.1)
    assert world.cluster.architectures(key) == ["amd64"]

    late = await world.create("app:1", name="late")
    for number in range(14):
        other = await world.create("app:1", name=f"more-{number}")
        world.cluster.delete(other)
        await world.run(0.35)
    assert world.cluster.is_gated(late)
    world.cluster.delete(await world.create("app:1", name="last"))
    await world.run(0.2)
    assert world.cluster.architectures(late) == ["amd64"], "after 5 s"


@pytest.mark.req("PL-305", "PL-530")
async def test_a_standby_that_is_refused_leaves_insisting_to_the_leader(worlds):
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    await world.create("app:1")
    await world.run(60)
    assert len(world.api.patches) == 1
    assert world.told.events == []


@pytest.mark.req("PL-305", "PL-530")
async def test_a_standby_that_is_refused_for_long_does_not_leave_the_affinity_out(worlds):
    """That is giving up, which is the leader's."""
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    key = await world.create("app:1")
    await world.run(300)
    world.api.allow()
    await world.run(120)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-530")
async def test_of_leader_and_standby_only_one_patch_wins(worlds):
    cluster = FakePods(shows=is_labelled)
    leader = worlds(cluster=cluster)
    standby = worlds(leading=False, cluster=cluster)
    cluster.on_event = lambda key: (leader.pods.add(key), standby.pods.add(key))  # type: ignore[func-returns-value]
    for world in (leader, standby):
        world.registry.know("app:1", "linux/amd64")
    key = cluster.create(pod("app:1", gated=True))
    await leader.run(5)
    await standby.run(5)
    assert cluster.architectures(key) == ["amd64"]
    assert len(cluster.patched) == 1
