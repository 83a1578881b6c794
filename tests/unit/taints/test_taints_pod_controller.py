"""Pods without a node: what they get, how long they wait, and what is said of them."""

from typing import Any

import msgspec
import pytest
from fake_pods import FakePods
from placement_world import refused_by_validation, value
from tainted_pods_world import KEY, TaintedPodsWorld, is_watched, settings_of

from polyarch.kube.errors import ConnectionFailed, Forbidden, TooManyRequests, Unavailable
from polyarch.kube.resources import PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import ObjectKey
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform
from polyarch.taints import names

APP = "quay.io/team/app:1"
ARM64 = {"key": KEY, "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}


# -- what the admission missed -----------------------------------------------------------------------------------------


@pytest.mark.req("TN-042", "TN-043")
async def test_a_missed_pod_gets_its_tolerations_with_one_request(world):
    world.registry.set(APP, "linux/amd64", "linux/arm64")
    key = await world.create(APP)
    assert world.cluster.tolerations(key) == [ARM64]
    assert world.cluster.annotations(key) == {names.TOLERATIONS_ANNOTATION: "arm64", names.REASON_ANNOTATION: "Images"}
    assert world.patches(key) == 1
    assert world.heard.events == [], "ordinary success has no event"


@pytest.mark.req("TN-043")
async def test_a_pod_that_lacks_nothing_costs_no_request(world):
    world.registry.set(APP, "linux/amd64", "linux/arm64")
    covered = await world.create(APP, tolerations=[{"operator": "Exists"}])
    world.registry.set("quay.io/team/primary:1", "linux/amd64")
    primary = await world.create("quay.io/team/primary:1", name="primary")
    assert (world.patches(covered), world.patches(primary)) == (0, 0)
    assert world.registry.count(APP) == 0, "and no look-up if no answer could change anything"


@pytest.mark.req("TN-043")
async def test_an_unschedulable_pod_is_not_looked_up_for_ever(world):
    """Its status changes every few minutes; the image was judged."""
    world.registry.set(APP, "linux/amd64")
    key = await world.create(APP)
    for _ in range(10):
        await world.run(300)
        world.cluster.change(key)
        world.cluster.tell(key)
    await world.run(1)
    assert world.registry.count(APP) == 1
    assert world.patches(key) == 0


@pytest.mark.req("TN-026")
async def test_what_the_images_of_a_pod_run_on_is_known_once_it_is_judged(world):
    """So that a pod for another architecture stops the tainting of none."""
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP)
    pod = world.cluster.get(key)
    assert NodePlatform("linux", "arm64") in world.controller.platforms(pod)
    assert NodePlatform("linux", "amd64") not in world.controller.platforms(pod)
    world.registry.set("quay.io/team/gone:1", error="not-found")
    unknown = await world.create("quay.io/team/gone:1", name="unknown")
    assert world.controller.platforms(world.cluster.get(unknown)).is_everything
    made_again = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="another"))
    assert world.controller.platforms(made_again).is_everything


@pytest.mark.req("TN-046")
async def test_a_hundred_pods_of_one_image_cost_one_look_up(world):
    world.registry.set(APP, "linux/arm64")
    keys = [await world.create(APP, name=f"app-{number}", gated=True) for number in range(100)]
    await world.run(5)
    assert world.registry.count(APP) == 1
    assert {tuple(world.cluster.tolerated(key)) for key in keys} == {("arm64",)}
    assert len(world.api.patches) == 100


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("on_timeout", ["primary-only", "keep"])
async def test_a_pod_of_polyarch_itself_that_has_the_gate_loses_it(world, on_timeout):
    """A former version has gated it. Its tolerations come with the answer."""
    world.facts.configure(pods={"onTimeout": on_timeout})
    world.registry.seconds = 20.0
    world.registry.set(APP, "linux/arm64")
    ours = await world.create(APP, namespace=DEFAULT_NAMESPACE, gated=True)
    theirs = await world.create(APP, gated=True)
    await world.run(10)
    assert (world.cluster.has_gate(ours), world.cluster.has_gate(theirs)) == (False, True)
    await world.run(20)
    assert world.cluster.tolerated(ours) == ["arm64"]


