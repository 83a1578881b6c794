"""Tolerations at admission and with placement's release."""

import asyncio
from typing import Any

import msgspec
import pytest
from placement_world import OPERATOR, pod, resolved
from taint_world import BOTH, TaintWorld, is_gated, stored, tolerated, with_addition

from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation
from polyarch.kube.admission import AdmissionRequest, GroupVersionKind, GroupVersionResource, UserInfo
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse
from polyarch.taints import names
from polyarch.taints.webhook import POD_BUDGET

ARM64 = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}


def changed(document: dict[str, Any], *images: str) -> dict[str, Any]:
    """The pod with other images."""
    containers = [{**each, "image": image} for each, image in zip(document["spec"]["containers"], images, strict=True)]
    return {**document, "spec": {**document["spec"], "containers": containers}}


def asked(document: dict[str, Any], world: TaintWorld) -> AdmissionRequest[Pod]:
    """As placement hands it on."""
    return AdmissionRequest(
        uid="u",
        operation="CREATE",
        object=msgspec.convert(document, Pod),
        old_object=None,
        kind=GroupVersionKind(),
        resource=GroupVersionResource(),
        sub_resource="",
        name="",
        namespace="team",
        dry_run=False,
        user=UserInfo(),
        timeout_seconds=5.0,
        arrived_at=world.clock.monotonic(),
        is_proven=True,
        body=b"",
    )


async def beside_placement(
    world: TaintWorld, document: dict[str, Any], alongside: MutationContext, **answers: Any
) -> PodMutation:
    return await world.pods.at_admission(
        asked(document, world), answers, alongside, until=world.clock.monotonic() + POD_BUDGET
    )


# -- the own route -----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-040", "TN-042", "TN-091")
async def test_a_pod_of_a_known_image_gets_its_tolerations_without_a_request(taint_world):
    taint_world.registry.know("app:1", *BOTH)
    answer = await taint_world.admit(pod("app:1", tolerations=[{"key": "own", "operator": "Exists"}]))
    assert answer.object["spec"]["tolerations"] == [
        {"key": "own", "operator": "Exists"},
        {**ARM64, "value": "amd64"},
        ARM64,
    ]
    assert answer.object["metadata"]["annotations"] == {
        "polyarch.dev/tolerations": "amd64,arm64",
        "polyarch.dev/tolerations-reason": "Images",
    }
    assert taint_world.registry.asked == []
    assert taint_world.reader.gets == {}


@pytest.mark.req("TN-032")
async def test_a_second_call_on_our_own_output_changes_nothing(taint_world):
    """As when the API server reinvokes the webhook, or both features' webhooks see the pod."""
    taint_world.registry.know("app:1", *BOTH)
    answer = await taint_world.admit((await taint_world.admit(pod("app:1"))).object)
    assert answer.paths == []


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("policy", ["gate", "primary-only", "all", "none"])
async def test_a_pod_of_polyarch_itself_is_never_gated(taint_worlds, policy):
    """Who lifts the gates may be the one that waits, or the operator whose tolerations are not those in force."""
    world = await taint_worlds(pods={"onUnknown": policy})
    world.registry.seconds = 3.0
    world.registry.set("cold:1", *BOTH)
    ours = await world.admit(pod("cold:1", namespace=OPERATOR), seconds=POD_BUDGET)
    theirs = await world.admit(pod("cold:1"), seconds=POD_BUDGET)
    assert not ours.is_gated
    assert names.GATED_LABEL not in (ours.object["metadata"].get("labels") or {})
    assert theirs.is_gated == (policy == "gate")
    assert ours.tolerated == theirs.tolerated
    await world.clock.run(3)
    assert (await world.admit(pod("cold:1", namespace=OPERATOR))).tolerated == ["amd64", "arm64"]


@pytest.mark.req("TN-040")
async def test_an_image_that_is_not_known_is_looked_up_within_the_budget(taint_world):
    taint_world.registry.seconds = POD_BUDGET / 2
    taint_world.registry.set("cold:1", *BOTH)
    answer = await taint_world.admit(pod("cold:1"), seconds=POD_BUDGET)
    assert answer.tolerated == ["amd64", "arm64"]
    assert not answer.is_gated


