"""Gated pods in, PATCHes and events out: the controller with its queue, its attempts and a clock that is moved by hand.

Only the API server, the informers and the registry client are fakes (``placement_world``).
"""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from placement_world import (
    FakeApi,
    FakeInspector,
    FakeSecrets,
    FakeWatches,
    Told,
    cppc,
    facts_of,
    failed,
    placement_metrics,
    pod,
    policy,
    refused_by_validation,
    resolved,
    value,
)

from polyarch.kube.clock import ManualClock
from polyarch.kube.controller import Controller
from polyarch.kube.errors import Conflict, ConnectionFailed, Forbidden, Invalid, ServerTimeout
from polyarch.kube.queue import WorkQueue
from polyarch.model.meta import Key
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse
from polyarch.placement import names
from polyarch.placement.attempts import Attempts
from polyarch.placement.controller import PodController
from polyarch.placement.pods import EVERY
from polyarch.placement.secrets import PullSecrets, PullSource, document_of
from polyarch.placement.waiting import Waiting
from polyarch.placement.writing import NO_FIT

MARKER = "m4rk3r"


class World:
    """A controller process against fakes; ``await world.run(seconds)`` lets time pass."""

    def __init__(self, *, leading: bool = True, api: FakeApi | None = None, **configuration: Any) -> None:
        self.clock = ManualClock(start=0)
        self.watches = FakeWatches()
        self.facts = facts_of(self.watches, **configuration)
        self.api = api or FakeApi()
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.told = Told()
        self.leading = leading
        self.metrics, placement = placement_metrics()
        self.pods: WorkQueue[Key] = WorkQueue("pods", self.clock)
        images: WorkQueue[Any] = WorkQueue("images", self.clock)
        self.waiting = Waiting(
            self.clock,
            schedule=images.add_after,
            wake=self.pods.add,
            insists=lambda: self.leading,
            uniform=lambda: 0.5,
        )
        self.attempts = Attempts(self.waiting, images, self.registry, self.secrets, self.clock, placement)
        self.controller = PodController(
            pods=self.api,
            facts=self.facts,
            secrets=self.secrets,
            inspector=self.registry,
            waiting=self.waiting,
            client=self.api,
            post=self.told,
            enqueue=self.pods.add,
            clock=self.clock,
            metrics=placement,
            is_leading=lambda: self.leading,
            uniform=lambda: 0.5,
        )
        self.api.on_event = self.pods.add
        self._tasks = [
            asyncio.create_task(self.facts.run()),
            asyncio.create_task(self.attempts.run()),
            asyncio.create_task(
                Controller("pods", self.controller.reconcile, queue=self.pods, workers=4, clock=self.clock).run()
            ),
        ]

    async def run(self, seconds: float = 0.0) -> None:
        await self.clock.run(seconds)

    async def create(self, *images: str, **options: Any) -> Key:
        """A gated pod appears and is looked at."""
        key = self.api.create(pod(*images, gated=True, **options))
        await self.run()
        return key

    def configure(self, plural: str, document: dict[str, Any]) -> None:
        self.watches[plural].put(document)

    def patched(self, key: Key) -> int:
        return sum(each == key for each, _ in self.api.patches)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.secrets.aclose()


@pytest.fixture
async def worlds() -> AsyncIterator[Any]:
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(**options))
        return made[-1]

    yield make
    for world in made:
        await world.close()


@pytest.fixture
async def world(worlds) -> World:
    return worlds()


# -- one PATCH ---------------------------------------------------------------------------------------------------------


async def test_a_known_image_is_placed_with_one_patch(world):
    """PL-302, PL-303."""
    world.registry.know("app:1", "linux/amd64", "linux/arm64")
    key = await world.create("app:1")
    assert world.api.architectures(key) == ["amd64", "arm64"]
    assert not world.api.is_gated(key)
    assert world.patched(key) == 1
    assert world.api.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED


async def test_the_patch_tests_uid_and_version_first_and_the_gate_by_name(world):
    """PL-303."""
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", schedulingGates=[{"name": "foreign/one"}])
    ((_, patch),) = world.api.patches
    first, second, *_, gate, last = patch.operations
    assert (first.op, first.path) == ("test", "/metadata/uid")
    assert (second.op, second.path) == ("test", "/metadata/resourceVersion")
    assert (gate.op, gate.path, gate.value) == ("test", "/spec/schedulingGates/1/name", names.GATE)
    assert (last.op, last.path) == ("remove", "/spec/schedulingGates/1")
    assert world.api.pods[key]["spec"]["schedulingGates"] == [{"name": "foreign/one"}]


