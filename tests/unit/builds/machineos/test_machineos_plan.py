"""MachineOSConfigs carried to published images, and edited, failed, rebuilt and rolled, in a simulated world."""

import contextlib
import re
from collections.abc import Callable, Mapping

import msgspec
import pytest
from builds_world import CutOff, index_of
from machine_world import FOUR_ARCHITECTURES, OS_IMAGE, MachineWorld, machine_node

from polyarch.builds.facts.build_facts import seconds
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import name_of
from polyarch.builds.plan.failures import RELEASES, FailureCause, explained
from polyarch.oci.documents import OCI_MANIFEST

pytestmark = pytest.mark.req("BD-006")

NO_ARCH = {"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"}
NO_TEXT = {"containerFile": []}
PER_ARCHITECTURE = [
    {"containerfileArch": "NoArch", "content": "RUN common\n"},
    {"containerfileArch": "ARM64", "content": "RUN arm\n"},
]


def image(world):
    return world.config["status"]["currentImagePullSpec"]


def settled(world):
    """Everything succeeds, and a plan made afterwards writes nothing."""
    world.build_all()
    assert not world.settle().writes
    return world


@pytest.mark.req("BD-048", "BD-261", "BD-271", "BD-275", "BD-280")
@pytest.mark.parametrize("architectures", [("amd64",), ("amd64", "arm64"), FOUR_ARCHITECTURES])
def test_one_machine_os_build_has_a_job_for_each_architecture(architectures):
    """With what the config, the pool and a ConfigMap say of it."""
    world = settled(MachineWorld(architectures=architectures))
    name = name_of(world.build)
    assert len(world.made) == len(architectures)
    assert [stage for _, stage in world.stages] == ["none", "Prepared", "Building", "Succeeded"]
    assert world.build["status"]["digestedImagePushSpec"] == image(world)
    assert world.tags[f"registry.example.com/os/worker:{name}"] == image(world).partition("@")[2]
    assert world.config["status"]["machineOSBuild"] == {
        "group": api.GROUP, "resource": "machineosbuilds", "name": name,
    }  # fmt: skip
    assert world.config["metadata"]["annotations"][api.CURRENT_BUILD] == name
    assert world.config_maps[f"digest-{name}"]["data"]["digest"] == image(world).partition("@")[2]
    assert world.degraded()[:2] == ("False", "BuildSuccess")
    for each in (world.config, world.pool):
        assert each["metadata"]["annotations"]["polyarch.dev/architectures"] == ",".join(sorted(architectures))


@pytest.mark.req("BD-263")
def test_a_pool_with_one_architecture_has_stock_names():
    world = MachineWorld(architectures=("arm64",))
    world.reconcile()
    name = name_of(world.build)
    assert list(world.jobs) == [f"build-{name}"]
    assert set(api.ephemeral_name(name).values()) >= {
        each for each in world.copies if each.startswith(("base", "final"))
    }
    mixed = MachineWorld()
    mixed.reconcile()
    assert sorted(mixed.jobs) == [f"build-{name_of(mixed.build)}-{each}" for each in ("amd64", "arm64")]


@pytest.mark.req("BD-263")
def test_another_architecture_never_gets_the_build_of_the_first():
    world = settled(MachineWorld(architectures=("amd64",)))
    first = name_of(world.build)
    world.nodes = [machine_node("arm64")]
    settled(world)
    assert len(world.made) == 2
    assert image(world) != world.mosbs[first]["status"]["digestedImagePushSpec"]
    assert world.config["status"]["machineOSBuild"]["name"] != first