@pytest.mark.req("TN-003")
async def test_a_pod_that_placement_keeps_is_left_to_it(world):
    world.registry.set(APP, "linux/arm64")
    world.held.add("app")
    key = await world.create(APP)
    await world.run(30)
    assert (world.patches(key), world.registry.count(APP)) == (0, 0)
    world.held.clear()  # its controller is silent
    await world.run(60)
    assert world.cluster.tolerated(key) == ["arm64"]


@pytest.mark.req("TN-041")
async def test_a_pod_that_opted_out_loses_our_gate_and_gets_nothing(world):
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True, annotations={names.OPT_OUT: names.DISABLED})
    assert not world.cluster.has_gate(key)
    assert world.cluster.tolerations(key) == []


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-046")
async def test_the_patch_that_adds_lifts_the_gate_and_removes_the_label(world):
    world.registry.seconds = 3.0
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True)
    await world.run(2)
    assert world.cluster.has_gate(key)
    await world.run(2)
    assert not world.cluster.has_gate(key)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert names.GATED_LABEL not in world.cluster.labels(key)
    assert world.patches(key) == 1
    assert value(world.registry_of_metrics, "polyarch_taints_gate_seconds_count") == 1.0


@pytest.mark.req("TN-046")
async def test_known_images_restrict_what_a_fallback_adds(world_of):
    world = world_of(pods={"onUnknown": "all"})
    world.registry.set(APP, "linux/arm64", "linux/amd64")
    world.registry.set("quay.io/team/broken:1", error="network")
    key = await world.create(APP, "quay.io/team/broken:1")
    await world.run(1)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert world.cluster.annotations(key)[names.REASON_ANNOTATION] == "AllFallback"


@pytest.mark.req("TN-048")
@pytest.mark.parametrize(
    ("on_timeout", "tolerated", "reason"),
    [
        pytest.param("primary-only", ["amd64"], "PrimaryFallback", id="the primary architectures"),
        pytest.param("all", list(ASSUMED_ARCHITECTURES), "AllFallback", id="all"),
        pytest.param("none", [], None, id="none"),
    ],
)
async def test_when_the_time_is_over_the_policy_applies_and_the_gate_goes(world_of, on_timeout, tolerated, reason):
    world = world_of(mode="tolerations", pods={"gateTimeout": "1m", "onTimeout": on_timeout})
    world.registry.set(APP, error="network")
    key = await world.create(APP, gated=True)
    await world.run(59)
    assert world.cluster.has_gate(key)
    await world.run(2)
    assert not world.cluster.has_gate(key)
    assert world.cluster.tolerated(key) == tolerated
    assert world.cluster.annotations(key).get(names.REASON_ANNOTATION) == reason
    assert world.heard.reasons == ["ArchitectureUnknown", "ArchitectureGateTimeout"]


@pytest.mark.req("TN-048")
async def test_an_answer_after_the_time_completes_the_pod(world_of):
    world = world_of(mode="tolerations", pods={"gateTimeout": "10s"})
    world.registry.set(APP, error="network")
    key = await world.create(APP, gated=True)
    await world.run(12)
    assert world.cluster.tolerated(key) == ["amd64"]
    world.registry.set(APP, "linux/amd64", "linux/arm64")
    await world.run(120)
    assert world.cluster.tolerated(key) == ["amd64", "arm64"]
    assert world.patches(key) == 2


@pytest.mark.req("TN-048")
async def test_keep_keeps_the_gate_and_says_so_every_hour(world_of):
    world = world_of(pods={"gateTimeout": "10s", "onTimeout": "keep"})
    world.registry.set(APP, error="not-found")
    key = await world.create(APP, gated=True)
    await world.run(3 * 3600 + 60)
    assert world.cluster.has_gate(key)
    assert world.heard.reasons.count("ArchitectureGateTimeout") == 4
    assert world.heard.reasons.count("ArchitectureUnknown") == 1
    world.registry.set(APP, "linux/arm64")
    await world.run(90)
    assert not world.cluster.has_gate(key)
    assert world.cluster.tolerated(key) == ["arm64"]


@pytest.mark.req("TN-092")
async def test_the_time_counts_from_the_pods_creation_whoever_leads(world):
    """A new leader neither starts again nor gives up before it has asked."""
    world.registry.set(APP, error="network")
    key = await world.create(APP, gated=True, age=290.0)
    await world.run(9)
    assert world.cluster.has_gate(key)
    await world.run(2)
    assert not world.cluster.has_gate(key)