async def test_fields_we_do_not_know_survive(world):
    """PL-303, PL-900 row 10."""
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", brandNewField={"deep": [1, {"x": None}]})
    assert world.api.pods[key]["spec"]["brandNewField"] == {"deep": [1, {"x": None}]}
    assert world.api.pods[key]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}]


async def test_a_cold_image_is_waited_for_without_a_worker(world):
    """PL-302."""
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/arm64")
    keys = [await world.create("app:1", name=f"app-{number}") for number in range(20)]
    assert len(world.waiting) == 20
    await world.run(3.1)
    assert {tuple(world.api.architectures(key)) for key in keys} == {("arm64",)}
    assert world.registry.count("app:1") == 1


async def test_pods_that_are_gone_deleted_or_without_gate_are_left_alone(world):
    """PL-302."""
    world.registry.set("app:1", "linux/arm64")
    gone = await world.create("app:1", name="gone")
    world.api.delete(gone)
    deleting = pod("app:1", name="deleting", gated=True)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.api.create(deleting)
    open_ = pod("app:1", name="open", gated=True)
    open_["spec"]["schedulingGates"] = [{"name": "foreign"}]
    world.api.create(open_)
    before = len(world.api.patches)
    await world.run(60)
    assert len(world.api.patches) == before
    assert len(world.waiting) == 0


@pytest.mark.parametrize("change", ["moved on", "deleted"])
async def test_a_pod_that_moved_on_is_no_failure_and_its_event_brings_it_back(world, change):
    """PL-304."""
    world.registry.know("app:1", "linux/amd64")
    key = world.api.create(pod("app:1", gated=True))
    if change == "moved on":
        world.api.change(key, annotations={"somebody": "else"})
    else:
        del world.api.pods[key]
    await world.run(29)
    assert world.patched(key) == 1, "at most one PATCH from one version"
    assert world.told.events == []
    assert value(world.metrics, "polyarch_placement_patch_conflicts_total") == 1
    world.api.tell(key)
    await world.run()
    if change == "moved on":
        assert world.api.architectures(key) == ["amd64"]
        assert world.api.pods[key]["metadata"]["annotations"]["somebody"] == "else"


async def test_a_process_that_stood_still_has_not_waited_for_the_event(world):
    """PL-304, PL-306: after 40 s of SIGSTOP the event is still to be read, and nobody has made a mistake."""
    world.registry.know("app:1", "linux/amd64")
    key = world.api.create(pod("app:1", gated=True))
    world.api.change(key, annotations={"somebody": "else"})
    await world.run(1)
    assert world.patched(key) == 1
    world.clock.advance(40)
    await world.run(1)
    world.api.tell(key)
    await world.run()
    assert world.api.architectures(key) == ["amd64"]
    assert value(world.metrics, "polyarch_internal_errors_total") == 0


async def test_a_pod_that_stays_gated_for_want_of_an_answer_is_in_the_log(world, capsys):
    """PL-305: some webhook of the cluster may make the API server answer 500 for hours."""
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = ServerTimeout(504, verb="patch", resource="pods", message="failed calling webhook")
    await world.create("app:1")
    await world.run(200)
    assert world.api.is_gated(Key("team", "app"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "no answer to the release of a pod" in line]
    assert len(lines) == 1
    assert "failed calling webhook" in lines[0]


async def test_a_patch_that_does_not_fit_an_unchanged_pod_is_a_bug_of_ours_and_bounded(world):
    """PL-306: neither written again and again nor waited for in vain."""
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = Invalid(422, reason="Invalid", message=NO_FIT)
    key = await world.create("app:1")
    await world.run(EVERY + 5)  # nothing tells of a stray before
    assert world.patched(key) == 1
    await world.run(60)
    assert 2 <= world.patched(key) <= 4
    assert value(world.metrics, "polyarch_internal_errors_total") >= 1
    world.api.refuse = None
    await world.run(60)
    assert not world.api.is_gated(key)


async def test_a_cache_that_lags_behind_causes_no_second_patch(world):
    """PL-304."""
    world.registry.know("app:1", "linux/amd64")
    world.api.lagging = True
    key = await world.create("app:1")
    for _ in range(5):
        world.pods.add(key)
        await world.run(1)
    assert world.patched(key) == 1


async def test_a_pod_that_is_not_eligible_any_more_is_released_with_a_warning(world):
    """PL-310."""
    key = await world.create("app:1", annotations={names.SKIP_ANNOTATION: "true"})
    assert not world.api.is_gated(key)
    assert world.api.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED
    assert world.told.reasons == ["ArchAwareGatedPodIgnored"]
    assert "OptedOut" in world.told.events[0][1].note
    assert world.registry.asked == []


async def test_labels_set_by_the_user_shorten_nothing(world):
    """PL-200, PL-311, PL-900 row 20."""
    world.registry.set("app:1", error="network")
    labels = {names.IMAGE_INSPECT_ERROR_LABEL: "", names.IMAGE_INSPECT_ERROR_COUNT_LABEL: "5"}
    key = await world.create("app:1", labels=labels)
    await world.run(60)
    assert world.api.is_gated(key)
    world.registry.set("app:1", "linux/s390x")
    await world.run(20)
    assert world.api.architectures(key) == ["s390x"]
    assert not set(labels) & set(world.api.labels(key)), "PL-900 row 21: they vanish on success"


async def test_a_gated_pod_is_finished_as_in_enforce_whatever_the_mode_says_now(worlds):
    """PL-131."""
    world = worlds(policy={"mode": "audit"})
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    assert world.api.architectures(key) == ["amd64"]
    assert not world.api.is_gated(key)


# -- facts first -------------------------------------------------------------------------------------------------------


async def test_nothing_is_decided_before_all_facts_are_known(worlds):
    """PL-301."""
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "osConstraint": "always"}
    world = worlds(policy={"overrides": [override], "nodeAware": {"mode": "report"}})
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(60)
    assert world.api.is_gated(key)
    world.watches["namespaces"].put({"metadata": {"name": "team", "labels": {"x": "y"}}})
    world.watches["namespaces"].sync()
    await world.run(1)
    assert world.api.is_gated(key)
    world.watches["nodes"].sync()
    await world.run(1)
    assert not world.api.is_gated(key)


