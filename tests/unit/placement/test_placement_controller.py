"""Gated pods in, PATCHes out: what becomes of a pod when (``controller_world``)."""

from typing import Any

import pytest
from controller_world import ControllerWorld
from placement_world import pod, policy, value

from polyarch.kube.errors import Forbidden, ServerTimeout
from polyarch.placement import names

# -- one PATCH ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-302", "PL-303")
async def test_a_known_image_is_placed_with_one_patch(world):
    world.registry.know("app:1", "linux/amd64", "linux/arm64")
    key = await world.create("app:1")
    assert world.cluster.architectures(key) == ["amd64", "arm64"]
    assert not world.cluster.is_gated(key)
    assert world.patched(key) == 1
    assert world.cluster.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED


@pytest.mark.req("PL-802")
async def test_a_pod_with_a_known_image_is_patched_without_any_time_passing(world):
    """Nothing lies between seeing it and sending the PATCH, for the thousandth of a burst neither."""
    world.registry.know("app:1", "linux/amd64")
    begin = world.clock.monotonic()
    keys = [await world.create("app:1", name=f"web-{number}") for number in range(1000)]
    assert world.clock.monotonic() == begin
    assert not any(world.cluster.is_gated(key) for key in keys)
    assert [world.patched(key) for key in keys] == [1] * 1000


@pytest.mark.req("PL-303")
async def test_the_patch_tests_uid_and_version_first_and_the_gate_by_name(world):
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", schedulingGates=[{"name": "foreign/one"}])
    ((_, patch),) = world.api.patches
    first, second, *_, gate, last = patch.operations
    assert (first.op, first.path) == ("test", "/metadata/uid")
    assert (second.op, second.path) == ("test", "/metadata/resourceVersion")
    assert (gate.op, gate.path, gate.value) == ("test", "/spec/schedulingGates/1/name", names.GATE)
    assert (last.op, last.path) == ("remove", "/spec/schedulingGates/1")
    assert world.cluster.stored[key]["spec"]["schedulingGates"] == [{"name": "foreign/one"}]


@pytest.mark.req("PL-303", "PL-900")
async def test_fields_we_do_not_know_survive(world):
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", brandNewField={"deep": [1, {"x": None}]})
    assert world.cluster.stored[key]["spec"]["brandNewField"] == {"deep": [1, {"x": None}]}
    assert world.cluster.stored[key]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]


@pytest.mark.req("PL-302")
async def test_a_cold_image_is_waited_for_without_a_worker(world):
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/arm64")
    keys = [await world.create("app:1", name=f"app-{number}") for number in range(20)]
    assert len(world.waiting) == 20
    await world.run(3.1)
    assert {tuple(world.cluster.architectures(key)) for key in keys} == {("arm64",)}
    assert world.registry.count("app:1") == 1


@pytest.mark.req("PL-302")
async def test_pods_that_are_gone_deleted_or_without_gate_are_left_alone(world):
    world.registry.set("app:1", "linux/arm64")
    gone = await world.create("app:1", name="gone")
    world.cluster.delete(gone)
    deleting = pod("app:1", name="deleting", gated=True)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.cluster.create(deleting)
    open_ = pod("app:1", name="open", gated=True)
    open_["spec"]["schedulingGates"] = [{"name": "foreign"}]
    world.cluster.create(open_)
    before = len(world.api.patches)
    await world.run(60)
    assert len(world.api.patches) == before
    assert len(world.waiting) == 0


@pytest.mark.req("PL-310")
async def test_a_pod_that_is_not_eligible_any_more_is_released_with_a_warning(world):
    key = await world.create("app:1", annotations={names.SKIP_ANNOTATION: "true"})
    assert not world.cluster.is_gated(key)
    assert world.cluster.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED
    assert world.told.reasons == ["ArchAwareGatedPodIgnored"]
    assert "OptedOut" in world.told.events[0][1].note
    assert world.registry.asked == []