@pytest.mark.req("TN-046", "TN-091")
async def test_a_slow_registry_gates_the_pod_and_serves_the_next_one(taint_world):
    """Our own gate and label, and one look-up for all pods of the image."""
    taint_world.registry.seconds = 3.0
    taint_world.registry.set("cold:1", *BOTH)
    answer = await taint_world.admit(pod("cold:1"), seconds=POD_BUDGET)
    assert answer.is_gated
    assert answer.object["metadata"]["labels"] == {names.GATED_LABEL: "gated"}
    assert answer.tolerated == []
    await taint_world.clock.run(3)
    again = await taint_world.admit(pod("cold:1"))
    assert again.tolerated == ["amd64", "arm64"]
    assert taint_world.registry.count("cold:1") == 1


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(
    ("on_unknown", "expected"),
    [("primary-only", ["amd64"]), ("all", ["amd64", "arm64"]), ("none", [])],
)
async def test_the_policy_says_what_a_missing_answer_means(taint_worlds, on_unknown, expected):
    world = await taint_worlds(pods={"onUnknown": on_unknown})
    world.registry.busy.add("docker.io")
    answer = await world.admit(pod("cold:1"))
    assert answer.tolerated == expected
    assert not answer.is_gated


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("silent", ["for 30 seconds", "from the beginning"])
async def test_no_gate_while_nobody_would_lift_it(taint_world, silent):
    """The Lease of the leader; the pod passes and is completed later."""
    if silent == "for 30 seconds":
        taint_world.clock.advance(30)
    else:
        taint_world.watches["leases"].remove(names.LEASE, "polyarch-system")
    taint_world.registry.busy.add("docker.io")
    answer = await taint_world.admit(pod("cold:1"))
    assert answer.paths == []
    taint_world.renew()
    assert (await taint_world.admit(pod("cold:1"))).is_gated


@pytest.mark.req("TN-047")
@pytest.mark.parametrize("action", ["admit", "deny"])
async def test_images_without_a_common_architecture(taint_worlds, action):
    """No toleration, no gate; with ``deny`` 403 with the decision's sentence."""
    world = await taint_worlds(pods={"onNoCommon": action})
    world.registry.know("app:1", "linux/amd64")
    world.registry.know("old:1", "linux/arm64")
    answer = await world.admit(pod("app:1", "old:1"))
    assert answer.paths == []
    assert answer.response["allowed"] is (action == "admit")
    if action == "deny":
        assert answer.response["status"]["code"] == 403
        assert "app:1" in answer.response["status"]["message"]
        assert "old:1" in answer.response["status"]["message"]


@pytest.mark.req("RG-046", "TN-047")
async def test_an_operator_bundle_is_no_reason_to_refuse_a_pod(taint_worlds):
    """The platforms of its index say nothing of where it runs, which a closer look shows."""
    world = await taint_worlds(pods={"onNoCommon": "deny"})
    world.registry.know("app:1", "linux/amd64")
    world.registry.know("bundle:1", "linux/arm64")
    reference = parse("bundle:1")
    world.registry.bundles[reference.canonical] = Inspection(reference, Status.NEUTRAL, public=True)
    assert (await world.admit(pod("app:1", "bundle:1"))).tolerated == ["amd64"]


@pytest.mark.req("RG-046", "TN-047")
async def test_a_pod_is_not_refused_before_its_indexes_were_looked_at(taint_worlds):
    """Without the time for it, its images count as unknown."""
    world = await taint_worlds(pods={"onNoCommon": "deny"})
    world.registry.know("app:1", "linux/amd64")
    world.registry.know("old:1", "linux/arm64")
    world.registry.seconds = 3.0
    answer = await world.admit(pod("app:1", "old:1"), seconds=POD_BUDGET)
    assert answer.response["allowed"]
    assert answer.is_gated
    await world.clock.run(3)
    assert not (await world.admit(pod("app:1", "old:1"))).response["allowed"]


@pytest.mark.req("TN-041")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"annotations": {"polyarch.dev/taints": "disabled"}}, id="opted out"),
        pytest.param({"namespace": "batch-7"}, id="in an excluded namespace"),
        pytest.param({"nodeName": "node"}, id="bound by its author"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, id="covered"),
    ],
)
async def test_pods_that_are_not_touched(taint_worlds, change):
    """And no image of theirs is asked for."""
    world = await taint_worlds(pods={"excludeNamespaces": ["batch-*"]})
    answer = await world.admit(pod("app:1", **change))
    assert answer.paths == []
    assert world.registry.asked == []