@pytest.mark.req("TN-092")
async def test_after_a_long_absence_of_every_leader_an_answer_counts_and_no_fallback(world):
    world.registry.seconds = 2.0
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True, age=7200.0)
    await world.run(3)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert (world.patches(key), world.heard.reasons) == (1, [])


@pytest.mark.req("TN-092")
async def test_a_registry_that_hangs_keeps_no_pod_beyond_its_time(world_of):
    world = world_of(pods={"gateTimeout": "10s"})
    world.registry.seconds = 3600.0
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True)
    await world.run(11)
    assert not world.cluster.has_gate(key)


@pytest.mark.req("TN-048")
@pytest.mark.parametrize("state", ["paused", "removing", None])
async def test_while_paused_or_removed_every_gate_is_lifted(world, state):
    world.registry.set(APP, error="network")
    keys = [await world.create(APP, name=f"app-{number}", gated=True) for number in range(20)]
    await world.run(5)
    world.facts.become(settings_of(state=state) if state else None)
    await world.run(1)
    assert not any(world.cluster.has_gate(key) for key in keys)
    assert not any(world.cluster.tolerations(key) for key in keys)


@pytest.mark.req("TN-010")
async def test_while_paused_a_missed_pod_gets_nothing(world_of):
    world = world_of(state="paused")
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP)
    assert world.patches(key) == 0


# -- what nobody can run -----------------------------------------------------------------------------------------------


@pytest.mark.req("TN-047")
async def test_no_common_architecture_is_said_once_and_never_gates(world):
    world.registry.set(APP, "linux/arm64")
    world.registry.set("quay.io/team/sidecar:1", "linux/s390x")
    key = await world.create(APP, "quay.io/team/sidecar:1", gated=True)
    world.cluster.change(key)
    world.cluster.tell(key)
    await world.run(60)
    assert not world.cluster.has_gate(key)
    assert world.cluster.tolerations(key) == []
    ((_, event),) = world.heard.events
    assert event.reason == "NoCommonArchitecture"
    assert "app:1" in event.note
    assert "sidecar:1" in event.note
    assert world.controller.blocked == 1


@pytest.mark.req("RG-046", "TN-047")
async def test_an_index_of_an_operator_bundle_restricts_nothing(world):
    """It is looked at more closely before a pod counts as impossible."""
    reference = parse(APP)
    world.registry.set(APP, "linux/s390x")
    world.registry.set("quay.io/team/tool:1", "linux/arm64", "linux/amd64")
    world.registry.bundles[reference.canonical] = Inspection(reference, Status.NEUTRAL, checked_at=0.0, public=True)
    key = await world.create(APP, "quay.io/team/tool:1", gated=True)
    await world.run(2)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert world.heard.events == []


# -- events and retries ------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-046")
async def test_one_warning_per_pod_and_cause(world):
    world.registry.set(APP, error="network")
    await world.create(APP, gated=True)
    await world.run(100)
    assert world.heard.reasons == ["ArchitectureUnknown"]
    world.registry.set(APP, error="not-found")
    await world.run(190)
    assert world.heard.reasons == ["ArchitectureUnknown", "ArchitectureUnknown"]
    assert all(APP in event.note for _, event in world.heard.events)


@pytest.mark.req("TN-046")
async def test_the_warning_names_a_pull_secret_that_is_not_there(world):
    world.registry.set(APP, error="unauthorized")
    await world.create(APP, gated=True, secrets=["pull"])
    await world.run(2)
    ((_, event),) = world.heard.events
    assert "team/pull" in event.note


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        pytest.param("network", 6, 12, id="transient: one second to two minutes"),
        pytest.param("not-found", 5, 7, id="absent: every minute"),
        pytest.param("unauthorized", 2, 4, id="auth: every two minutes"),
    ],
)
async def test_an_image_is_asked_for_as_its_failure_deserves(world_of, error, least, most):
    world = world_of(pods={"gateTimeout": "1h"})
    world.registry.set(APP, error=error)
    await world.create(APP, gated=True)
    await world.run(300)
    assert least <= world.registry.count(APP) <= most


