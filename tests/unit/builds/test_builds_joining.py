"""Nodes come and go under a build that exists, and base images move: what the builder does.

From the nodes to what is carried out:
"""

import json
from typing import Any

import msgspec
import pytest
from builds_world import BASE, SPEC, BuildPlanWorld, digest, index_of, node

from polyarch.builds import names

pytestmark = pytest.mark.req("BD-040", "BD-041", "BD-055", "BD-056", "BD-057", "BD-058", "BD-059", "BD-060")


def built(**parts: Any) -> BuildPlanWorld:
    """A world whose image is published for amd64 and arm64; ``parts`` are members of its spec."""
    world = BuildPlanWorld({**SPEC, **parts})
    world.build_all()
    world.made.clear()
    world.asked.clear()
    world.told.clear()
    return world


def made(world: BuildPlanWorld) -> set[str]:
    return {each.split()[0] for each in world.made}


@pytest.mark.req("BD-043")
def test_a_new_architecture_is_built_once_its_node_has_settled() -> None:
    world = built()
    world.nodes.append(node("s390x", created=world.now - 10))
    found = world.settle()
    assert (found.decision, found.requeue_after) == ("UpToDate", 20.0)
    assert world.condition("ArchitecturesResolved") == ("True", "Settling")
    assert world.status()["architectures"] == ["amd64", "arm64"]
    world.now += 20
    world.build_all()
    assert made(world) == {"s390x"}
    assert world.status()["architectures"] == ["amd64", "arm64", "s390x"]
    assert world.condition("ArchitecturesResolved") == ("True", "Resolved")


@pytest.mark.req("BD-042")
def test_a_node_that_comes_and_goes_builds_nothing() -> None:
    world = built()
    for _ in range(5):
        world.nodes.append(node("s390x", created=world.now - 3))
        world.settle()
        world.nodes.pop()
        world.now += 60
        world.settle()
    assert made(world) == set()


@pytest.mark.req("BD-042")
def test_a_replaced_node_of_a_known_architecture_counts_at_once() -> None:
    world = built()
    world.nodes = [node("amd64"), node("arm64", "another", created=world.now)]
    assert world.plan().architectures == ("amd64", "arm64")
    assert world.settle().decision == "UpToDate"


@pytest.mark.req("BD-045", "BD-120", "BD-121")
def test_nodes_that_are_gone_take_nothing_away_and_the_spec_does() -> None:
    """BD-120 and BD-121 in one: what differs is only why it is gone."""
    world = built()
    image = world.status()["image"]
    world.nodes = [node("amd64")]
    assert world.settle().decision == "UpToDate"
    assert world.status()["image"] == image
    world.set("architectures", {"mode": "Explicit", "list": ["amd64"]})
    world.build_all()
    assert made(world) == set()
    assert [each["architecture"] for each in world.status()["images"]] == ["amd64"]


@pytest.mark.req("BD-046")
def test_a_pending_architecture_is_told_once_and_built_with_the_next_reason() -> None:
    world = built(architectures={"onNewArchitecture": "NextBuild"})
    world.nodes.append(node("s390x"))
    for _ in range(3):
        world.settle()
        world.now += 600
    assert world.events.count(("ArchitecturePending", "s390x")) == 1
    assert made(world) == set()
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo arm\n"}])
    world.build_all()
    assert made(world) == {"arm64", "s390x"}


@pytest.mark.req("BD-047")
@pytest.mark.parametrize("mode", ["Auto", "Explicit"])
def test_while_nodes_are_not_known_the_last_architectures_stay_and_nothing_is_planned(mode: str) -> None:
    explicit = {"mode": "Explicit", "list": ["amd64", "arm64"]}
    world = built(architectures=explicit if mode == "Explicit" else {})
    world.set("output.labels", {"a": "b"})
    found = world.plan(nodes=None)
    assert (found.decision, found.reason, found.architectures) == ("Wait", "NodesUnknown", ("amd64", "arm64"))
    assert {write.verb for write in found.writes} <= {"status"}
    assert not [each for each in found.writes if each.kind == "ImageBuildRun"]
    world.build_all()
    assert made(world) == {"amd64", "arm64"}


@pytest.mark.req("BD-047")
def test_there_is_no_default_architecture() -> None:
    world = BuildPlanWorld()
    found = world.plan(nodes=None)
    assert found.architectures == ()
    world.nodes = []
    assert (world.settle().decision, world.plan().reason) == ("Wait", "NoNodes")
    assert world.runs == {}