@pytest.mark.req("BD-270")
def test_a_build_says_what_it_is_for():
    world = MachineWorld()
    world.reconcile()
    build = world.build
    name = name_of(build)
    assert build["metadata"]["labels"] == {
        api.POOL_LABEL: "worker",
        api.RENDERED_LABEL: "rendered-worker-1",
        api.CONFIG_LABEL: "worker",
    }
    assert build["metadata"]["annotations"][api.PUSH_SECRET] == "push"
    assert build["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert build["metadata"]["ownerReferences"][0]["uid"] == world.config["metadata"]["uid"]
    assert build["spec"] == {
        "machineConfig": {"name": "rendered-worker-1"},
        "machineOSConfig": {"name": "worker"},
        "renderedImagePushSpec": f"registry.example.com/os/worker:{name}",
    }


@pytest.mark.req("BD-275")
def test_jobs_and_pods_have_the_stock_labels_and_copies_one_owner_for_each_job():
    world = MachineWorld()
    world.reconcile()
    name = name_of(world.build)
    for job in world.jobs.values():
        for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
            assert labels[api.EPHEMERAL_LABEL] == labels[api.LAYERING_LABEL] == ""
            assert labels[api.BUILD_LABEL] == name
            assert labels[api.POOL_LABEL] == "worker"
    uids = {job["metadata"]["uid"] for job in world.jobs.values()}
    for copy in (f"base-{name}", f"final-{name}"):
        owners = world.copies[copy]["metadata"]["ownerReferences"]
        assert {each["uid"] for each in owners} == uids
        assert not any(each["controller"] for each in owners)
    first = world.jobs[f"build-{name}-amd64"]["metadata"]["uid"]
    assert world.build["metadata"]["annotations"][api.JOB_UID] == first
    assert world.build["status"]["builder"]["job"]["name"] == f"build-{name}-amd64"


@pytest.mark.req("BD-284")
def test_jobs_get_copies_of_the_secrets_in_one_form():
    world = MachineWorld()
    world.reconcile()
    name = name_of(world.build)
    assert world.copies[f"final-{name}"]["source"] == {"as": "credentials", "of": "push"}
    assert world.copies[f"base-{name}"]["source"] == {"as": "credentials", "of": api.GLOBAL_PULL_SECRET}
    named = MachineWorld(baseImagePullSecret={"name": "mine"})
    named.secrets["mine"] = named.secrets["push"]
    named.reconcile()
    assert named.copies[f"base-{name_of(named.build)}"]["source"]["of"] == "mine"


@pytest.mark.req("BD-284")
def test_an_opaque_secret_is_named_and_nothing_is_built():
    world = MachineWorld()
    world.secrets["push"] = msgspec.structs.replace(world.secrets["push"], type="Opaque")
    world.settle()
    assert not world.made
    assert world.stage(name_of(world.build)) == "Failed"
    assert "openshift-machine-config-operator/push" in world.degraded()[2]
    world.secrets["push"] = msgspec.structs.replace(world.secrets["push"], type="kubernetes.io/dockercfg")
    settled(world)
    assert len(world.made) == 2
    assert world.stage(name_of(world.build)) == "Succeeded"


@pytest.mark.req("BD-132")
@pytest.mark.parametrize(
    ("change", "same_name"),
    [
        ({"renderedImagePushSecret": {"name": "other"}}, True),
        ({"renderedImagePushSpec": "registry.example.com/os/worker:another"}, True),
        ({"containerFile": PER_ARCHITECTURE[::-1]}, True),
    ],
)
def test_what_changes_no_image_builds_nothing_in_a_mixed_pool(change, same_name):
    world = MachineWorld(containerFile=PER_ARCHITECTURE)
    world.secrets["other"] = world.secrets["push"]
    before = image(settled(world))
    world.configure(**change)
    settled(world)
    assert (len(world.made), image(world)) == (2, before)
    assert (len(world.mosbs) == 1) is same_name


@pytest.mark.req("BD-132")
def test_null_and_an_empty_list_are_two_names_and_one_image():
    world = settled(MachineWorld(architectures=("amd64",), **NO_TEXT))
    before, name = image(world), name_of(world.build)
    world.configure(containerFile=None)
    settled(world)
    assert (len(world.made), image(world)) == (1, before)
    assert {world.stage(each) for each in world.mosbs} == {"Succeeded"}
    assert len(world.mosbs) == 2
    assert world.config["status"]["machineOSBuild"]["name"] != name


@pytest.mark.req("BD-133")
def test_a_paused_pool_and_other_settings_of_it_start_nothing():
    world = settled(MachineWorld())
    world.pool["spec"] |= {"paused": True, "maxUnavailable": 3}
    assert not world.settle().writes
    assert len(world.mosbs) == 1


@pytest.mark.req("BD-129", "BD-276")
@pytest.mark.parametrize("architectures", [("amd64",), ("amd64", "arm64")])
def test_a_rendered_config_that_changes_no_image_is_a_build_without_a_job(architectures):
    """Its own tag is put on the digest that covers."""
    world = settled(MachineWorld(architectures=architectures))
    before, first = image(world), name_of(world.build)
    world.roll("rendered-worker-2")
    settled(world)
    assert len(world.made) == len(architectures)
    assert image(world) == before
    (second,) = set(world.mosbs) - {first}
    assert world.mosbs[second]["spec"]["machineConfig"]["name"] == "rendered-worker-2"
    assert [stage for name, stage in world.stages if name == second] == ["none", "Succeeded"]
    assert world.tags[f"registry.example.com/os/worker:{second}"] == before.partition("@")[2]
    assert world.config["metadata"]["annotations"][api.CURRENT_BUILD] == second


@pytest.mark.req("BD-276")
def test_a_result_of_more_architectures_is_used_as_it_is():
    world = settled(MachineWorld())
    before = image(world)
    world.nodes = [machine_node("amd64")]
    world.settle()
    world.roll("rendered-worker-2")
    settled(world)
    assert (len(world.made), image(world)) == (2, before)


@pytest.mark.req("BD-276")
def test_a_child_that_is_gone_is_built_again():
    world = settled(MachineWorld())
    world.vanish(next(iter(world.manifests)).partition("@")[2])
    world.roll("rendered-worker-2")
    settled(world)
    assert len(world.made) == 3


@pytest.mark.req("BD-123")
def test_an_earlier_rendered_config_has_its_build_still():
    world = settled(MachineWorld())
    first = name_of(world.build)
    world.roll("rendered-worker-2", extensions=["usbguard"])
    settled(world)
    assert len(world.made) == 4
    world.roll("rendered-worker-1")
    settled(world)
    assert len(world.made) == 4
    assert world.config["status"]["machineOSBuild"]["name"] == first


@pytest.mark.req("BD-130", "BD-131")
@pytest.mark.parametrize(
    ("changed", "jobs"),
    [
        ({"kernelType": "realtime"}, 2),
        ({"kernelType": "default"}, 0),
        ({"extensions": ["usbguard"]}, 2),
        ({"kernelArguments": ["a", "b"]}, 2),
        ({"osImageURL": "registry.example.com/release/os:4.20"}, 2),
    ],
)
def test_what_of_a_rendered_config_builds_again(changed, jobs):
    world = settled(MachineWorld())
    world.bases["registry.example.com/release/os:4.20"] = index_of(
        "registry.example.com/release/os:4.20", FOUR_ARCHITECTURES
    )
    world.roll("rendered-worker-2", **changed)
    settled(world)
    assert len(world.made) == 2 + jobs


@pytest.mark.req("BD-277")
def test_a_build_for_a_former_rendered_config_gives_way_and_its_jobs_are_taken_over():
    world = MachineWorld()
    world.reconcile()
    first = name_of(world.build)
    world.roll("rendered-worker-2")
    world.reconcile()
    assert first not in world.mosbs
    assert len(world.made) == 2
    settled(world)
    assert len(world.made) == 2
    assert world.stage(name_of(world.build)) == "Succeeded"


@pytest.mark.req("BD-277")
def test_images_of_a_build_that_gave_way_are_used_later():
    world = MachineWorld()
    world.reconcile()
    world.succeed("amd64")
    world.reconcile()
    world.roll("rendered-worker-2", extensions=["usbguard"])
    world.reconcile()
    world.roll("rendered-worker-1")
    world.reconcile()
    assert [each.partition(" ")[0] for each in world.made] == ["amd64", "arm64", "amd64", "arm64", "arm64"]


@pytest.mark.req("BD-277")
def test_a_build_that_somebody_deleted_is_made_again_under_its_name():
    world = MachineWorld()
    world.reconcile()
    before = name_of(world.build)
    uid = world.mosbs.pop(before)["metadata"]["uid"]
    world._collect(uid)
    settled(world)
    assert name_of(world.build) == before


@pytest.mark.req("BD-278")
@pytest.mark.parametrize("trouble", ["NodeDegraded", "RenderDegraded", "PinnedImageSetsDegraded"])
def test_no_build_starts_while_the_pool_is_in_trouble(trouble):
    world = MachineWorld()
    world.pool["status"]["conditions"].append({"type": trouble, "status": "True"})
    found = world.settle()
    assert (found.decision, found.reason) == ("Wait", "PoolDegraded")
    assert not world.mosbs
    world.pool["status"]["conditions"].pop(1)
    settled(world)
    assert world.mosbs


@pytest.mark.req("BD-278")
def test_a_failed_build_of_an_image_does_not_keep_the_next_from_starting():
    world = MachineWorld()
    world.pool["status"]["conditions"].append({"type": "ImageBuildDegraded", "status": "True"})
    settled(world)
    assert world.degraded()[0] == "False"


@pytest.mark.req("BD-279")
@pytest.mark.parametrize(("text", "built"), [("arm64", 1), ("aarch64", 1), ("", 2), ("please", 2)])
def test_a_rebuild_is_made_under_the_same_name_each_time_it_is_asked_for(text, built):
    world = settled(MachineWorld())
    name, uid = name_of(world.build), world.build["metadata"]["uid"]
    for times in (1, 2):
        world.annotate(api.REBUILD, text)
        settled(world)
        assert len(world.made) == 2 + times * built
        assert name_of(world.build) == name
        assert world.build["metadata"]["uid"] != uid
        assert api.REBUILD not in world.config["metadata"]["annotations"]


@pytest.mark.req("BD-279")
def test_a_rebuild_is_asked_for_once_however_often_the_builder_dies():
    world = settled(MachineWorld())
    world.annotate(api.REBUILD, "arm64")
    for stop in range(40):
        try:
            world.reconcile(stop_before=stop)
        except CutOff:
            continue
        break
    settled(world)
    assert len(world.made) == 3


@pytest.mark.req("BD-279")
def test_architectures_that_the_pool_has_not_are_named_and_nothing_is_built():
    world = settled(MachineWorld())
    world.annotate(api.REBUILD, "s390x")
    settled(world)
    assert len(world.made) == 2
    assert ("RebuildArchitectureUnknown", "s390x") in world.events
    assert api.REBUILD not in world.config["metadata"]["annotations"]


@pytest.mark.req("BD-283")
def test_a_failure_is_told_by_the_pool_with_architecture_and_reason():
    world = MachineWorld()
    world.reconcile()
    assert world.degraded()[:2] == ("False", "Building")
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    name = name_of(world.build)
    status, reason, message = world.degraded()
    assert (status, reason) == ("True", "BuildFailed")
    assert message.startswith(
        f"Failed to build OS image for pool worker (MachineOSBuild: {name}): arm64: BuildFailed: "
    )
    assert world.stage(name) == "Failed"
    assert world.settle().decision == "Held"
    world.annotate(api.REBUILD, "")
    settled(world)
    assert [each.partition(" ")[0] for each in world.made] == ["amd64", "arm64", "arm64"]
    assert world.degraded()[:2] == ("False", "BuildSuccess")


@pytest.mark.req("BD-268")
@pytest.mark.parametrize(
    "content",
    [
        "FRM x\n",
        "FROM\n",
        "FROM configs\nRUN\n",
        "COPY x\n",
        "WORKDIR\n",
    ],
)
def test_text_that_cannot_be_built_is_a_failed_build_without_jobs(content):
    world = MachineWorld(containerFile=[{"containerfileArch": "NoArch", "content": content}])
    world.settle()
    assert not world.made
    assert [stage for _, stage in world.stages] == ["none", "Failed"]
    status, reason, message = world.degraded()
    assert (status, reason) == ("True", "BuildFailed")
    assert "pool worker" in message
    assert name_of(world.build) in message
    world.configure(containerFile=[])
    settled(world)
    assert world.stage(name_of(world.build)) == "Succeeded"


@pytest.mark.req("BD-268")
@pytest.mark.parametrize("content", ["", "# only words\n", "RUN true\n", "FROM configs AS mine\n"])
def test_text_may_be_empty_and_needs_no_from(content):
    world = settled(MachineWorld(containerFile=[{"containerfileArch": "NoArch", "content": content}]))
    assert len(world.made) == 2


@pytest.mark.req("BD-262")
def test_every_architecture_gets_its_own_text():
    world = MachineWorld(containerFile=PER_ARCHITECTURE)
    world.reconcile()
    texts = {
        each: world.config_maps[f"build-{name_of(world.build)}-{each}-in"]["data"]["Containerfile"]
        for each in ("amd64", "arm64")
    }
    assert texts["amd64"].endswith("RUN common\n")
    assert texts["arm64"].endswith("RUN arm\n")


@pytest.mark.req("BD-262")
def test_an_architecture_without_text_is_an_error_unless_it_may_do_without():
    only = [{"containerfileArch": "ARM64", "content": "RUN arm\n"}]
    world = MachineWorld(containerFile=only)
    world.settle()
    assert not world.made
    assert "ContainerfileMissing" in world.degraded()[2]
    assert "amd64" in world.degraded()[2]
    world.annotate(api.MISSING, "BaseOnly")
    settled(world)
    assert len(world.made) == 2


@pytest.mark.req("BD-262")
def test_what_the_api_cannot_name_is_left_out_with_a_warning():
    world = settled(MachineWorld(architectures=("amd64", "riscv64")))
    assert [each.partition(" ")[0] for each in world.made] == ["amd64"]
    assert ("ArchitectureUnsupported", "riscv64") in world.events


@pytest.mark.req("BD-262")
def test_a_pool_without_nodes_is_built_for_the_workers():
    world = MachineWorld()
    world.nodes = [
        msgspec.structs.replace(each, labels={key: text for key, text in each.labels.items() if "worker" not in key})
        for each in world.nodes
    ]
    settled(world)
    assert len(world.made) == 2


@pytest.mark.req("BD-269")
def test_a_kernel_that_one_architecture_has_not_is_told_by_target():
    world = MachineWorld()
    world.roll("rendered-worker-1", kernelType="64k-pages")
    world.settle()
    assert not world.made
    assert "KernelTypeUnsupportedForArchitecture" in world.degraded()[2]
    world.nodes = [machine_node("arm64")]
    settled(world)
    assert len(world.made) == 1


@pytest.mark.req("BD-269")
def test_each_job_builds_on_the_child_of_the_os_image_for_its_architecture():
    world = MachineWorld()
    world.reconcile()
    children = {each.platform.architecture: each.digest for each in world.bases[OS_IMAGE].entries}
    for each in ("amd64", "arm64"):
        data = world.config_maps[f"build-{name_of(world.build)}-{each}-in"]["data"]
        assert data["Containerfile"].startswith(f"FROM registry.example.com/release/os@{children[each]} AS configs\n")
        assert children[each] in data["build.sh"]


@pytest.mark.req("BD-274", "BD-287")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"renderedImagePushSpec": "registry.example.com/a/b/c:latest"}, "DigestFormUnsupported"),
        ({"imageBuilder": {"imageBuilderType": "PodImageBuilder"}}, "InvalidSpec"),
    ],
)
def test_what_the_config_says_wrong_is_told_by_the_config(spec, reason):
    world = MachineWorld(**spec)
    world.settle()
    assert not world.mosbs
    conditions = {each["type"]: each for each in world.config["status"]["conditions"]}
    assert conditions["InputsValid"]["reason"] == reason


