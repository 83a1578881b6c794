"""What the API server says to a PATCH, and what is told of it."""

import json

import pytest
from placement_world import FakeMutator, pod, refused_by_validation, value

from polyarch.images.pod_mutation import MutationContext, PodMutation
from polyarch.kube.errors import NO_FIT, Conflict, ConnectionFailed, Forbidden, Invalid, ServerTimeout
from polyarch.kube.patches import Operation
from polyarch.kube.resources import PODS
from polyarch.objects import ObjectKey
from polyarch.placement import names
from polyarch.placement.controller import LIST_INTERVAL

# -- pods that moved on ------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-304")
@pytest.mark.parametrize("change", ["moved on", "deleted"])
async def test_a_pod_that_moved_on_is_no_failure_and_its_event_brings_it_back(world, change):
    world.registry.know("app:1", "linux/amd64")
    key = world.cluster.create(pod("app:1", gated=True))
    if change == "moved on":
        world.cluster.change(key, annotations={"somebody": "else"})
    else:
        del world.api.objects[PODS, *key]
    await world.run(29)
    assert world.patched(key) == 1, "at most one PATCH from one version"
    assert world.told.events == []
    assert value(world.metrics, "polyarch_placement_patch_conflicts_total") == 1
    world.cluster.tell(key)
    await world.run()
    if change == "moved on":
        assert world.cluster.architectures(key) == ["amd64"]
        assert world.cluster.stored[key]["metadata"]["annotations"]["somebody"] == "else"