@pytest.mark.req("TN-094")
async def test_no_retry_is_lost_however_long_a_registry_is_away(world_of):
    world = world_of(pods={"gateTimeout": "1h"})
    world.registry.set(APP, error="network")
    key = await world.create(APP, gated=True)
    await world.run(1500)
    world.registry.set(APP, "linux/arm64")
    await world.run(160)
    assert world.cluster.tolerated(key) == ["arm64"]


@pytest.mark.req("TN-046")
async def test_a_changed_pull_secret_is_tried_within_seconds(world_of):
    """Not after the two minutes of failures with auth."""
    world = world_of(pods={"gateTimeout": "1h"})
    image = "registry.example/team/private:1"
    canonical = world.registry.set(image, "linux/arm64")
    world.registry.needs_credentials.add(canonical)
    world.registry.accepts[canonical] = "right"
    world.reader.put("team", "pull", password="wrong")
    key = await world.create(image, gated=True, secrets=["pull"])
    await world.run(130)
    assert world.cluster.has_gate(key)
    asked = world.registry.count(image)
    world.reader.put("team", "pull", password="right")
    await world.run(17)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert world.registry.count(image) == asked + 1


# -- the API server ----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-092")
async def test_a_pod_that_changed_meanwhile_is_decided_again(world):
    world.registry.seconds = 1.0
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True)
    world.cluster.change(key, annotations={"by": "somebody"})  # the watch has not told yet
    await world.run(2)
    assert world.cluster.has_gate(key)
    world.cluster.tell(key)
    await world.run(1)
    assert world.cluster.tolerated(key) == ["arm64"]
    assert world.cluster.annotations(key)["by"] == "somebody"


@pytest.mark.req("TN-092")
@pytest.mark.parametrize(
    "failure", [Unavailable(503, reason="ServiceUnavailable"), ConnectionFailed("refused", host="api.example")]
)
async def test_after_an_outage_of_the_api_server_nothing_is_lost_or_doubled(world, failure):
    world.registry.set(APP, "linux/arm64")
    world.cluster.refuse(failure)
    keys = [await world.create(APP, name=f"app-{number}", gated=True) for number in range(30)]
    await world.run(30)
    world.api.allow()
    await world.run(16)
    assert {tuple(world.cluster.tolerated(key)) for key in keys} == {("arm64",)}
    assert not any(world.cluster.has_gate(key) for key in keys)


@pytest.mark.req("TN-048")
async def test_a_pod_whose_tolerations_are_refused_loses_its_gate_when_its_time_is_over(world_of):
    """Whatever a policy of the cluster says about tolerations."""
    world = world_of(mode="tolerations", pods={"gateTimeout": "10s"})
    world.registry.set(APP, error="network")
    api = world.api
    plain = api.patch

    async def patch(resource, name, patch, *, namespace=""):
        if any(each.path.startswith("/spec/tolerations") for each in patch.operations):
            raise refused_by_validation()
        return await plain(resource, name, patch, namespace=namespace)

    api.patch = patch
    key = await world.create(APP, gated=True)
    await world.run(20)
    assert not world.cluster.has_gate(key)
    assert value(world.registry_of_metrics, "polyarch_taints_writes_total", kind="pod", result="refused") >= 1


# -- several replicas --------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-003")
async def test_a_standby_writes_nothing_and_asks_nobody(world_of):
    world = world_of(leading=False)
    world.registry.set(APP, "linux/arm64")
    key = await world.create(APP, gated=True)
    await world.run(60)
    assert (world.patches(key), world.registry.count(APP)) == (0, 0)
    await world.lead()
    await world.run(1)
    assert world.cluster.tolerated(key) == ["arm64"]


@pytest.mark.req("TN-092")
async def test_a_standby_lifts_the_gate_that_a_dead_leader_left(world_of):
    """Its Lease would hold for longer than the ten seconds that a pod may wait beyond its time."""
    world = world_of(leading=False, pods={"gateTimeout": "30s"})
    world.registry.set(APP, error="network")
    key = await world.create(APP, gated=True)
    await world.run(34)
    assert world.cluster.has_gate(key)
    await world.run(5)
    assert not world.cluster.has_gate(key)
    assert world.heard.events == [], "events are the leader's"