@pytest.mark.req("BD-080")
def test_a_config_whose_builds_would_have_too_long_a_tag_is_refused():
    world = MachineWorld()
    world.config["metadata"]["name"] = "x" * 96
    assert world.plan().reason == "NameTooLong"
    world.config["metadata"]["name"] = "x" * 95
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-267")
def test_without_a_rendered_config_nothing_is_named():
    world = MachineWorld()
    world.pool["spec"]["configuration"] = {"name": "rendered-worker-9"}
    found = world.settle()
    assert (found.decision, found.reason) == ("Wait", "InputMissing")
    assert not world.mosbs


@pytest.mark.req("BD-282")
def test_a_build_of_a_former_config_is_not_touched():
    world = settled(MachineWorld())
    world.config["metadata"]["uid"] = "another"
    first = name_of(world.build)
    world.roll("rendered-worker-2", extensions=["usbguard"])
    settled(world)
    assert first in world.mosbs


@pytest.mark.req("BD-286")
def test_what_rolls_out_with_a_new_architecture_is_said_before():
    world = settled(MachineWorld(architectures=("amd64",)))
    world.nodes.append(machine_node("arm64"))
    world.reconcile()
    assert "RolloutExpected" in [reason for reason, _ in world.events]
    postponed = settled(MachineWorld(architectures=("amd64",)))
    postponed.annotate(api.ON_NEW, "NextBuild")
    postponed.nodes.append(machine_node("arm64"))
    settled(postponed)
    assert len(postponed.made) == 1
    assert "RolloutExpected" not in [reason for reason, _ in postponed.events]