@pytest.mark.req("PL-200", "PL-311", "PL-900")
async def test_labels_set_by_the_user_shorten_nothing(world):
    world.registry.set("app:1", error="network")
    labels = {names.IMAGE_INSPECT_ERROR_LABEL: "", names.IMAGE_INSPECT_ERROR_COUNT_LABEL: "5"}
    key = await world.create("app:1", labels=labels)
    await world.run(60)
    assert world.cluster.is_gated(key)
    world.registry.set("app:1", "linux/s390x")
    await world.run(20)
    assert world.cluster.architectures(key) == ["s390x"]
    assert not set(labels) & set(world.cluster.labels(key)), "they vanish on success"


@pytest.mark.req("PL-131")
async def test_a_gated_pod_is_finished_as_in_enforce_whatever_the_mode_says_now(worlds):
    world = worlds(policy={"mode": "audit"})
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    assert world.cluster.architectures(key) == ["amd64"]
    assert not world.cluster.is_gated(key)


# -- facts first -------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-301")
async def test_nothing_is_decided_before_all_facts_are_known(worlds):
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "osConstraint": "always"}
    world = worlds(policy={"overrides": [override], "nodeAware": {"mode": "report"}}, nodes_are_listed=False)
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(60)
    assert world.cluster.is_gated(key)
    world.watches["namespaces"].put({"metadata": {"name": "team", "labels": {"x": "y"}}})
    world.watches["namespaces"].sync()
    await world.run(1)
    assert world.cluster.is_gated(key)
    world.watches["nodes"].sync()
    await world.run(1)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-301")
async def test_nodes_that_may_not_be_read_hold_no_pod_for_longer_than_a_minute(worlds):
    world = worlds(policy={"nodeAware": {"mode": "report"}}, nodes_are_listed=False)
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    world.watches["nodes"].problem = "not allowed to list nodes"
    await world.run(59)
    assert world.cluster.is_gated(key)
    await world.run(2)
    assert world.cluster.architectures(key) == ["amd64"]
    assert value(world.metrics, "polyarch_placement_facts_left_out", resource="nodes") == 1
    assert value(world.metrics, "polyarch_placement_facts_left_out", resource="namespaces") == 0
    late = await world.create("app:1", name="late")
    assert world.cluster.architectures(late) == ["amd64"], "at once"


@pytest.mark.req("PL-301", "PL-306")
async def test_waiting_for_facts_costs_a_pass_now_and_then_and_ends_when_they_come(worlds):
    """With ten thousand gated pods a pass of each five times a second is all that a process can do."""
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "podOptOut": "forbidden"}
    world = worlds(policy={"overrides": [override]})
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(60)
    assert value(world.metrics, "mto_ppo_ctrl_time_to_process_pod_seconds_count") <= 15
    world.watches["namespaces"].put({"metadata": {"name": "team"}})
    world.watches["namespaces"].sync()
    await world.run()
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-117")
async def test_an_unknown_namespace_is_waited_for_five_seconds_then_spec_counts(worlds):
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "podOptOut": "forbidden"}
    world = worlds(policy={"overrides": [override]})
    world.watches["namespaces"].sync() if "namespaces" in world.watches.informers else None
    await world.run()
    world.watches["namespaces"].sync()
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(4.5)
    assert world.cluster.is_gated(key)
    await world.run(1)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-044")
async def test_gated_pods_are_decided_again_when_the_policy_changes(world):
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(20)
    assert world.cluster.is_gated(key)
    world.configure("placementpolicies", policy(onUnresolved={"retryWindow": "5s"}))
    await world.run()
    assert not world.cluster.is_gated(key)


# -- policies for what stays unresolved --------------------------------------------------------------------------------