async def test_waiting_for_facts_costs_a_pass_now_and_then_and_ends_when_they_come(worlds):
    """PL-306, PL-301: with ten thousand gated pods a pass of each five times a second is all that a process can do."""
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "podOptOut": "forbidden"}
    world = worlds(policy={"overrides": [override]})
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(60)
    assert value(world.metrics, "mto_ppo_ctrl_time_to_process_pod_seconds_count") <= 15
    world.watches["namespaces"].put({"metadata": {"name": "team"}})
    world.watches["namespaces"].sync()
    await world.run()
    assert not world.api.is_gated(key)


async def test_an_unknown_namespace_is_waited_for_five_seconds_then_spec_counts(worlds):
    """PL-117."""
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "podOptOut": "forbidden"}
    world = worlds(policy={"overrides": [override]})
    world.watches["namespaces"].sync() if "namespaces" in world.watches.informers else None
    await world.run()
    world.watches["namespaces"].sync()
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(4.5)
    assert world.api.is_gated(key)
    await world.run(1)
    assert not world.api.is_gated(key)


async def test_gated_pods_are_decided_again_when_the_policy_changes(world):
    """PL-044."""
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(20)
    assert world.api.is_gated(key)
    world.configure("placementpolicies", policy(onUnresolved={"retryWindow": "5s"}))
    await world.run()
    assert not world.api.is_gated(key)


# -- retrying ----------------------------------------------------------------------------------------------------------


async def test_an_outage_of_thirty_seconds_releases_nothing_unconstrained(world):
    """PL-335."""
    world.registry.set("app:1", error="network")
    keys = [await world.create("app:1", name=f"app-{number}") for number in range(50)]
    await world.run(30)
    assert all(world.api.is_gated(key) for key in keys)
    asked = world.registry.count("app:1")
    assert asked <= 12
    world.registry.set("app:1", "linux/arm64")
    await world.run(20)
    assert {tuple(world.api.architectures(key)) for key in keys} == {("arm64",)}


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
    """PL-330, PL-335."""
    world.registry.set("app:1", error=error)
    key = await world.create("app:1")
    if earliest:
        await world.run(earliest - 0.5)
        assert world.api.is_gated(key)
        await world.run(latest - earliest + 0.5)
    assert not world.api.is_gated(key)
    assert world.api.architectures(key) is None
    assert world.api.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


async def test_a_change_of_class_takes_the_new_window_counted_from_the_first_attempt(world):
    """PL-330."""
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(60)
    assert world.api.is_gated(key)
    world.registry.set("app:1", error="not-found")
    await world.run(16)
    assert not world.api.is_gated(key)


async def test_the_window_is_each_pods_own_though_attempts_are_shared(world):
    """PL-330."""
    world.registry.set("app:1", error="not-found")
    first = await world.create("app:1", name="first")
    await world.run(25)
    second = await world.create("app:1", name="second")
    await world.run(6)
    assert not world.api.is_gated(first)
    assert world.api.is_gated(second)
    await world.run(25)
    assert not world.api.is_gated(second)