@pytest.mark.req("TN-041")
async def test_a_system_pod_is_no_exception(taint_world):
    taint_world.registry.know("proxy:1", *BOTH)
    assert (await taint_world.admit(pod("proxy:1", namespace="kube-system"))).tolerated == ["amd64", "arm64"]


@pytest.mark.req("TN-041")
async def test_a_namespace_that_opts_out(taint_world):
    taint_world.registry.know("app:1", *BOTH)
    labels = {"polyarch.dev/taints": "disabled"}
    taint_world.watches["namespaces"].put({"metadata": {"name": "team", "labels": labels}})
    assert (await taint_world.admit(pod("app:1"))).paths == []


@pytest.mark.req("TN-010")
async def test_without_the_object_nothing_happens(taint_world):
    taint_world.registry.know("app:1", *BOTH)
    taint_world.watches["architecturetaints"].remove("cluster")
    assert (await taint_world.admit(pod("app:1"))).paths == []


# -- an update of an image ---------------------------------------------------------------------------------------------


@pytest.mark.req("TN-049")
async def test_what_the_new_image_justifies_is_added_in_the_same_request(taint_world):
    """Also on a pod that runs."""
    taint_world.registry.know("app:1", "linux/amd64")
    taint_world.registry.know("app:2", *BOTH)
    running = (await taint_world.admit(pod("app:1"))).object
    running["spec"]["nodeName"] = "node"
    answer = await taint_world.admit(changed(running, "app:2"), old=running)
    assert answer.tolerated == ["amd64", "arm64"]
    assert answer.object["metadata"]["annotations"][names.TOLERATIONS_ANNOTATION] == "amd64,arm64"


@pytest.mark.req("TN-049")
@pytest.mark.parametrize("policy", ["event", "evict", "deny"])
async def test_architectures_that_the_new_image_lacks(taint_worlds, policy):
    """Refused with ``deny``, told to the user otherwise; nothing is removed, which the API would refuse."""
    world = await taint_worlds(pods={"imageChange": policy})
    world.registry.know("app:1", *BOTH)
    world.registry.know("app:2", "linux/amd64")
    running = (await world.admit(pod("app:1"))).object
    answer = await world.admit(changed(running, "app:2"), old=running)
    assert answer.response["allowed"] is (policy != "deny")
    if policy == "deny":
        assert answer.response["status"]["code"] == 403
        assert "arm64" in answer.response["status"]["message"]
    else:
        assert answer.tolerated == ["amd64", "arm64"]
        assert answer.object["metadata"]["labels"] == {names.GATED_LABEL: names.CHANGED}, "for events and evictions"
        [warning] = answer.warnings
        assert "arm64" in warning


@pytest.mark.req("RG-046", "TN-049")
async def test_an_operator_bundle_is_no_reason_to_refuse_an_update(taint_worlds):
    """Its index names platforms, and it runs on none of them."""
    world = await taint_worlds(pods={"imageChange": "deny"})
    world.registry.know("app:1", *BOTH)
    world.registry.know("bundle:1", "linux/amd64")
    reference = parse("bundle:1")
    world.registry.bundles[reference.canonical] = Inspection(reference, Status.NEUTRAL, public=True)
    running = (await world.admit(pod("app:1"))).object
    assert (await world.admit(changed(running, "bundle:1"), old=running)).response["allowed"] is True


@pytest.mark.req("TN-049")
async def test_an_image_that_is_not_known_in_time_is_left_to_the_leader(taint_world):
    """Which the label tells, and which removes it; until then no update takes it away."""
    taint_world.registry.know("app:1", *BOTH)
    running = (await taint_world.admit(pod("app:1", labels={"a": "b"}))).object
    taint_world.registry.busy.add("docker.io")
    changing = (await taint_world.admit(changed(running, "cold:1"), old=running)).object
    assert changing["metadata"]["labels"] == {"a": "b", names.GATED_LABEL: names.CHANGED}
    back = await taint_world.admit(changed(changing, "app:1"), old=changing)
    assert back.paths == []