@pytest.mark.req("BD-196", "BD-197")
def test_a_builder_that_dies_at_any_write_ends_with_the_same_image():
    """One Job for each architecture and key, whatever was cut off."""
    whole = settled(MachineWorld())
    for stop in range(30):
        world = MachineWorld()
        for _ in range(2):
            with contextlib.suppress(CutOff):
                world.reconcile(stop_before=stop)
        settled(world)
        assert len(world.made) == 2, stop
        assert image(world) == image(whole)
        assert len(world.mosbs) == 1


@pytest.mark.req("BD-196")
def test_a_builder_that_dies_at_any_write_of_a_publication_ends_with_the_same_image():
    whole = settled(MachineWorld())
    for stop in range(14):
        world = MachineWorld()
        world.reconcile()
        world.succeed("amd64")
        world.succeed("arm64")
        with contextlib.suppress(CutOff):
            world.reconcile(stop_before=stop)
        settled(world)
        assert (len(world.made), image(world)) == (2, image(whole)), stop
        assert world.stage(name_of(world.build)) == "Succeeded"


SEED = "registry.example.com/os/built:1"


@pytest.mark.req("BD-281")
@pytest.mark.parametrize("architectures", [("amd64", "arm64"), ("amd64",)])
def test_an_image_that_was_built_before_is_the_first_result(architectures):
    world = MachineWorld(architectures=architectures)
    seed = world.bases[SEED] = index_of(SEED, FOUR_ARCHITECTURES)
    world.annotate(api.PRE_BUILT, SEED)
    world.reconcile()
    assert world.config["metadata"]["annotations"][api.PRE_BUILT] == SEED
    world.settle()
    assert not world.made
    build = world.build
    assert build["metadata"]["labels"][api.PRE_BUILT] == "true"
    (said,) = [each for each in build["status"]["conditions"] if each["status"] == "True"]
    assert (said["type"], said["reason"]) == ("Succeeded", "PreBuiltImageSeeded")
    assert build["status"]["digestedImagePushSpec"] == f"registry.example.com/os/built@{seed.digest}" == image(world)
    assert seconds(build["status"]["buildEnd"]) == seconds(build["status"]["buildStart"]) + 1
    assert next(each for each in world.config["status"]["conditions"] if each["type"] == "Seeded")["status"] == "True"
    assert api.PRE_BUILT not in world.config["metadata"]["annotations"]