@pytest.mark.req("TN-092")
async def test_two_writers_add_a_toleration_once(world_of):
    cluster = FakePods(shows=is_watched)
    first, second = world_of(cluster=cluster), world_of(cluster=cluster)
    for world in (first, second):
        world.registry.set(APP, "linux/arm64")
    cluster.on_event = lambda key: (first.pods.add(key), second.pods.add(key))
    key = await first.create(APP, gated=True)
    await second.run(10)
    await first.run(10)
    assert cluster.tolerated(key) == ["arm64"]


# -- what nodes ask ----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-025")
async def test_pods_that_may_be_for_an_architecture_and_wait_are_named(world_of):
    world = world_of(mode="both")
    world.registry.set(APP, "linux/arm64")
    world.registry.set("quay.io/team/slow:1", error="network")
    await world.create(APP, name="known", gated=True)
    await world.create("quay.io/team/slow:1", name="waits", gated=True)
    await world.create(APP, "quay.io/team/slow:1", name="arm", gated=True)
    await world.run(1)
    assert world.controller.undecided("arm64") == ["team/waits", "team/arm"]
    assert world.controller.undecided("amd64") == ["team/waits"]


@pytest.mark.req("TN-025")
@pytest.mark.parametrize(("on_timeout", "waits"), [("primary-only", []), ("none", []), ("keep", ["team/app"])])
async def test_a_pod_whose_time_is_over_holds_no_node_back(world_of, on_timeout, waits):
    """An image that never answers would do so for ever; it is unknown nevertheless."""
    world = world_of(mode="both", pods={"gateTimeout": "10s", "onTimeout": on_timeout})
    world.registry.set(APP, error="not-found")
    await world.create(APP, gated=True)
    await world.run(9)
    assert world.controller.undecided("arm64") == ["team/app"]
    await world.run(2)
    assert world.controller.undecided("arm64") == waits
    assert world.controller.unknown == 1


@pytest.mark.req("TN-025")
async def test_nobody_is_called_decided_before_every_pod_was_looked_at(world_of):
    world = world_of(leading=False)
    world.registry.set(APP, "linux/arm64")
    await world.create(APP)
    assert world.controller.undecided("arm64") is None
    world.leading = True
    assert world.controller.undecided("arm64") is None
    await world.lead()
    await world.run(1)
    assert world.controller.undecided("arm64") == []


@pytest.mark.req("TN-025")
async def test_a_pod_that_is_being_deleted_holds_no_node_back(world_of):
    """Somebody's finalizer may keep it without a node for ever."""
    world = world_of(mode="both")
    document = world.document(APP, name="leaving")
    document["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/keeps"]}
    world.cluster.create(document)
    await world.run(1)
    assert world.controller.undecided("amd64") == []


@pytest.mark.req("TN-025")
async def test_a_pod_whose_change_is_refused_holds_no_node_back(world_of):
    """A policy of the cluster may refuse it for ever."""
    world = world_of(mode="both")
    world.registry.set(APP, "linux/arm64")
    world.cluster.refuse(refused_by_validation())
    await world.create(APP)
    await world.run(1)
    assert world.api.patches, "it was tried"
    assert world.controller.undecided("arm64") == []


# -- changed images ----------------------------------------------------------------------------------------------------

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "u", "controller": True}


async def changed(
    world: TaintedPodsWorld, *platforms: str, error: str = "", owner: dict[str, Any] | None = OWNER
) -> ObjectKey:
    """A pod on a node that got tolerations for arm64 and s390x, whose image was changed since then."""
    world.registry.set(APP, *platforms, error=error)
    document = world.document(
        APP,
        nodeName="worker",
        labels={names.GATED_LABEL: names.CHANGED},
        annotations={names.TOLERATIONS_ANNOTATION: "arm64,s390x", names.REASON_ANNOTATION: "Images"},
        tolerations=[{**ARM64, "value": each} for each in ("arm64", "s390x")],
    )
    document["metadata"]["ownerReferences"] = [owner] if owner else []
    key = world.cluster.create(document)
    await world.run(1)
    return key