async def test_a_broken_image_costs_two_patches_and_three_events(worlds):
    """PL-332, PL-800."""
    world = worlds(cppc={"fallbackArchitecture": "ppc64le"})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(1.9)
    assert world.patched(key) == 0
    await world.run(0.2)
    assert world.patched(key) == 1
    assert world.api.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "1"
    assert "absent" in world.api.pods[key]["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]
    await world.run(40)
    assert world.patched(key) == 2
    assert world.told.reasons == [
        "ArchAwareInspectionError",
        "ArchAwareInspectionError",
        "ArchAwareFallbackPredicateSet",
    ]
    assert world.api.labels(key)[names.FALLBACK_ARCH_LABEL] == "ppc64le"
    assert world.api.architectures(key) == ["ppc64le"]


async def test_five_hundred_pods_of_one_cold_image_ask_once(world):
    """PL-331, PL-403, PL-900 row 15."""
    world.registry.seconds = 1.0
    world.registry.set("app:1", "linux/amd64")
    for number in range(500):
        world.api.create(pod("app:1", name=f"app-{number}", gated=True))
    await world.run(2)
    assert world.registry.count("app:1") == 1
    assert len(world.api.patches) == 500


async def test_ten_thousand_waits_are_told_once_a_minute(world, capsys):
    """PL-750."""
    world.registry.set("app:1", error="network")
    for number in range(30):
        await world.create("app:1", name=f"app-{number}")
    await world.run(59)
    assert capsys.readouterr().out.count("image cannot be resolved") == 1


async def test_an_image_that_is_never_pulled_is_asked_once_and_then_neutral(world):
    """PL-212."""
    world.registry.set("local:1", error="not-found")
    world.registry.know("app:1", "linux/arm64")
    document = pod("app:1", "local:1", gated=True)
    document["spec"]["containers"][1]["imagePullPolicy"] = "Never"
    key = world.api.create(document)
    await world.run(1)
    assert world.api.architectures(key) == ["arm64"]
    assert world.registry.count("local:1") == 1


async def test_always_is_checked_after_the_pod_was_seen(world):
    """PL-210, PL-404."""
    world.registry.know("app:1", "linux/amd64", age=60)
    world.registry.set("app:1", "linux/arm64")
    key = await world.create("app:1", pull="Always")
    assert world.registry.count("app:1") == 1
    assert world.api.architectures(key) == ["arm64"]


async def test_a_digest_is_not_checked_again(world):
    """PL-404."""
    image = "app@sha256:" + "a" * 64
    world.registry.know(image, "linux/amd64")
    key = await world.create(image, pull="Always")
    assert world.registry.asked == []
    assert world.api.architectures(key) == ["amd64"]


async def test_an_old_reading_stands_in_while_the_registry_is_away(world):
    """PL-407."""
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(0.1)
    assert world.api.architectures(key) == ["s390x"]
    assert json.loads(world.api.pods[key]["metadata"]["annotations"][names.DECISION_ANNOTATION])["stale"] is True


async def test_for_always_the_old_reading_counts_only_when_the_window_ends(world):
    """PL-407."""
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1", pull="Always")
    await world.run(100)
    assert world.api.is_gated(key)
    await world.run(30)
    assert world.api.architectures(key) == ["s390x"]


async def test_a_reading_that_is_too_old_for_the_policy_does_not_stand_in(worlds):
    """PL-407."""
    world = worlds(policy={"images": {"staleFor": "30m"}})
    world.registry.know("app:1", "linux/s390x", age=3600)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(10)
    assert world.api.is_gated(key)


async def test_two_images_that_exclude_each_other_need_no_third(world):
    """PL-217."""
    world.registry.know("one:1", "linux/amd64", kind="image")
    world.registry.know("two:1", "linux/arm64", kind="image")
    world.registry.set("three:1", error="network")
    key = await world.create("one:1", "two:1", "three:1")
    assert names.NO_SUPPORTED_ARCH_LABEL in world.api.labels(key)
    assert world.told.reasons == ["NoSupportedArchitecturesFound"]


async def test_before_a_pod_is_impossible_its_indexes_are_looked_at_for_bundles(world):
    """RG-046."""
    world.registry.set("bundle:1", "linux/amd64", "linux/s390x")
    neutral = Inspection(parse("bundle:1"), Status.NEUTRAL, kind="index", neutral_reason="operator-bundle")
    world.registry.bundles["docker.io/library/bundle:1"] = neutral
    world.registry.know("app:1", "linux/arm64", kind="image")
    key = await world.create("app:1", "bundle:1")
    await world.run(1)
    assert world.api.architectures(key) == ["arm64"]


async def test_indexes_that_are_no_bundles_leave_the_pod_impossible(world):
    """RG-046."""
    world.registry.know("one:1", "linux/amd64", "linux/s390x")
    world.registry.know("two:1", "linux/arm64", "linux/ppc64le")
    key = await world.create("one:1", "two:1")
    await world.run(1)
    assert names.NO_SUPPORTED_ARCH_LABEL in world.api.labels(key)
    assert world.registry.asked == ["docker.io/library/one:1", "docker.io/library/two:1"]


# -- policies for what stays unresolved --------------------------------------------------------------------------------


async def test_held_pods_are_told_of_once_an_hour_and_asked_for_every_five_minutes(worlds):
    """PL-334."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(40)
    assert world.api.is_gated(key)
    assert world.api.labels(key)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"
    assert world.controller.held == 1
    asked, patched = world.registry.count("app:1"), world.patched(key)
    await world.run(3600)
    assert 9 <= world.registry.count("app:1") - asked <= 16
    assert world.patched(key) == patched
    assert world.told.reasons.count("PolyarchPodHeld") == 2
    world.registry.set("app:1", "linux/amd64")
    await world.run(400)
    assert world.api.architectures(key) == ["amd64"]
    assert names.IMAGE_INSPECT_ERROR_LABEL not in world.api.labels(key)
    assert world.controller.held == 0


async def test_a_change_of_policy_releases_a_held_pod_at_once(worlds):
    """PL-334."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(100)
    world.configure("placementpolicies", policy(onUnresolved={"action": "release"}))
    await world.run()
    assert not world.api.is_gated(key)


async def test_a_change_of_policy_asks_again_for_held_images(worlds):
    """PL-334."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="not-found")
    await world.create("app:1")
    await world.run(100)
    asked = world.registry.count("app:1")
    world.configure("placementpolicies", policy(onUnresolved={"action": "hold"}, events="full"))
    await world.run(1)
    assert world.registry.count("app:1") == asked + 1


async def test_a_hold_limit_ends_in_a_release(worlds):
    """PL-230."""
    world = worlds(policy={"onUnresolved": {"action": "hold", "holdLimit": "10m"}})
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(590)
    assert world.api.is_gated(key)
    await world.run(20)
    assert not world.api.is_gated(key)


async def test_what_is_known_constrains_when_the_rest_cannot_be_resolved(world):
    """PL-230."""
    world.registry.know("known:1", "linux/amd64", "linux/arm64")
    world.registry.set("app:1", error="not-found")
    key = await world.create("known:1", "app:1")
    await world.run(40)
    assert world.api.architectures(key) == ["amd64", "arm64"]
    assert world.api.labels(key)[names.NODE_AFFINITY_LABEL] == names.SET


async def test_while_placement_is_switched_off_holding_becomes_releasing(worlds):
    """PL-520."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(130)
    assert world.api.is_gated(key)
    deleting = cppc()
    deleting["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    world.configure("clusterpodplacementconfigs", deleting)
    await world.run()
    assert not world.api.is_gated(key)


# -- credentials -------------------------------------------------------------------------------------------------------


async def test_public_images_that_are_known_cost_no_secret(world):
    """PL-422."""
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1", secrets=["pull"])
    assert not world.api.is_gated(key)
    assert world.reader.gets.total() == 0


async def test_a_secret_is_read_once_for_many_pods(world):
    """PL-421, PL-800."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull")
    for number in range(20):
        await world.create("registry.example/app:1", name=f"app-{number}", secrets=["pull"])
    await world.run(5)
    assert not any(map(world.api.is_gated, world.api.pods))
    assert world.reader.gets["team", "pull"] == 1


async def test_a_secret_that_appears_is_seen_at_the_next_attempt(world):
    """PL-333."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    key = await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(4)
    assert world.api.is_gated(key)
    world.reader.put("team", "pull")
    await world.run(5)
    assert world.api.architectures(key) == ["amd64"]


async def test_a_secret_that_is_corrected_is_seen_at_the_next_attempt(world):
    """PL-333."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="other.example")
    key = await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(10)
    assert world.api.is_gated(key)
    world.reader.put("team", "pull", host="registry.example")
    await world.run(16)
    assert world.api.architectures(key) == ["amd64"]


async def test_a_changed_global_secret_is_used_at_once(world):
    """PL-333."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    key = await world.create("registry.example/app:1")
    await world.run(20)
    world.reader.put("ns", "global")
    document, _ = document_of(world.reader.content["ns", "global"], "ns/global")
    world.secrets.set_global([document])
    world.controller.credentials_changed()
    await world.run(1)
    assert world.api.architectures(key) == ["amd64"]


async def test_an_answer_is_shared_only_by_those_who_may_show_what_got_it(world):
    """PL-852, PL-331: equal secrets share a look-up until one of them changes."""
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
    await world.secrets.get(PullSource("team-a", ("pull",)), since=world.clock.monotonic() + 1)
    await world.run(20)
    assert world.api.architectures(changed) == ["amd64"]
    assert world.api.is_gated(same)


async def test_a_revoked_global_secret_is_shown_no_more_though_the_pods_own_was_read_long_ago(worlds):
    """PL-423, PL-334."""
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


async def test_a_bug_met_while_secrets_are_read_does_not_end_the_attempts_of_others(world):
    """PL-306: what one pod's secret brings about is that pod's affair."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.registry.set("registry.example/other:1", "linux/amd64")
    broken = await world.create("registry.example/app:1", secrets=["pull"])
    world.reader.content["team", "pull"] = RuntimeError("bug")
    await world.run(40)
    other = await world.create("registry.example/other:1", name="other")
    await world.run(1)
    assert world.api.architectures(other) == ["amd64"]
    await world.run(130)
    assert not world.api.is_gated(broken)


async def test_a_missing_secret_is_named_in_the_event_of_the_failure(world):
    """PL-422."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(3)
    (warning,) = world.told.warnings
    assert "pull secret team/pull does not exist" in warning.note


async def test_a_secret_is_in_no_event_label_annotation_or_log(world, capsys):
    """PL-850."""
    image = world.registry.set("registry.example/app:1", "linux/amd64")
    world.registry.needs_credentials.add(image)
    world.reader.put("team", "pull", host="other.example", password=MARKER)
    await world.create("registry.example/app:1", secrets=["pull"])
    await world.run(60)
    texts = [repr(world.api.pods), repr(world.told.events), capsys.readouterr().out]
    texts.append(world.metrics.render()[0].decode())
    assert not any(MARKER in text for text in texts)


# -- events ------------------------------------------------------------------------------------------------------------


async def test_a_pod_gated_for_two_seconds_gets_the_gate_event(world):
    """PL-710, PL-900 row 7."""
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/amd64")
    await world.create("app:1")
    await world.run(1.9)
    assert world.told.reasons == []
    await world.run(0.2)
    assert world.told.reasons == ["ArchAwareSchedGateAdded"]
    await world.run(1)
    assert world.told.reasons == ["ArchAwareSchedGateAdded", "ArchAwarePredicateSet"]


@pytest.mark.parametrize(
    ("level", "reasons"),
    [
        ("problems", []),
        ("lean", ["ArchAwarePredicateSet"]),
        ("full", ["ArchAwareSchedGateAdded", "ArchAwarePredicateSet", "ArchAwareSchedGateRemovalSuccess"]),
    ],
)
async def test_events_of_a_pod_that_is_placed_at_once(worlds, level, reasons):
    """PL-710, PL-800."""
    world = worlds(policy={"events": level})
    world.registry.know("app:1", "linux/amd64")
    await world.create("app:1")
    await world.run(5)
    assert world.told.reasons == reasons


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [Forbidden(403, reason="Forbidden", message="cannot patch"), refused_by_validation()],
    ids=["forbidden", "validation"],
)
async def test_a_refusal_is_told_and_after_the_window_the_affinity_is_left_out(worlds, refusal):
    """PL-305."""
    world = worlds(policy={"onUnresolved": {"retryWindow": "60s"}})
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = refusal
    key = await world.create("app:1")
    assert world.told.reasons == ["ArchAwareSchedGateRemovalFailed"]
    assert refusal.message in world.told.events[0][1].note
    await world.run(59)
    assert world.patched(key) <= 7, "backoff 1, 2, 4 … 60 s"
    await world.run(40)
    *_, (_, last) = world.api.patches
    assert not any(operation.path.startswith("/spec/affinity") for operation in last.operations)
    world.api.refuse = None
    await world.run(61)
    assert not world.api.is_gated(key)
    decision = json.loads(world.api.pods[key]["metadata"]["annotations"][names.DECISION_ANNOTATION])
    assert decision["reason"] == "ReleasedUnconstrained"
    assert world.told.reasons.count("ArchAwareSchedGateRemovalFailed") == 1


async def test_a_refusal_is_told_again_every_five_minutes(worlds):
    """PL-305."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = refused_by_validation()
    await world.create("app:1")
    await world.run(700)
    assert world.told.reasons.count("ArchAwareSchedGateRemovalFailed") == 3
    assert world.controller.held == 1


async def test_an_api_server_that_is_away_delays_and_loses_nothing(world):
    """PL-306."""
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = ConnectionFailed("refused", verb="patch", resource="pods")
    key = await world.create("app:1")
    await world.run(60)
    assert world.told.warnings == []
    assert world.patched(key) <= 10
    world.api.refuse = None
    await world.run(16)
    assert world.api.architectures(key) == ["amd64"]


async def test_a_bug_met_in_an_image_is_a_passing_failure_of_that_pod(world):
    """PL-306."""
    world.registry.set("app:1", raises=RuntimeError("bug"))
    key = await world.create("app:1")
    await world.run(60)
    assert world.api.is_gated(key)
    assert value(world.metrics, "polyarch_internal_errors_total") >= 5
    assert len(world.registry.asked) <= 12
    await world.run(80)
    assert not world.api.is_gated(key)


class Faulty:
    """Facts that make every pass raise."""

    def __init__(self, world: World) -> None:
        self.asked = 0
        self._world = world

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise RuntimeError("bug")


async def test_a_bug_in_a_pass_neither_spins_nor_keeps_the_pod_for_ever(world):
    """PL-306."""
    faulty = world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(100)
    assert world.api.is_gated(key)
    assert faulty.asked <= 15
    await world.run(60)
    assert not world.api.is_gated(key)
    assert world.api.labels(key)[names.SCHEDULING_GATE_LABEL] == names.REMOVED


async def test_a_bug_does_not_release_what_is_to_be_held(worlds):
    """PL-306."""
    world = worlds(policy={"onUnresolved": {"action": "hold"}})
    world.registry.peek = Faulty(world)  # type: ignore[method-assign]
    key = await world.create("app:1")
    await world.run(300)
    assert world.api.is_gated(key)
    assert world.controller.held == 1


async def test_an_invalid_reference_is_final_at_once_and_quoted(world):
    """PL-750."""
    key = await world.create("Upper/Case:1")
    assert not world.api.is_gated(key)
    (warning,) = world.told.warnings
    assert "Upper/Case:1" in warning.note


# -- standbys ----------------------------------------------------------------------------------------------------------


async def test_a_standby_places_what_the_leader_leaves_after_a_second_and_tells_nothing(worlds):
    """PL-530."""
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(1.4)
    assert world.api.is_gated(key)
    await world.run(0.7)
    assert world.api.architectures(key) == ["amd64"]
    assert world.told.events == []


async def test_a_standby_neither_gives_up_nor_labels_nor_holds(worlds):
    """PL-530."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    world.registry.know("other:1", "linux/amd64")
    keys = [await world.create("app:1", name="a"), await world.create("other:1", "app:1", name="b")]
    await world.run(300)
    assert all(map(world.api.is_gated, keys))
    assert world.api.patches == []


async def test_a_new_leader_takes_over_what_waits(worlds):
    """PL-530."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(300)
    world.leading = True
    world.controller.started_leading()
    await world.run(2)
    assert not world.api.is_gated(key)


async def test_a_standby_asks_once_for_what_does_not_exist_and_insists_as_a_leader(worlds):
    """PL-530, PL-331: the leader repeats the attempts, and the end of the waiting is the leader's to write."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1", name="a")
    await world.run(30)
    await world.create("app:1", name="b")
    await world.run(60)
    assert world.registry.count("app:1") == 1
    world.leading = True
    world.controller.started_leading()
    await world.run(1.0)
    assert world.registry.count("app:1") == 2
    assert world.api.is_gated(key), "PL-301: nobody gives up because of what somebody saw a minute ago"
    await world.run(1.0)
    assert not world.api.is_gated(key)


async def test_a_new_leader_places_what_appeared_while_nobody_led(worlds):
    """PL-301, PL-530."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="not-found")
    key = await world.create("app:1")
    await world.run(60)
    world.registry.set("app:1", "linux/arm64")
    world.leading = True
    world.controller.started_leading()
    await world.run(2.0)
    assert world.api.architectures(key) == ["arm64"]


async def test_a_standby_repeats_attempts_that_fail_for_passing_reasons(worlds):
    """PL-530, PL-811: whoever of the two reaches the registry first places the pods."""
    world = worlds(leading=False)
    world.registry.set("app:1", error="network")
    key = await world.create("app:1")
    await world.run(20)
    assert world.registry.count("app:1") > 2
    world.registry.set("app:1", "linux/amd64")
    await world.run(20)
    assert world.api.architectures(key) == ["amd64"]


async def test_a_standby_that_waited_for_an_image_lets_the_leader_write(worlds):
    """PL-530: both have the answer at the same moment, and few of their PATCHes shall meet."""
    world = worlds(leading=False)
    world.registry.seconds = 3.0
    world.registry.set("app:1", "linux/amd64")
    key = await world.create("app:1")
    await world.run(1.5 + 3.0 + 0.7)
    assert world.registry.count("app:1") == 1
    assert world.api.is_gated(key)
    await world.run(0.1)
    assert world.api.architectures(key) == ["amd64"]


async def test_a_standby_leaves_pods_to_a_leader_that_is_busy_releasing_others(worlds):
    """PL-530: at most 1 % more PATCHes; and who is gated for long is helped all the same."""
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    others = [await world.create("app:1", name=f"other-{number}") for number in range(10)]
    await world.run(0.9)
    key = await world.create("app:1", name="mine")
    for other in others:
        world.api.delete(other)
        await world.run(0.35)
    assert world.api.is_gated(key)
    await world.run(1.1)
    assert world.api.architectures(key) == ["amd64"]

    late = await world.create("app:1", name="late")
    for number in range(14):
        other = await world.create("app:1", name=f"more-{number}")
        world.api.delete(other)
        await world.run(0.35)
    assert world.api.is_gated(late)
    world.api.delete(await world.create("app:1", name="last"))
    await world.run(0.2)
    assert world.api.architectures(late) == ["amd64"], "after 5 s"


async def test_a_standby_that_is_refused_leaves_insisting_to_the_leader(worlds):
    """PL-305, PL-530."""
    world = worlds(leading=False)
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = refused_by_validation()
    await world.create("app:1")
    await world.run(60)
    assert len(world.api.patches) == 1
    assert world.told.events == []


async def test_a_conflict_that_no_event_follows_is_tried_again(world):
    """PL-304, PL-306: HTTP 409 says nothing against the PATCH, whose tests keep it from being doubled."""
    world.registry.know("app:1", "linux/amd64")
    world.api.refuse = Conflict(409, reason="Conflict", message="try again")
    key = await world.create("app:1")
    await world.run(4.9)
    assert world.patched(key) == 1
    world.api.refuse = None
    await world.run(0.2)
    assert world.api.architectures(key) == ["amd64"]
    assert value(world.metrics, "polyarch_internal_errors_total") == 0


async def test_of_leader_and_standby_only_one_patch_wins(worlds):
    """PL-530."""
    api = FakeApi()
    leader = worlds(api=api)
    standby = worlds(leading=False, api=api)
    api.on_event = lambda key: (leader.pods.add(key), standby.pods.add(key))  # type: ignore[func-returns-value]
    for world in (leader, standby):
        world.registry.know("app:1", "linux/amd64")
    key = api.create(pod("app:1", gated=True))
    await leader.run(5)
    await standby.run(5)
    assert api.architectures(key) == ["amd64"]
    assert len(api.patches) == 1


# -- figures -----------------------------------------------------------------------------------------------------------


async def test_what_is_counted_for_a_placed_pod(world):
    """PL-700, PL-702."""
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


async def test_one_host_that_hangs_does_not_keep_the_others_waiting(world):
    """PL-403."""
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
        world.api.create(pod(image, name=f"slow-{number}", gated=True))
    await world.run(1)
    fast = await world.create("quay.io/fast:1", name="fast")
    await world.run(1)
    assert not world.api.is_gated(fast)


async def test_a_pod_in_line_is_not_given_up_before_its_image_was_asked_for(world):
    """PL-330: the window runs from the first attempt for the pod; a slow registry with many images is no failure."""
    original = world.registry.inspect

    async def inspect(reference, **options):
        await world.clock.sleep(55)
        return await original(reference, **options)

    world.registry.inspect = inspect
    for number in range(150):
        image = f"slow.example/app-{number}:1"
        world.registry.set(image, "linux/amd64")
        world.api.create(pod(image, name=f"slow-{number}", gated=True))
    await world.run(6 * 55)
    assert {tuple(world.api.architectures(key) or ()) for key in world.api.pods} == {("amd64",)}


async def test_a_namespace_that_names_many_hosts_that_hang_keeps_only_its_own_pods_waiting(world):
    """PL-851: twenty hosts, or ports, that never answer would otherwise take every place there is."""
    original = world.registry.inspect

    async def inspect(reference, **options):
        if reference.registry.startswith("slow-"):
            await world.clock.sleep(60)
        return await original(reference, **options)

    world.registry.inspect = inspect
    for number in range(400):
        image = f"slow-{number % 20}.example/app-{number}:1"
        world.registry.set(image, "linux/amd64")
        world.api.create(pod(image, name=f"slow-{number}", namespace="tenant", gated=True))
    await world.run(1)
    world.registry.set("quay.io/fast:1", "linux/amd64")
    fast = await world.create("quay.io/fast:1", name="fast")
    await world.run(1)
    assert not world.api.is_gated(fast)
    await world.run(7 * 60)
    assert not any(map(world.api.is_gated, world.api.pods)), "and its own turn comes"