@pytest.mark.req("BD-281")
def test_an_image_that_was_built_before_covers_until_an_input_changes():
    world = MachineWorld()
    world.bases[SEED] = index_of(SEED, FOUR_ARCHITECTURES)
    world.annotate(api.PRE_BUILT, SEED)
    world.settle()
    world.configure(containerFile=[{"containerfileArch": "ARM64", "content": "RUN arm\n"}, NO_ARCH])
    world.reconcile()
    assert [each.partition(" ")[0] for each in world.made][-1:] == ["arm64"]


@pytest.mark.req("BD-281")
def test_an_image_that_was_built_before_is_extended_by_an_architecture_that_joins():
    """Its index says nothing of its images' own type, which an index of old and new images needs."""
    world = MachineWorld()
    seed = world.bases[SEED] = index_of(SEED, FOUR_ARCHITECTURES)
    world.configure(renderedImagePushSpec=f"{SEED.rpartition(':')[0]}:latest")
    for entry in seed.entries:
        world.manifests[f"{SEED.rpartition(':')[0]}@{entry.digest}"] = (OCI_MANIFEST, ())
    world.annotate(api.PRE_BUILT, SEED)
    world.settle()
    world.nodes.append(machine_node("s390x"))
    world.now += 3600
    world.build_all()
    assert [each.partition(" ")[0] for each in world.made] == ["s390x"]
    assert image(world) not in ("", f"registry.example.com/os/built@{seed.digest}")