@pytest.mark.req("TN-048")
async def test_the_label_of_a_changed_pod_keeps_no_gate_beyond_its_time(world_of):
    """Whoever may change pods may write that label."""
    world = world_of(pods={"gateTimeout": "30s"})
    world.registry.set(APP, error="network")
    key = world.cluster.create(world.document(APP, gated=True, labels={}))
    world.cluster.stored[key]["metadata"]["labels"][names.GATED_LABEL] = names.CHANGED
    world.cluster.tell(key)
    await world.run(40)
    assert not world.cluster.has_gate(key)


@pytest.mark.req("TN-049")
async def test_what_an_image_no_longer_justifies_is_said_once(world):
    key = await changed(world, "linux/arm64", "linux/amd64")
    ((_, event),) = world.heard.events
    assert event.reason == "ArchitectureSetShrunk"
    assert "s390x" in event.note
    assert names.GATED_LABEL not in world.cluster.labels(key), "the label goes last"
    assert world.api.evicted == []


@pytest.mark.req("TN-049")
async def test_what_a_changed_image_justifies_is_added(world):
    key = await changed(world, "linux/arm64", "linux/s390x", "linux/ppc64le")
    assert world.cluster.tolerated(key) == ["arm64", "s390x", "ppc64le"]
    assert world.heard.events == []


@pytest.mark.req("TN-049")
async def test_evict_evicts_through_the_api_and_respects_budgets(world_of):
    world = world_of(pods={"imageChange": "evict"})
    world.api.refuse(PODS, "evict", error=TooManyRequests(429, reason="TooManyRequests"))
    key = await changed(world, "linux/amd64")
    await world.run(30)
    assert world.api.evicted == []
    world.api.allow()
    await world.run(11)
    assert world.api.evicted == [key]
    assert world.heard.reasons == ["ArchitectureSetShrunk"]


@pytest.mark.req("TN-049")
async def test_an_eviction_that_is_refused_is_asked_for_once_a_minute_and_told_once(world_of, capsys):
    """Not by a budget, which may change any moment, but for the lack of a right or by somebody's webhook."""
    world = world_of(pods={"imageChange": "evict"})
    asked = []

    async def evict(namespace, pod, *, uid=None):
        asked.append(pod)
        raise Forbidden(403, message="no")

    world.api.evict = evict
    await changed(world, "linux/amd64")
    await world.run(300)
    assert 5 <= len(asked) <= 6
    assert capsys.readouterr().out.count("could not be evicted") == 1


@pytest.mark.req("TN-049")
@pytest.mark.parametrize(
    "owner",
    [None, {**OWNER, "controller": False}, {"kind": "Node", "name": "worker", "uid": "u", "controller": True}],
    ids=["nobody", "an owner that does not control it", "a node"],
)
async def test_a_pod_that_nobody_recreates_is_not_evicted(world_of, owner):
    world = world_of(pods={"imageChange": "evict"})
    key = await changed(world, "linux/amd64", owner=owner)
    assert world.api.evicted == []
    assert names.GATED_LABEL not in world.cluster.labels(key)
    assert world.heard.reasons == ["ArchitectureSetShrunk"]


@pytest.mark.req("TN-049")
async def test_while_an_answer_is_missing_nothing_counts_as_lost(world_of):
    world = world_of(pods={"imageChange": "evict"})
    key = await changed(world, error="network")
    await world.run(1)
    assert world.api.evicted == []
    assert names.GATED_LABEL in world.cluster.labels(key), "somebody still has to finish"
    world.registry.set(APP, "linux/amd64")
    await world.run(5)
    assert world.api.evicted == [key]


@pytest.mark.req("TN-010")
async def test_while_paused_a_changed_pod_waits(world_of):
    world = world_of(state="paused", pods={"imageChange": "evict"})
    key = await changed(world, "linux/amd64")
    assert (world.api.patches, world.api.evicted, world.heard.events) == ([], [], [])
    world.facts.configure(pods={"imageChange": "evict"})
    await world.run(1)
    assert world.api.evicted == [key]


@pytest.mark.req("TN-083")
async def test_an_alert_can_see_how_old_the_oldest_gate_is(world_of):
    """By the time at which the pod was created, whoever gated it."""
    world = world_of(leading=False)
    assert world.controller.oldest_gates() == {}
    await world.create(APP, name="young", gated=True, age=5.0)
    await world.create(APP, name="old", gated=True, age=20.0)
    await world.create(APP, name="free", age=90.0)
    assert [*world.controller.oldest_gates().values()] == [20.0]