@pytest.mark.req("TN-046", "TN-049")
async def test_a_pod_under_our_gate_whose_image_changes_stays_gated_or_is_released(taint_world):
    """The gate waits for the new image; if it is known, the update lifts the gate."""
    taint_world.registry.know("app:1", *BOTH)
    taint_world.registry.busy.add("docker.io")
    waiting = (await taint_world.admit(pod("cold:1"))).object
    assert (await taint_world.admit(changed(waiting, "cold:2"), old=waiting)).paths == []
    released = await taint_world.admit(changed(waiting, "app:1"), old=waiting)
    assert not released.is_gated
    assert released.tolerated == ["amd64", "arm64"]
    assert names.GATED_LABEL not in released.object["metadata"]["labels"]


@pytest.mark.req("TN-040", "TN-049")
async def test_another_update_is_none_of_our_business(taint_world):
    """The webhook's match condition keeps such calls away; one that comes changes nothing."""
    taint_world.registry.know("app:1", *BOTH)
    document = pod("app:1")
    assert (
        await taint_world.admit({**document, "metadata": {**document["metadata"], "labels": {}}}, old=document)
    ).paths == []


@pytest.mark.req("TN-049")
async def test_no_gate_is_added_to_a_pod_that_exists(taint_world):
    """The API would refuse it."""
    taint_world.registry.know("app:1", *BOTH)
    taint_world.registry.busy.add("docker.io")
    document = (await taint_world.admit(pod("app:1"))).object
    answer = await taint_world.admit(changed(document, "cold:1"), old=document)
    assert answer.response["allowed"]
    assert not answer.is_gated


# -- beside placement --------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-003")
async def test_the_answers_of_placement_are_used(taint_world):
    """Nobody is asked again."""
    answer = {"app:1": resolved(parse("app:1"), *BOTH)}
    added = await beside_placement(taint_world, pod("app:1"), MutationContext(), **answer)
    assert tolerated(with_addition(pod("app:1"), added)["spec"]) == ["amd64", "arm64"]
    assert taint_world.registry.asked == []


@pytest.mark.req("TN-003", "TN-046")
@pytest.mark.parametrize("known", [True, False])
async def test_a_pod_that_placement_gates_is_left_for_its_release(taint_world, known):
    """One gate and one PATCH, whether our answer is there or not."""
    answers = {"app:1": resolved(parse("app:1"), *BOTH)} if known else {}
    assert await beside_placement(taint_world, pod("app:1"), MutationContext(gated=True), **answers) is NO_MUTATION
    assert taint_world.registry.asked == []


@pytest.mark.req("TN-047")
async def test_a_pod_that_placement_would_gate_is_refused_all_the_same(taint_worlds):
    world = await taint_worlds(pods={"onNoCommon": "deny"})
    for name, arch in (("a:1", "amd64"), ("b:1", "arm64")):
        world.registry.know(name, f"linux/{arch}")
    answers = {name: resolved(parse(name), f"linux/{arch}") for name, arch in (("a:1", "amd64"), ("b:1", "arm64"))}
    added = await beside_placement(world, pod("a:1", "b:1"), MutationContext(gated=True), **answers)
    assert added.denial
    assert added.operations == ()


@pytest.mark.req("TN-031")
async def test_the_operating_system_that_placement_writes_decides(taint_world):
    """In the same patch."""
    answer = {"app:1": resolved(parse("app:1"), "linux/amd64", "windows/amd64", "windows/arm64")}
    as_linux = await beside_placement(taint_world, pod("app:1"), MutationContext(), **answer)
    as_windows = await beside_placement(taint_world, pod("app:1"), MutationContext(os="windows"), **answer)
    assert tolerated(with_addition(pod("app:1"), as_linux)["spec"]) == ["amd64"]
    assert tolerated(with_addition(pod("app:1"), as_windows)["spec"]) == ["amd64", "arm64"]