def told(world):
    """What a config says of builds: the current one, and the one whose image stands, with that image."""
    status = world.config.get("status") or {}
    stands = (status.get("machineOSBuild") or {}).get("name"), status.get("currentImagePullSpec")
    return world.config["metadata"]["annotations"].get(api.CURRENT_BUILD), *stands


@pytest.mark.req("BD-280")
def test_a_config_names_its_build_at_once_and_an_image_once_it_has_succeeded():
    world = MachineWorld()
    world.reconcile()
    first = name_of(world.build)
    assert told(world) == (first, None, None)
    settled(world)
    assert told(world) == (first, first, image(world))


@pytest.mark.req("BD-280")
@pytest.mark.parametrize("end", ["succeeds", "fails"])
def test_a_config_names_the_build_of_the_rendered_config_of_now_beside_the_image_that_stands(end):
    """Whatever becomes of the new build, the former image stands until there is another."""
    world = settled(MachineWorld())
    first, before = name_of(world.build), image(world)
    world.roll("rendered-worker-2", kernelType="realtime")
    world.reconcile()
    (second,) = set(world.mosbs) - {first}
    assert told(world) == (second, first, before)
    if end == "succeeds":
        settled(world)
        assert told(world) == (second, second, image(world))
        assert image(world) != before
    else:
        world.fail("arm64")
        world.succeed("amd64")
        world.settle()
        assert world.stage(second) == "Failed"
        assert told(world) == (second, first, before)