@pytest.mark.req("PL-334")
async def test_held_pods_are_told_of_once_an_hour_and_asked_for_every_five_minutes(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(40)
    assert world.cluster.is_gated(key)
    assert world.cluster.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"
    assert world.controller.held == 1
    assert world.controller.held_by_namespace() == {key.namespace: 1}
    assert world.controller.oldest_gates() == {}, "a policy asks for it"
    asked, patched = world.registry.count("app:1"), world.patched(key)
    await world.run(3600)
    assert 9 <= world.registry.count("app:1") - asked <= 16
    assert world.patched(key) == patched
    assert world.told.reasons.count("PolyarchPodHeld") == 2
    world.registry.set("app:1", "linux/amd64")
    await world.run(400)
    assert world.cluster.architectures(key) == ["amd64"]
    assert names.IMAGE_INSPECT_ERROR_LABEL not in world.cluster.labels(key)
    assert world.controller.held == 0


@pytest.mark.req("PL-720")
async def test_an_alert_can_see_a_pod_that_is_never_released(worlds):
    """By the time at which the pod was created: whoever leads now has not seen it wait."""
    world = worlds()
    world.registry.set("app:1", error="timeout")
    key = await world.create("app:1")
    await world.run(30)
    assert world.cluster.is_gated(key)
    assert world.controller.oldest_gates() == {key.namespace: pytest.approx(30, abs=1)}
    await world.run(300)
    assert not world.cluster.is_gated(key)
    assert world.controller.oldest_gates() == {}


@pytest.mark.req("PL-334")
async def test_a_change_of_policy_releases_a_held_pod_at_once(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(100)
    world.configure("placementpolicies", policy(onUnresolved={"action": "release"}))
    await world.run()
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-334")
async def test_a_change_of_policy_asks_again_for_held_images(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    await world.create("app:1")
    await world.run(100)
    asked = world.registry.count("app:1")
    world.configure("placementpolicies", policy(onUnresolved={"action": "hold"}, events="full"))
    await world.run(1)
    assert world.registry.count("app:1") == asked + 1


@pytest.mark.req("PL-230")
async def test_a_hold_limit_ends_in_a_release(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold", "holdLimit": "10m"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(590)
    assert world.cluster.is_gated(key)
    await world.run(20)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-230")
async def test_what_is_known_constrains_when_the_rest_cannot_be_resolved(world):
    world.registry.know("known:1", "linux/amd64", "linux/arm64")
    world.registry.set("app:1", error="not-found")
    key = await world.create("known:1", "app:1")
    await world.run(40)
    assert world.cluster.architectures(key) == ["amd64", "arm64"]
    assert world.cluster.labels(key)[names.NODE_AFFINITY_LABEL] == names.SET


@pytest.mark.req("PL-520")
async def test_while_placement_is_switched_off_holding_becomes_releasing(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(130)
    assert world.cluster.is_gated(key)
    world.switch_off()
    await world.run()
    assert not world.cluster.is_gated(key)


# -- bad input and bugs ------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-212")
@pytest.mark.parametrize("error", ["not-found", "network", "unauthorized"])
async def test_an_image_that_is_never_pulled_is_asked_for_once(world, error):
    """Also while another image of the pod is retried; it counts as neutral, and nobody waits for it."""
    world.registry.set("local:1", error=error)
    world.registry.set("app:1", error="server-error")
    document = pod("local:1", "app:1", gated=True)
    document["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    key = world.cluster.create(document)
    await world.run(60)
    assert world.registry.count("local:1") == 1
    assert world.registry.count("app:1") > 3
    world.registry.set("app:1", "linux/arm64")
    await world.run(20)
    assert world.cluster.architectures(key) == ["arm64"]
    assert world.registry.count("local:1") == 1


@pytest.mark.req("PL-750")
async def test_an_invalid_reference_is_final_at_once_and_quoted(world):
    key = await world.create("Upper/Case:1")
    assert not world.cluster.is_gated(key)
    (warning,) = world.told.warnings
    assert "Upper/Case:1" in warning.note


@pytest.mark.req("PL-306")
async def test_a_bug_met_in_an_image_is_a_passing_failure_of_that_pod(world):
    world.registry.set("app:1", raises=RuntimeError("bug"))
    key = await world.create("app:1")
    await world.run(60)
    assert world.cluster.is_gated(key)
    assert value(world.metrics, "polyarch_internal_errors_total") >= 5
    assert len(world.registry.asked) <= 12
    await world.run(80)
    assert not world.cluster.is_gated(key)


class Faulty:
    """Facts that make every pass raise."""

    def __init__(self, world: ControllerWorld) -> None:
        self.asked = 0
        self._world = world

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise RuntimeError("bug")


@pytest.mark.req("PL-306")
async def test_a_bug_in_a_pass_neither_spins_nor_keeps_the_pod_for_ever(world):
    faulty = world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(100)
    assert world.cluster.is_gated(key)
    assert faulty.asked <= 15
    await world.run(60)
    assert not world.cluster.is_gated(key)
    assert world.cluster.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED


@pytest.mark.req("PL-306")
async def test_a_bug_does_not_release_what_is_to_be_held(worlds):
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(300)
    assert world.cluster.is_gated(key)
    assert world.controller.held == 1
    assert world.told.reasons == ["PolyarchPodHeld"]
    await world.run(3600)
    assert world.told.reasons == ["PolyarchPodHeld"] * 2


@pytest.mark.req("PL-306")
async def test_bugs_that_are_far_apart_do_not_add_up(world):
    """A pass that went well in between says that the pod can be decided, and what it is to be released with."""
    world.registry.know("app:1", "linux/arm64")
    world.cluster.refuse(ServerTimeout(504, verb="patch", resource="pods", message="away"))
    peek = world.registry.peek
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    world.registry.peek = peek  # type: ignore[method-assign]
    await world.run(300)
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    world.api.allow()
    await world.run(20)
    assert value(world.metrics, "polyarch_internal_errors_total") > 2
    assert world.cluster.is_gated(key)
    world.registry.peek = peek  # type: ignore[method-assign]
    await world.run(20)
    assert world.cluster.architectures(key) == ["arm64"]


@pytest.mark.req("PL-305", "PL-306")
async def test_a_refusal_of_what_a_bug_releases_is_told_as_any_other(world, capsys):
    """Nothing on the pod or in the log said why it still waits."""
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    world.cluster.refuse(Forbidden(403, reason="Forbidden", verb="patch", resource="pods", message="no right"))
    key = await world.create("app:1")
    await world.run(400)
    assert world.cluster.is_gated(key)
    assert world.told.reasons == ["ArchAwareSchedGateRemovalFailed"]
    assert "no right" in world.told.events[0][1].note
    assert capsys.readouterr().out.count("the API server refuses to release a pod") == 1
    world.api.allow()
    await world.run(90)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-305", "PL-306")
async def test_silence_at_what_a_bug_releases_is_logged(world, capsys):
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    world.cluster.refuse(ServerTimeout(504, verb="patch", resource="pods", message="away"))
    key = await world.create("app:1")
    await world.run(400)
    assert world.cluster.is_gated(key)
    assert capsys.readouterr().out.count("no answer to the release of a pod") == 1


@pytest.mark.req("PL-306", "PL-520")
@pytest.mark.parametrize("action", ["hold", "fallback"])
async def test_while_placement_is_switched_off_a_bug_keeps_no_pod_whatever_the_policy(worlds, action):
    world = worlds(policy={"onUnresolved": {"action": action, "fallbackArchitectures": ["amd64"]}})
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(300)
    assert world.cluster.is_gated(key)
    world.switch_off()
    await world.run(20)
    assert not world.cluster.is_gated(key)


@pytest.mark.req("PL-306", "PL-520")
async def test_while_placement_is_switched_off_a_bug_keeps_no_pod_and_not_for_long(worlds):
    """Hold counts as release, and windows are cut to a minute."""
    world = worlds(policy={"onUnresolved": {"action": "hold", "retryWindow": "1h"}})
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(50)
    world.switch_off()
    await world.run(5)
    assert world.cluster.is_gated(key)
    await world.run(25)
    assert not world.cluster.is_gated(key)


# -- figures -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-700", "PL-702")
async def test_what_is_counted_for_a_placed_pod(world):
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/amd64")
    await world.create("app:1")
    await world.run(5)
    metrics = world.metrics
    assert value(metrics, "mto_ppo_ctrl_processed_pods_total") == 1
    assert value(metrics, "mto_ppo_ctrl_time_to_process_gated_pod_seconds_count") == 1
    assert value(metrics, "mto_ppo_ctrl_time_to_inspect_image_seconds_sum") == 3
    assert value(metrics, "polyarch_placement_gate_seconds_sum") == 3
    assert value(metrics, "polyarch_placement_attempts_total", **{"class": "success"}) == 1
    labels = {"reason": "ArchitecturesSet", "by": "controller", "mode": "enforce"}
    assert value(metrics, "polyarch_placement_decisions_total", **labels) == 1