@pytest.mark.req("PL-304", "PL-332", "PL-334")
@pytest.mark.parametrize(("action", "until", "count"), [("release", 1.9, "1"), ("hold", 4.9, "5")])
async def test_a_pod_that_moved_on_when_it_was_to_be_labelled_is_labelled_after_its_event(worlds, action, until, count):
    """The scheduler writes that it is gated, and our cache has not heard of it yet."""
    world = worlds(policy={"onUnresolved": {"action": action, "retryWindow": "5s"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(until)
    world.cluster.change(key, annotations={"somebody": "else"})
    told = len(world.told.events)
    await world.run(0.2)
    assert world.cluster.labels(key).get(names.IMAGE_INSPECT_ERROR_COUNT_LABEL) != count
    assert len(world.told.events) == told, "nothing is told that was not written"
    world.cluster.tell(key)
    await world.run()
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == count
    assert len(world.told.events) > told


@pytest.mark.req("PL-334")
async def test_a_held_pod_is_labelled_when_the_api_server_answers_again(worlds):
    """Existing tooling waits for the label, and no event of the pod brings it back."""
    world = worlds(policy={"onUnresolved": {"action": "hold", "retryWindow": "5s"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(4)
    world.cluster.refuse(ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook"))
    await world.run(60)
    world.api.allow()
    await world.run(20)
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"
    assert world.told.reasons.count("PolyarchPodHeld") == 1


@pytest.mark.req("PL-304", "PL-306")
async def test_a_process_that_stood_still_has_not_waited_for_the_event(world):
    """After 40 s of SIGSTOP the event is still to be read, and nobody has made a mistake."""
    world.registry.know("app:1", "linux/amd64")
    key = world.cluster.create(pod("app:1", gated=True))
    world.cluster.change(key, annotations={"somebody": "else"})
    await world.run(1)
    assert world.patched(key) == 1
    world.clock.advance(40)
    await world.run(1)
    world.cluster.tell(key)
    await world.run()
    assert world.cluster.architectures(key) == ["amd64"]
    assert value(world.metrics, "polyarch_internal_errors_total") == 0


@pytest.mark.req("PL-305")
async def test_a_pod_that_stays_gated_for_want_of_an_answer_is_in_the_log(world, capsys):
    """Some webhook of the cluster may make the API server answer 500 for hours."""
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook"))
    await world.create("app:1")
    await world.run(200)
    assert world.cluster.is_gated(ObjectKey("team", "app"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "no answer to the release of a pod" in line]
    assert len(lines) == 1
    assert "failed calling webhook" in lines[0]


@pytest.mark.req("PL-306")
async def test_a_patch_that_does_not_fit_an_unchanged_pod_is_a_bug_of_ours_and_bounded(world):
    """Neither written again and again nor waited for in vain."""
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(Invalid(422, reason="Invalid", message=NO_FIT))
    key = await world.create("app:1")
    await world.run(LIST_INTERVAL + 5)  # nothing tells of a stray before
    assert world.patched(key) == 1
    await world.run(60)
    assert 2 <= world.patched(key) <= 4
    assert value(world.metrics, "polyarch_internal_errors_total") >= 1
    world.api.allow()
    await world.run(60)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-304")
async def test_a_cache_that_lags_behind_causes_no_second_patch(world):
    world.registry.know("app:1", "linux/amd64")
    key = world.cluster.create(pod("app:1", gated=True))
    world.api.holds_back = True
    for _ in range(5):
        world.pods.add(key)
        await world.run(1)
    assert world.patched(key) == 1


@pytest.mark.req("PL-304", "PL-306")
async def test_a_conflict_that_no_event_follows_is_tried_again(world):
    """HTTP 409 says nothing against the PATCH, whose tests keep it from being doubled."""
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(Conflict(409, reason="Conflict", message="try again"))
    key = await world.create("app:1")
    await world.run(4.9)
    assert world.patched(key) == 1
    world.api.allow()
    await world.run(0.2)
    assert world.cluster.architectures(key) == ["amd64"]
    assert value(world.metrics, "polyarch_internal_errors_total") == 0


def refuse_affinity(api):
    """Some policy of the cluster refuses node affinity, and nothing else."""
    patch = api.patch

    async def judged(resource, name, change, **where):
        if any(operation.path.startswith("/spec/affinity") for operation in change.operations):
            raise refused_by_validation()
        return await patch(resource, name, change, **where)

    api.patch = judged


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-305")
@pytest.mark.parametrize(
    "refusal",
    [Forbidden(403, reason="Forbidden", message="cannot patch"), refused_by_validation()],
    ids=["forbidden", "validation"],
)
async def test_a_refusal_is_told_and_after_the_window_the_affinity_is_left_out(worlds, refusal):
    world = worlds(policy={"onUnresolved": {"retryWindow": "60s"}})
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refusal)
    key = await world.create("app:1")
    assert world.told.reasons == ["ArchAwareSchedGateRemovalFailed"]
    assert refusal.message in world.told.events[0][1].note
    await world.run(59)
    assert world.patched(key) <= 7, "backoff 1, 2, 4 … 60 s"
    await world.run(40)
    *_, (_, last) = world.api.patches
    assert not any(operation.path.startswith("/spec/affinity") for operation in last.operations)
    world.api.allow()
    await world.run(61)
    assert not world.cluster.is_gated(key)
    decision = json.loads(world.cluster.stored[key]["metadata"]["annotations"][names.DECISION_ANNOTATION])
    assert decision["reason"] == "ReleasedUnconstrained"
    assert world.told.reasons.count("ArchAwareSchedGateRemovalFailed") == 1


@pytest.mark.req("PL-305")
async def test_a_refusal_is_told_again_every_five_minutes(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    await world.create("app:1")
    await world.run(700)
    assert world.told.reasons.count("ArchAwareSchedGateRemovalFailed") == 3
    assert world.controller.held == 1


@pytest.mark.req("PL-305", "PL-334")
@pytest.mark.parametrize("action", ["hold", "fallback"])
async def test_a_pod_whose_release_is_refused_for_long_counts_as_held_and_that_is_told(worlds, action):
    """On entering and then hourly, with what refuses it."""
    world = worlds(policy={"onUnresolved": {"action": action, "fallbackArchitectures": ["amd64"]}})
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    key = await world.create("app:1")
    await world.run(119)
    assert world.controller.held == 0
    assert "PolyarchPodHeld" not in world.told.reasons
    await world.run(120)
    assert world.controller.held == 1
    assert world.told.reasons.count("PolyarchPodHeld") == 1
    [held] = [event.note for _, event in world.told.events if event.reason == "PolyarchPodHeld"]
    assert "HTTP 422" in held
    await world.run(3600)
    assert world.told.reasons.count("PolyarchPodHeld") == 2
    world.api.allow()
    await world.run(61)
    assert world.cluster.architectures(key) == ["amd64"], "never without its constraint"
    assert world.controller.held == 0


@pytest.mark.req("PL-040", "PL-305")
async def test_a_refused_pod_is_held_no_longer_than_the_limit(worlds):
    """After it as with ``release``."""
    world = worlds(policy={"onUnresolved": {"action": "hold", "holdLimit": "10m"}})
    world.registry.know("app:1", "linux/amd64")
    refuse_affinity(world.api)
    key = await world.create("app:1")
    await world.run(9 * 60)
    assert world.cluster.is_gated(key)
    await world.run(2 * 60)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-305", "PL-520")
@pytest.mark.parametrize("action", ["hold", "fallback"])
async def test_while_placement_is_switched_off_a_refusal_keeps_no_pod(worlds, action):
    """Whatever the policy says, the pod goes without its affinity after a minute at the latest."""
    world = worlds(policy={"onUnresolved": {"action": action, "fallbackArchitectures": ["amd64"]}})
    world.registry.know("app:1", "linux/amd64")
    refuse_affinity(world.api)
    key = await world.create("app:1")
    await world.run(300)
    assert world.cluster.is_gated(key)
    world.switch_off()
    await world.run(61)
    assert not world.cluster.is_gated(key)
    assert world.cluster.architectures(key) is None


@pytest.mark.req("PL-306")
async def test_an_api_server_that_is_away_delays_and_loses_nothing(world):
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(ConnectionFailed("refused", verb="patch", resource="pods"))
    key = await world.create("app:1")
    await world.run(60)
    assert world.told.warnings == []
    assert world.patched(key) <= 50
    world.api.allow()
    await world.run(2)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-811")
@pytest.mark.parametrize(
    "answer",
    [
        ConnectionFailed("refused", verb="patch", resource="pods"),
        Forbidden(403, reason="Forbidden", message="cannot patch"),
        ServerTimeout(504, verb="patch", resource="pods", message="starting"),
    ],
    ids=["it is away", "it has not read its roles yet", "it is not itself yet"],
)
async def test_an_api_server_that_comes_back_is_told_of_all_pods_at_once(world, answer):
    """After ten minutes as after ten seconds; and meanwhile ten requests a second are all that it gets."""
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse, world.connected = answer, False
    keys = [await world.create("app:1", name=f"web-{number}") for number in range(300)]
    await world.run(60)
    assert len(world.api.patches) <= 300 + 60 * 15
    assert world.told.warnings == [], "nobody refuses anything for good"
    world.api.refuse, world.connected = None, True
    await world.run(2)
    assert not any(map(world.cluster.is_gated, keys))
    assert {tuple(world.cluster.architectures(key) or ()) for key in keys} == {("amd64",)}


@pytest.mark.req("PL-305", "PL-306")
async def test_a_webhook_that_fails_for_some_pods_is_asked_no_more_often_as_others_are_released(world):
    """The API server answers 5xx for those pods, and is not away."""
    world.registry.know("app:1", "linux/amd64")
    patch = world.api.patch

    async def failing(resource, name, change, **where):
        if name == "bad":
            world.api.patches.append((ObjectKey("team", name), change))
            raise ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook")
        return await patch(resource, name, change, **where)

    world.api.patch = failing
    bad = await world.create("app:1", name="bad")
    for number in range(60):
        assert not world.cluster.is_gated(await world.create("app:1", name=f"good-{number}"))
        await world.run(1)
    assert world.patched(bad) <= 10


@pytest.mark.req("PL-305")
async def test_time_without_an_answer_is_none_in_which_the_refusal_persisted(worlds):
    """What was refused once before an outage is not written without its constraint after it."""
    world = worlds(policy={"onUnresolved": {"retryWindow": "60s"}})
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    key = await world.create("app:1")
    world.cluster.refuse(ConnectionFailed("refused", verb="patch", resource="pods"))
    await world.run(600)
    world.cluster.refuse(refused_by_validation())
    await world.run(16)
    world.api.allow()
    await world.run(61)
    assert world.cluster.architectures(key) == ["amd64"]


@pytest.mark.req("PL-305")
async def test_refusals_between_failures_to_answer_add_up(worlds):
    """An API server that does now the one and now the other keeps no pod for ever."""
    world = worlds(policy={"onUnresolved": {"retryWindow": "60s"}})
    world.registry.know("app:1", "linux/amd64")
    silence = ConnectionFailed("refused", verb="patch", resource="pods")
    world.cluster.refuse(refused_by_validation())
    await world.create("app:1")
    for _ in range(6):
        await world.run(31)
        world.cluster.refuse(silence)
        await world.run(31)
        world.cluster.refuse(refused_by_validation())
    *_, (_, last) = world.api.patches
    assert not any(operation.path.startswith("/spec/affinity") for operation in last.operations)


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-710", "PL-900")
async def test_a_pod_gated_for_two_seconds_gets_the_gate_event(world):
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/amd64")
    await world.create("app:1")
    await world.run(1.9)
    assert world.told.reasons == []
    await world.run(0.2)
    assert world.told.reasons == ["ArchAwareSchedGateAdded"]
    await world.run(1)
    assert world.told.reasons == ["ArchAwareSchedGateAdded", "ArchAwarePredicateSet"]


@pytest.mark.req("PL-710", "PL-800")
@pytest.mark.parametrize(
    ("level", "reasons"),
    [
        ("problems", []),
        ("lean", ["ArchAwarePredicateSet"]),
        ("full", ["ArchAwareSchedGateAdded", "ArchAwarePredicateSet", "ArchAwareSchedGateRemovalSuccess"]),
    ],
)
async def test_events_of_a_pod_that_is_placed_at_once(worlds, level, reasons):
    world = worlds(policy={"events": level})
    world.registry.know("app:1", "linux/amd64")
    await world.create("app:1")
    await world.run(5)
    assert world.told.reasons == reasons


@pytest.mark.req("PL-305", "PL-330")
async def test_a_pod_whose_label_somebody_takes_off_at_once_is_not_held_for_ever(world):
    """A webhook of the cluster undoes what we note on a pod, so the write changes nothing; then there
    is no event that would bring the pod back."""
    world.cluster.undoes = "labels"
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(60)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-305")
async def test_a_release_that_is_undone_is_told_and_tried_again(world):
    """The API server says 200 and stores nothing; the pod stays gated, and nobody was told."""
    world.cluster.undoes = "all"
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(20)
    assert world.told.reasons.count("ArchAwareSchedGateRemovalFailed") == 1
    assert 2 <= world.patched(key) <= 6
    assert value(world.metrics, "mto_ppo_ctrl_processed_pods_total") == 0
    world.cluster.undoes = ""
    await world.run(60)
    assert world.cluster.architectures(key) == ["amd64"]


# -- what another feature adds -----------------------------------------------------------------------------------------

TOLERATION = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
TOLERATED = PodMutation((Operation("add", "/spec/tolerations", [TOLERATION]),))


@pytest.mark.req("PL-303", "TN-003")
async def test_the_patch_that_lifts_the_gate_carries_the_addition(worlds):
    """One PATCH, with tolerations between annotations and affinity, by the same answers."""
    mutator = FakeMutator(TOLERATED)
    world = worlds(mutator=mutator)
    world.registry.know("app:1", "linux/amd64", "linux/arm64")
    key = await world.create("app:1")
    assert world.cluster.stored[key]["spec"]["tolerations"] == [TOLERATION]
    assert world.cluster.architectures(key) == ["amd64", "arm64"]
    [(_, patch)] = world.api.patches
    paths = [each.path for each in patch.operations]
    assert paths[:2] == ["/metadata/uid", "/metadata/resourceVersion"]
    order = [paths.index(each) for each in ("/metadata/annotations", "/spec/tolerations", "/spec/affinity")]
    assert order == sorted(order)
    assert mutator.asked == [("app", ["app:1"], MutationContext())]


@pytest.mark.req("TN-046")
async def test_the_other_feature_is_asked_when_the_window_of_placement_has_ended(worlds):
    """The gate is lifted with a failure, which it sees."""
    mutator = FakeMutator(TOLERATED)
    world = worlds(mutator=mutator, policy={"onUnresolved": {"action": "release", "retryWindow": "5s"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(4)
    assert mutator.asked == []
    await world.run(2)
    assert not world.cluster.is_gated(key)
    assert world.cluster.stored[key]["spec"]["tolerations"] == [TOLERATION]


@pytest.mark.req("PL-305", "TN-003")
async def test_a_refused_release_is_tried_again_without_the_addition(worlds):
    """A policy of the cluster that forbids tolerations costs no pod its placement."""
    mutator = FakeMutator(TOLERATED)
    world = worlds(mutator=mutator)
    world.registry.know("app:1", "linux/amd64")
    world.cluster.refuse(refused_by_validation())
    key = await world.create("app:1")
    world.api.allow()
    await world.run(3)
    assert world.cluster.architectures(key) == ["amd64"]
    assert "tolerations" not in world.cluster.stored[key]["spec"]