@pytest.mark.req("BD-048")
def test_the_build_and_each_execution_say_their_architectures_in_order() -> None:
    world = BuildPlanWorld(architectures=("s390x", "amd64"))
    world.build_all()
    (run,) = world.runs.values()
    for each in (world.builds["web"], run):
        assert each["metadata"]["annotations"][names.ARCHITECTURES_ANNOTATION] == "amd64,s390x"


@pytest.mark.req("BD-049")
def test_each_execution_keeps_a_record_that_jobs_can_read() -> None:
    world = built()
    (run,) = world.runs.values()
    record = world.config_maps[f"{run['metadata']['name']}-arch"]
    assert [each["uid"] for each in record["metadata"]["ownerReferences"]] == [run["metadata"]["uid"]]
    content = json.loads(record["data"]["architectures.json"])
    assert content["schema"] == 1
    assert [each["architecture"] for each in content["architectures"]] == ["amd64", "arm64"]
    assert content["architectures"] == run["status"]["architectures"]
    assert content["index"] == run["status"]["index"]


def job_of(world: BuildPlanWorld, architecture: str) -> dict[str, Any]:
    return world.jobs[world.job_of(architecture)]


@pytest.mark.req("BD-049")
def test_the_record_is_mounted_where_it_may_be_missing() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    (run,) = world.runs
    spec = job_of(world, "arm64")["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "architectures"]
    assert (volume["configMap"]["name"], volume["configMap"]["optional"]) == (f"{run}-arch", True)
    for container in (*spec["initContainers"], *spec["containers"]):
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounts["architectures"] == "/polyarch/architectures"


def pulled(world: BuildPlanWorld, architecture: str) -> str:
    """What the Job of an architecture pulls for its base."""
    inputs = world.config_maps[f"{world.job_of(architecture)}-in"]["data"]
    images: dict[str, str] = json.loads(inputs["build.json"])["images"]
    return next(iter(images.values()))


@pytest.mark.req("BD-062")
def test_jobs_pull_by_pin_also_when_the_tag_has_moved_meanwhile() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    first = digest(f"{BASE} arm64 ")
    assert pulled(world, "arm64") == f"docker.io/library/busybox@{first}"
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64"), "new")
    world.reconcile()
    assert pulled(world, "arm64").endswith(first)


@pytest.mark.req("BD-062")
def test_a_substitution_changes_where_and_never_which_digest() -> None:
    mirror = "mirror.example.com/busybox:1.36"
    world = BuildPlanWorld({**SPEC, "baseImages": {"substitute": [{"from": "busybox:1.36", "to": mirror}]}})
    world.bases[mirror] = msgspec.structs.replace(world.bases[BASE], reference=world.bases[BASE].reference)
    del world.bases[BASE]
    world.reconcile()
    assert pulled(world, "arm64") == f"mirror.example.com/busybox@{digest(f'{BASE} arm64 ')}"


@pytest.mark.req("BD-061")
def test_never_keeps_the_pin_for_an_architecture_that_joins_later() -> None:
    world = built(baseImages={"policy": "Never"})
    pinned = world.bases[BASE]
    world.bases["docker.io/library/busybox:former"] = pinned
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64", "s390x"), "new")
    world.nodes.append(node("s390x"))
    world.reconcile()
    assert pulled(world, "s390x").endswith(digest(f"{BASE} s390x "))
    assert made(world) == {"s390x"}


@pytest.mark.req("BD-061")
def test_on_build_all_architectures_of_one_execution_see_one_snapshot() -> None:
    world = built()
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64", "s390x"), "new")
    world.nodes.append(node("s390x"))
    world.reconcile()
    for architecture in ("amd64", "arm64", "s390x"):
        assert pulled(world, architecture).endswith(digest(f"{BASE} {architecture} new"))


@pytest.mark.req("BD-061", "BD-347")
def test_nothing_changed_asks_no_registry() -> None:
    """0 requests."""
    for policy in ({"policy": "Never"}, {"policy": "OnBuild"}, {"policy": "Interval", "interval": "1h"}):
        world = built(baseImages=policy)
        assert world.settle().decision == "UpToDate"
        assert world.asked == []


@pytest.mark.req("BD-111")
def test_a_base_that_moved_back_and_forth_builds_nothing_by_itself() -> None:
    world = built()
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64"), "new")
    assert world.settle().decision == "UpToDate"
    assert world.asked == []