@pytest.mark.req("TN-003")
async def test_the_release_by_placement_carries_the_tolerations(taint_world):
    """Without tests of uid and version, which placement's PATCH has."""
    document = pod("app:1", gated=True)
    answer = {"app:1": resolved(parse("app:1"), *BOTH)}
    added = taint_world.pods.at_release(stored(document), answer, MutationContext())
    assert tolerated(with_addition(document, added)["spec"]) == ["amd64", "arm64"]
    assert {operation.op for operation in added.operations} == {"add"}


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(
    ("on_timeout", "expected"), [("primary-only", ["amd64"]), ("all", ["amd64", "arm64"]), ("none", []), ("keep", [])]
)
async def test_a_release_without_answers_is_the_end_of_waiting(taint_worlds, on_timeout, expected):
    """``onTimeout`` applies; a gate of ours cannot be added any more."""
    world = await taint_worlds(pods={"onTimeout": on_timeout})
    document = pod("app:1", gated=True)
    after = with_addition(document, world.pods.at_release(stored(document), {}, MutationContext()))
    assert tolerated(after["spec"]) == expected
    assert not is_gated(after)
    assert world.registry.asked == [], "nobody waits for a registry now"


@pytest.mark.req("TN-046", "TN-048")
async def test_with_keep_our_own_gate_stays_when_placement_lifts_its_own(taint_worlds):
    """A pod that placement took over later."""
    world = await taint_worlds(pods={"onTimeout": "keep"})
    document = pod("app:1", schedulingGates=[{"name": names.GATE}], labels={names.GATED_LABEL: "gated"}, gated=True)
    assert is_gated(with_addition(document, world.pods.at_release(stored(document), {}, MutationContext())))


@pytest.mark.req("TN-003")
async def test_an_error_of_ours_costs_no_pod_its_placement(taint_world, capsys):
    """It is counted, and logged with its traceback once."""

    def broken(reference: Any, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    taint_world.registry.peek = broken
    for _ in range(2):
        assert await beside_placement(taint_world, pod("app:1"), MutationContext()) is NO_MUTATION
    assert taint_world.pods.at_release(stored(pod("app:1")), {}, MutationContext()) is NO_MUTATION
    assert taint_world.bugs == 3
    assert capsys.readouterr().out.count("Traceback") == 1


@pytest.mark.req("TN-083")
async def test_decisions_are_counted_by_their_reason(taint_world):
    taint_world.registry.know("app:1", *BOTH)
    await taint_world.admit(pod("app:1"))
    await taint_world.admit(pod("app:1", tolerations=[{"operator": "Exists"}]))
    exposed = taint_world.metrics.render()[0].decode()
    assert 'polyarch_taints_pods_total{decision="Images"} 1.0' in exposed
    assert 'polyarch_taints_pods_total{decision="Covered"} 1.0' in exposed


@pytest.mark.req("TN-040", "TN-091")
async def test_the_warm_path_awaits_nothing(taint_world):
    """Not one turn of the event loop lies between the request and its answer."""
    taint_world.registry.know("app:1", *BOTH)
    with pytest.raises(StopIteration) as ended:
        taint_world.pods.handle(asked(pod("app:1"), taint_world)).send(None)
    assert ended.value.value.patch


@pytest.mark.req("TN-091")
async def test_a_hundred_pods_of_an_unknown_image_are_one_look_up(taint_world):
    """Those at once, those beside placement, and those that come when it is known."""
    taint_world.registry.seconds = 3.0
    taint_world.registry.set("cold:1", *BOTH)
    at_once = [asyncio.create_task(taint_world.pods.handle(asked(pod("cold:1"), taint_world))) for _ in range(50)]
    beside = [asyncio.create_task(beside_placement(taint_world, pod("cold:1"), MutationContext())) for _ in range(40)]
    await taint_world.clock.run(POD_BUDGET)
    assert all(task.done() for task in (*at_once, *beside))
    await taint_world.clock.run(3)
    for _ in range(10):
        assert (await taint_world.admit(pod("cold:1"))).tolerated == ["amd64", "arm64"]
    assert taint_world.registry.count("cold:1") == 1


# -- reviews that anybody may have made up ----------------------------------------------------------------------------


@pytest.mark.req("PL-871")
async def test_a_review_without_proof_gets_what_the_policy_says_of_unknown_images(taint_world):
    taint_world.registry.know("private:1", "linux/arm64")
    taint_world.is_proven = False
    document = pod("private:1", imagePullSecrets=[{"name": "pull"}])
    answer = await taint_world.admit(document, seconds=1)
    assert answer.is_gated
    assert answer.tolerated == []
    changed_image = await taint_world.admit(changed(document, "other:1"), old=document, seconds=1)
    assert changed_image.paths == []
    assert taint_world.registry.asked == []
    assert taint_world.reader.gets == {}