@pytest.mark.req("BD-280")
@pytest.mark.parametrize("stale", ["worker-gone", "", None])
def test_what_a_config_says_of_its_build_is_put_right(stale):
    """After a restore, or by hand: another name, an empty one, none at all; and a status that lags behind."""
    world = settled(MachineWorld())
    right = told(world)
    world.annotate(api.CURRENT_BUILD, stale)
    world.config["status"] |= {
        "currentImagePullSpec": "registry.example.com/os/worker@sha256:" + "0" * 64,
        "machineOSBuild": {"group": api.GROUP, "resource": "machineosbuilds", "name": "worker-gone"},
    }
    settled(world)
    assert told(world) == right


@pytest.mark.req("BD-280")
def test_a_config_says_which_generation_was_seen_and_never_an_earlier_one():
    world = settled(MachineWorld())
    assert world.config["status"]["observedGeneration"] == 1
    world.configure(containerFile=[{"containerfileArch": "NoArch", "content": "RUN other\n"}])
    world.reconcile()
    assert world.config["status"]["observedGeneration"] == 2
    world.config["status"]["observedGeneration"] = 9
    settled(world)
    assert world.config["status"]["observedGeneration"] == 9


@pytest.mark.req("BD-281")
def test_a_missing_push_secret_is_an_error_first():
    world = MachineWorld()
    world.bases[SEED] = index_of(SEED, FOUR_ARCHITECTURES)
    world.secrets["push"] = None
    world.annotate(api.PRE_BUILT, SEED)
    world.settle()
    assert "push" in world.degraded()[2]
    assert "currentImagePullSpec" not in world.config["status"]


FOREIGN = re.compile(r"\b(?:spec|source|output|baseImages|builder|timeouts|scheduling)\.[a-z]\w*(?:\.\w+)*")
OWN = ("spec.renderedImagePush", "spec.baseImagePullSecret", "spec.containerFile", "spec.machineConfigPool")


def everything_said(world: MachineWorld) -> str:
    plan = world.plan()
    texts = [plan.message, *(each.message for each in (*plan.conditions, *plan.events, *plan.per_architecture))]
    return "\n".join(texts)


@pytest.mark.req("BD-218", "BD-287")
@pytest.mark.parametrize("reason", RELEASES)
def test_what_releases_a_build_is_said_in_fields_that_a_config_has(reason: str) -> None:
    """Fields of ImageBuilds are of no use to whoever has a MachineOSConfig."""
    facts = MachineWorld().facts()
    said = explained([FailureCause(reason=reason, message="x", architecture="arm64")], facts.request)
    assert [each for each in FOREIGN.findall(said) if not each.startswith(OWN)] == []


WRONG: Mapping[str, Callable[[MachineWorld], object]] = {
    "no push secret": lambda world: world.secrets.pop("push-worker", None),
    "no pull secret": lambda world: world.secrets.clear(),
    "no text for an architecture": lambda world: world.configure(
        containerFile=[{"containerfileArch": "ARM64", "content": "FROM configs AS final\n"}]
    ),
    "an argument without a value": lambda world: world.configure(
        containerFile=[{"containerfileArch": "NoArch", "content": "ARG V\nFROM a:$V\nFROM configs AS final\n"}]
    ),
    "an index that is forbidden": lambda world: world.annotate(api.INDEX, "Never"),
    "no nodes": lambda world: world.nodes.clear(),
    "one Job at a time": lambda world: world.annotate(api.MAX_PARALLEL, "1"),
    "an OS image that lacks an architecture": lambda world: world.bases.clear(),
    "no registry": lambda world: setattr(world, "unreachable", True),
}


@pytest.mark.req("BD-287")
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_messages_name_fields_that_a_config_has(change: Callable[[MachineWorld], object]) -> None:
    world = MachineWorld()
    change(world)
    said = everything_said(world)
    assert [each for each in FOREIGN.findall(said) if not each.startswith(OWN)] == [], said
