"""Templates of DaemonSets at admission."""

import copy
import json

import pytest
from taint_world import BOTH, daemon_set, tolerated

from polyarch.taints import names
from polyarch.taints.webhook import TEMPLATE_BUDGET


def template(answer):
    return tolerated(answer.object["spec"]["template"]["spec"])


def added(document):
    annotations = document["metadata"].get("annotations") or {}
    return [each["value"] for each in json.loads(annotations[names.ADDED_TOLERATIONS_ANNOTATION])]


@pytest.mark.req("TN-050")
async def test_a_template_gets_the_tolerations_of_its_images(taint_world):
    """Recorded on the DaemonSet, not on its template."""
    taint_world.registry.know("agent:1", *BOTH)
    answer = await taint_world.admit(daemon_set("agent:1"))
    assert template(answer) == ["amd64", "arm64"]
    assert added(answer.object) == ["amd64", "arm64"]
    assert "annotations" not in answer.object["spec"]["template"]["metadata"]
    assert answer.warnings == []


@pytest.mark.req("TN-053")
async def test_the_same_manifest_applied_ten_times_is_one_template(taint_world):
    """Whether the client sends the annotation back or not."""
    taint_world.registry.know("agent:1", *BOTH)
    manifest = daemon_set("agent:1")
    stored = (await taint_world.admit(manifest)).object
    for turn in range(9):
        again = copy.deepcopy(manifest)
        if turn % 2:
            again["metadata"]["annotations"] = stored["metadata"]["annotations"]
        answer = await taint_world.admit(again, old=stored)
        assert answer.object == stored


@pytest.mark.req("TN-052")
async def test_an_unknown_image_adds_nothing_and_warns_the_user(taint_world):
    """After the budget, not later."""
    taint_world.registry.seconds = 10.0
    taint_world.registry.set("cold:1", *BOTH)
    answer = await taint_world.admit(daemon_set("cold:1"), seconds=TEMPLATE_BUDGET)
    assert answer.paths == []
    [warning] = answer.warnings
    assert "cold:1" in warning


@pytest.mark.req("TN-052")
async def test_an_image_that_answers_in_time_is_used(taint_world):
    taint_world.registry.seconds = TEMPLATE_BUDGET / 2
    taint_world.registry.set("cold:1", *BOTH)
    assert template(await taint_world.admit(daemon_set("cold:1"), seconds=TEMPLATE_BUDGET)) == ["amd64", "arm64"]


@pytest.mark.req("TN-053", "TN-092")
async def test_while_the_registry_is_down_an_applied_template_keeps_what_it_had(taint_world):
    """Else the apply would start a rollout, and the leader another one."""
    taint_world.registry.know("agent:1", *BOTH)
    stored = (await taint_world.admit(daemon_set("agent:1"))).object
    taint_world.registry.kept.clear()
    taint_world.registry.busy.add("docker.io")
    answer = await taint_world.admit(daemon_set("agent:1"), old=stored)
    assert answer.object == stored
    assert answer.warnings == []


@pytest.mark.req("TN-034", "TN-052", "TN-053")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"images": ("agent:2",)}, id="another image"),
        pytest.param({"nodeSelector": {"kubernetes.io/arch": "amd64"}}, id="another constraint"),
        pytest.param({"os": {"name": "linux"}}, id="an operating system"),
    ],
)
async def test_another_template_gets_nothing_that_is_not_known_to_fit(taint_world, change):
    """Tolerations of what was there before may be wrong for it."""
    taint_world.registry.know("agent:1", *BOTH)
    stored = (await taint_world.admit(daemon_set("agent:1"))).object
    taint_world.registry.kept.clear()
    taint_world.registry.busy.add("docker.io")
    images = change.pop("images", ("agent:1",))
    answer = await taint_world.admit(daemon_set(*images, **change), old=stored)
    assert template(answer) == []
    assert answer.warnings


@pytest.mark.req("TN-053")
async def test_what_somebody_removed_from_the_stored_template_is_not_kept(taint_world):
    """Only what we added and is still there."""
    taint_world.registry.know("agent:1", *BOTH)
    stored = (await taint_world.admit(daemon_set("agent:1"))).object
    del stored["spec"]["template"]["spec"]["tolerations"][1]
    taint_world.registry.kept.clear()
    taint_world.registry.busy.add("docker.io")
    assert template(await taint_world.admit(daemon_set("agent:1"), old=stored)) == ["amd64"]


@pytest.mark.req("TN-041", "TN-050")
async def test_a_template_that_is_opted_out_or_ignored_is_left_alone(taint_worlds):
    world = await taint_worlds(daemonSets={"templates": "ignore"})
    world.registry.know("agent:1", *BOTH)
    assert (await world.admit(daemon_set("agent:1"))).paths == []
    world.configure(mode="tolerations")
    document = daemon_set("agent:1")
    document["metadata"]["annotations"] = {"polyarch.dev/taints": "disabled"}
    assert (await world.admit(document)).paths == []
    assert world.registry.asked == []


@pytest.mark.req("TN-047", "TN-050")
async def test_a_template_that_no_node_can_run_is_admitted_with_a_warning(taint_worlds):
    """Its pods are refused with ``deny``, the DaemonSet is not."""
    world = await taint_worlds(pods={"onNoCommon": "deny"})
    world.registry.know("a:1", "linux/amd64")
    world.registry.know("b:1", "linux/arm64")
    answer = await world.admit(daemon_set("a:1", "b:1"))
    assert answer.response["allowed"]
    assert answer.paths == []
    assert len(answer.warnings) == 1


@pytest.mark.req("TN-010")
async def test_without_the_object_no_template_is_changed(taint_world):
    taint_world.registry.know("agent:1", *BOTH)
    taint_world.watches["architecturetaints"].remove("cluster")
    assert (await taint_world.admit(daemon_set("agent:1"))).paths == []


@pytest.mark.req("PL-871")
@pytest.mark.parametrize("image", ["known:1", "cold:1"])
async def test_a_review_without_proof_uses_no_credentials_and_tells_nothing_of_an_image(taint_world, image):
    taint_world.registry.know("known:1", *BOTH)
    taint_world.registry.set("cold:1", *BOTH)
    taint_world.is_proven = False
    document = daemon_set(image)
    document["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "pull"}]
    for old in (None, document):
        answer = await taint_world.admit(document, old=old, seconds=TEMPLATE_BUDGET)
        assert answer.paths == []
        assert "arm64" not in json.dumps(answer.response)
    assert taint_world.registry.asked == []
    assert taint_world.reader.gets == {}
