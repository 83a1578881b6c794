"""Builds that fail: what is shown, what is kept, and what releases them."""

from typing import Any

import msgspec
import pytest
from builds_world import BASE, EVERY, REPOSITORY, SPEC, TOOLS, BuildPlanWorld, digest, index_of, node, places_left

from polyarch.builds.facts.build_facts import BuildStep, SecretFacts, WriteFailure
from polyarch.oci.documents import OCI_MANIFEST

pytestmark = pytest.mark.req("BD-221")


def spec(**fields: Any) -> dict[str, Any]:
    return {**SPEC, **fields}


def phases(world: BuildPlanWorld, run: str = "") -> dict[str, str]:
    found = world.runs[run or list(world.runs)[-1]]["status"]["architectures"]
    return {each["architecture"]: each["phase"] for each in found}


def run_phase(world: BuildPlanWorld) -> str:
    return str(list(world.runs.values())[-1]["status"]["phase"])


def child(world: BuildPlanWorld, architecture: str) -> dict[str, Any]:
    found = list(world.runs.values())[-1]["status"]["architectures"]
    return next(each for each in found if each["architecture"] == architecture)


def failed(expected: str, **job: Any) -> BuildPlanWorld:
    """A world whose arm64 build failed, while amd64 is there."""
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64", **job)
    world.reconcile()
    assert child(world, "arm64")["reason"] == expected
    assert run_phase(world) == "Failed"
    world.made.clear()
    return world


# -- phases ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-190")
def test_phases_of_an_architecture_follow_its_job() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    assert phases(world) == {"amd64": "Building", "arm64": "Building"}
    world.unschedulable("arm64")
    world.reconcile()
    assert phases(world)["arm64"] == "WaitingForNode"
    world.schedule("arm64")
    world.reconcile()
    assert phases(world)["arm64"] == "Building"
    assert child(world, "arm64")["node"] == "node-arm64"
    world.succeed("arm64")
    world.reconcile()
    assert phases(world) == {"amd64": "Building", "arm64": "Built"}


@pytest.mark.req("BD-191")
def test_an_execution_assembles_once_all_children_are_known() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    assert run_phase(world) == "Building"
    world.succeed("amd64")
    world.succeed("arm64")
    steps = [write.step for write in world.plan().writes]
    recorded = [write.body["status"]["phase"] for write in world.plan().writes if write.kind == "ImageBuildRun"]
    assert recorded == ["Assembling", "Succeeded"]
    assert (
        steps.index(BuildStep.RECORD_PROGRESS)
        < steps.index(BuildStep.PUBLISH)
        < steps.index(BuildStep.RECORD_END)
        < steps.index(BuildStep.DELETE_JOB)
        < steps.index(BuildStep.REPORT)
    )


@pytest.mark.req("BD-192", "BD-216")
def test_a_failure_pushes_nothing_and_siblings_run_to_their_end() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.fail("arm64")
    world.reconcile()
    assert (run_phase(world), phases(world)["amd64"]) == ("Building", "Building")
    assert world.condition("Degraded") == ("True", "BuildFailed"), "visible at once"
    assert ("ArchitectureBuildFailed", "arm64") in world.events
    assert world.status()["summary"] == "0/2 arm64: BuildFailed"
    world.succeed("amd64")
    world.reconcile()
    assert (run_phase(world), world.status()["summary"]) == ("Failed", "1/2 arm64: BuildFailed")
    assert not any(reference in world.manifests for reference in world.tags.values())
    assert all(media_type == OCI_MANIFEST for media_type, _ in world.manifests.values()), "no index was pushed"
    run = list(world.runs.values())[-1]["status"]
    assert run["conditions"][2]["message"].startswith("arm64: BuildFailed: ")
    assert "RUN make: exit 2" in run["conditions"][2]["message"]


@pytest.mark.req("BD-192")
def test_fail_fast_cancels_siblings_and_deletes_their_jobs_after_recording_it() -> None:
    world = BuildPlanWorld(spec(failFast=True))
    world.reconcile()
    job = world.job_of("amd64")
    world.fail("arm64")
    plan = world.plan()
    kinds = [(write.step, write.kind) for write in plan.writes]
    assert kinds.index((BuildStep.RECORD_END, "ImageBuildRun")) < kinds.index((BuildStep.DELETE_JOB, "Job"))
    world.reconcile()
    assert (phases(world), job in world.jobs) == ({"amd64": "Cancelled", "arm64": "Failed"}, False)
    assert {each.architecture: each.action for each in plan.per_architecture} == {"amd64": "Cancel", "arm64": "Fail"}


@pytest.mark.req("BD-192")
def test_a_job_that_somebody_deleted_interrupts_and_siblings_keep_their_children() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.delete_job(world.job_of("arm64"))
    world.reconcile()
    assert phases(world) == {"amd64": "Building", "arm64": "Interrupted"}
    world.succeed("amd64")
    world.reconcile()
    assert (run_phase(world), phases(world)["amd64"]) == ("Interrupted", "Built")
    assert ("BuildInterrupted", "") in world.events
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Held", "JobDeleted")


@pytest.mark.req("BD-192")
def test_failed_beats_interrupted() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.delete_job(world.job_of("arm64"))
    world.fail("amd64")
    world.reconcile()
    assert run_phase(world) == "Failed"


@pytest.mark.req("BD-192")
def test_a_deleted_pod_interrupts_nothing() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.schedule("arm64")
    world.pods.clear()
    world.reconcile()
    assert phases(world) == {"amd64": "Building", "arm64": "Building"}


@pytest.mark.req("BD-193")
def test_children_as_before_are_told_as_unchanged() -> None:
    world = BuildPlanWorld()
    world.build_all()
    image = world.status()["image"]
    world.set("rebuild", {"token": "1"})
    world.told.clear()
    world.build_all()
    assert world.status()["image"] == image
    told = [each.message for each in world.told if each.reason == "BuildSucceeded"]
    assert told == [f"{image} is published (unchanged)."]


@pytest.mark.req("BD-194")
def test_a_partial_index_is_published_without_what_failed() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "partial": {"required": ["amd64"]}}})
    world.reconcile()
    world.fail("arm64")
    world.reconcile()
    assert run_phase(world) == "Building"
    world.succeed("amd64")
    world.reconcile()
    assert run_phase(world) == "Succeeded"
    assert world.condition("Ready") == ("True", "PartialIndex")
    assert world.condition("Degraded") == ("True", "BuildFailed")
    assert [each["architecture"] for each in world.status()["images"]] == ["amd64"]
    assert len(world.manifests[world.status()["image"]][1]) == 1, "an index, although of one image"
    plan = world.settle()
    assert (plan.decision, plan.reason) == ("Held", "BuildFailed")
    assert world.condition("Ready") == ("True", "PartialIndex")


@pytest.mark.req("BD-194")
def test_a_required_architecture_that_failed_leaves_nothing_to_publish() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "partial": {"required": ["arm64"]}}})
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64")
    world.reconcile()
    assert (run_phase(world), world.status().get("image")) == ("Failed", None)


@pytest.mark.req("BD-198")
def test_jobs_of_a_failure_stay_for_their_logs_until_it_is_pruned() -> None:
    world = failed("BuildFailed")
    jobs = set(world.jobs)
    assert len(jobs) == 2
    world.now += 60
    world.set("source.containerfile", "FROM busybox:1.36\nRUN echo ok\n")
    world.build_all()
    assert world.condition("Ready") == ("True", "Published")
    assert set(world.jobs) == jobs, "those of what succeeded have nothing more to tell"
    world.set("history", {"failed": 0})
    world.prune()
    assert not world.jobs


# -- harvest -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-150")
def test_without_a_message_the_tag_of_the_child_says_what_was_pushed() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    digest = world.succeed("arm64", message="rubbish {")
    world.reconcile()
    assert child(world, "arm64")["digest"] == digest
    assert any(each.startswith(f"head {REPOSITORY}:web-") for each in world.asked)


@pytest.mark.req("BD-150")
def test_without_message_and_tag_it_is_built_again_as_one_more_attempt() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "archTags": "None"}})
    world.reconcile()
    job = world.job_of("arm64")
    world.succeed("arm64")
    world.pods.pop(job)
    plan = world.reconcile()
    assert [(write.verb, write.name) for write in plan.writes if write.verb == "delete"] == [("delete", job)]
    world.reconcile()
    assert world.job_of("arm64") == job
    world.succeed("arm64")
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64")["attempts"]) == ("Built", 2)


@pytest.mark.req("BD-150")
def test_a_job_with_another_uid_is_never_harvested() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    name = world.job_of("arm64")
    world.jobs[name]["metadata"]["uid"] = "another"
    world.succeed("arm64")
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64").get("digest")) == ("Interrupted", None)


@pytest.mark.req("BD-177")
def test_a_child_that_vanished_before_publishing_is_built_again_once() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.reconcile()
    world.succeed("arm64")
    world.vanish(child(world, "amd64")["digest"])
    world.reconcile()
    assert phases(world) == {"amd64": "Pending", "arm64": "Built"}
    assert child(world, "amd64")["reason"] == "ChildVanished"
    world.settle()
    digest = world.succeed("amd64")
    world.vanish(digest)
    world.reconcile()
    assert (child(world, "amd64")["reason"], run_phase(world)) == ("RegistryInconsistent", "Failed")
    assert world.plan().decision == "Held"


# -- what fails an architecture ----------------------------------------------------------------------------------------


@pytest.mark.req("BD-215")
def test_without_a_node_for_node_wait_an_architecture_fails_and_its_job_is_deleted() -> None:
    world = BuildPlanWorld(spec(timeouts={"nodeWait": "15m"}))
    world.reconcile()
    world.succeed("amd64")
    world.nodes = [node("amd64"), node("arm64", ready=False)]
    world.unschedulable("arm64", "0/2 nodes match")
    job = world.job_of("arm64")
    plan = world.reconcile()
    assert (phases(world)["arm64"], plan.requeue_after) == ("WaitingForNode", 900.0)
    assert child(world, "arm64")["message"] == "0/2 nodes match"
    assert world.status()["summary"] == "1/2 arm64: WaitingForNode"
    assert ("WaitingForNode", "arm64") in world.events
    world.now += 901
    world.reconcile()
    assert child(world, "arm64")["reason"] == "NoNodeForArchitecture"
    assert "0/2 nodes match" in child(world, "arm64")["message"]
    assert job not in world.jobs
    plan = world.settle()
    assert (plan.decision, plan.reason) == ("Held", "NoNodeForArchitecture")
    assert "linux/arm64" in plan.message
    world.nodes = [node("amd64"), node("arm64")]
    assert world.plan().decision == "Build"
    assert {each.architecture: each.action for each in world.plan().per_architecture} == {
        "amd64": "Reuse",
        "arm64": "Build",
    }


@pytest.mark.req("BD-215")
def test_what_keeps_a_pod_from_starting_on_its_node_is_told_while_it_may_still_start() -> None:
    """An image that the node may not pull, for example: it would be an hour of ``Building`` without a word."""
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.stall("arm64", "pull access denied")
    world.reconcile()
    told = child(world, "arm64")
    assert (told["phase"], told["reason"]) == ("Building", "PodNotStarted")
    assert "does not start on node node-arm64: container build: ImagePullBackOff: pull access denied" in told["message"]
    progressing = next(each for each in world.status()["conditions"] if each["type"] == "Progressing")
    assert "arm64: PodNotStarted: pod" in progressing["message"]
    world.schedule("arm64")
    world.reconcile()
    assert (child(world, "arm64")["phase"], child(world, "arm64").get("message", "")) == ("Building", "")
    world.stall("arm64", "pull access denied")
    world.reconcile()
    world.fail("arm64", reason="DeadlineExceeded")
    world.reconcile()
    assert child(world, "arm64")["reason"] == "BuildTimeout"
    assert "pull access denied" in child(world, "arm64")["message"]


@pytest.mark.req("BD-215")
def test_with_a_ready_node_it_is_unschedulable_until_its_nodes_change() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.unschedulable("arm64", "Insufficient memory")
    world.now += 901
    world.reconcile()
    assert child(world, "arm64")["reason"] == "Unschedulable"
    world.now += 86_400
    assert world.plan().decision == "Held"
    world.nodes.append(node("amd64", "more"))
    assert world.plan().decision == "Held"
    world.nodes.append(node("arm64", "larger"))
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-215")
def test_a_node_that_comes_in_time_is_used() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.unschedulable("arm64")
    world.reconcile()
    world.now += 899
    world.schedule("arm64")
    world.reconcile()
    assert phases(world)["arm64"] == "Building"


@pytest.mark.req("BD-200")
def test_the_wait_is_counted_from_the_pod_so_a_restart_does_not_lengthen_it() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.unschedulable("arm64")
    world.now += 600
    assert world.plan().requeue_after == 300.0, "a builder that has just started knows it too"


@pytest.mark.req("BD-217")
def test_two_failures_then_success_are_three_attempts() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("arm64", failed=2)
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64")["attempts"]) == ("Built", 3)


@pytest.mark.req("BD-218")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "BuildFailed"),
        (40, "UserNamespaceUnavailable"),
        (41, "EmulatorMissing"),
        (42, "ContainerfileInvalid"),
        (43, "ArchitectureMismatch"),
        (44, "PushDenied"),
        (45, "LayoutInvalid"),
        (46, "InputMissing"),
        (47, "BuilderImageUnusable"),
    ],
)
def test_a_failed_build_is_held_and_says_what_releases_it(code: int, reason: str) -> None:
    world = failed(reason, code=code)
    world.now += 7 * 86_400
    world.nodes.append(node("amd64", "more"))
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Held", reason)
    assert "What releases it: " in plan.message
    assert world.settle().decision == "Held"
    assert world.made == []
    assert world.condition("Degraded") == ("True", reason)
    assert world.status()["lastFailure"]["architectures"] == ["arm64"]
    world.set("rebuild", {"token": "again"})
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["arm64"]
    assert world.condition("Degraded") == ("False", "None")
    assert "lastFailure" not in world.status()


@pytest.mark.req("BD-218")
def test_the_deadline_is_a_build_timeout_and_is_held() -> None:
    world = failed("BuildTimeout", reason="DeadlineExceeded")
    assert world.plan().decision == "Held"


@pytest.mark.req("BD-218")
@pytest.mark.parametrize("code", [40, 41])
def test_a_change_of_the_spec_releases_what_the_nodes_lack(code: int) -> None:
    world = failed("UserNamespaceUnavailable" if code == 40 else "EmulatorMissing", code=code)
    world.set("builder.securityProfile", "Rootless")
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-065", "BD-218")
def test_a_repaired_builder_image_releases_what_the_former_one_failed() -> None:
    world = failed("BuilderImageUnusable", code=47)
    plan = world.settle()
    assert (plan.decision, plan.requeue_after) == ("Held", 600.0)
    assert world.made == []
    world.unreachable = True
    assert world.plan().decision == "Held", "a registry that does not answer tells of no other image"
    world.unreachable = False
    world.bases[TOOLS[0]] = msgspec.structs.replace(index_of(TOOLS[0], EVERY), digest=digest("repaired"))
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["arm64"]


@pytest.mark.req("BD-218")
def test_a_push_that_was_denied_is_tried_when_a_secret_changes() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "pushSecret": {"name": "push"}}})
    config = {"type": "kubernetes.io/dockerconfigjson", "keys": frozenset({".dockerconfigjson"})}
    world.secrets["push"] = SecretFacts(resource_version="1", **config)
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64", code=44)
    world.reconcile()
    plan = world.plan()
    assert (plan.decision, plan.reason, plan.requeue_after) == ("Held", "PushDenied", 60.0)
    world.secrets["push"] = SecretFacts(resource_version="2", **config)
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-128")
def test_other_inputs_release_a_failed_build() -> None:
    world = failed("BuildFailed")
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": "FROM busybox:1.36\nRUN echo ok\n"}])
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-240")
def test_a_failure_leaves_the_former_result_published() -> None:
    """Ready=True/Outdated."""
    world = BuildPlanWorld()
    world.build_all()
    image = world.status()["image"]
    world.set("source.containerfile", "FROM busybox:1.36\nRUN false\n")
    world.reconcile()
    world.fail("amd64")
    world.fail("arm64")
    world.reconcile()
    assert world.status()["image"] == image
    assert world.condition("Ready") == ("True", "Outdated")
    assert world.condition("Degraded") == ("True", "BuildFailed")
    assert world.condition("Progressing") == ("False", "Done")


@pytest.mark.req("BD-006")
def test_a_build_that_has_just_failed_says_what_releases_it_and_needs_no_second_write() -> None:
    world = failed("BuildFailed")
    degraded = next(each for each in world.status()["conditions"] if each["type"] == "Degraded")
    assert "arm64: BuildFailed: " in degraded["message"]
    assert "What releases it: a change of its inputs or a new spec.rebuild.token." in degraded["message"]
    assert world.plan().writes == ()


# -- what keeps a build from starting ----------------------------------------------------------------------------------


@pytest.mark.req("BD-005", "BD-060", "BD-320")
def test_a_base_without_an_architecture_makes_no_run_and_ends_when_the_answer_changes() -> None:
    """It is invalid as it is said, and looked up again all the same."""
    world = BuildPlanWorld()
    world.bases[BASE] = index_of(BASE, ("amd64",))
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Invalid", "BaseImageArchitectureMissing")
    world.settle()
    assert (world.runs, world.jobs) == ({}, {})
    assert world.condition("InputsValid") == ("False", "BaseImageArchitectureMissing")
    assert world.plan().requeue_after == 600.0
    world.bases[BASE] = index_of(BASE, ("amd64", "arm64"))
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-060")
def test_a_builder_image_without_an_architecture_is_named() -> None:
    world = BuildPlanWorld()
    world.bases[TOOLS[0]] = index_of(TOOLS[0], ("amd64",))
    assert (world.plan().decision, world.plan().reason) == ("Invalid", "BuilderImageArchitectureMissing")


@pytest.mark.req("BD-059")
@pytest.mark.parametrize("error", ["unknown-host", "refused-address", "tls"])
def test_a_registry_that_cannot_be_is_said_before_anything_is_built(error: str) -> None:
    world = BuildPlanWorld()
    world.heads[f"{REPOSITORY}:latest"] = error
    plan = world.reconcile()
    assert (plan.decision, plan.reason) == ("Wait", "RegistryUnreachable")
    assert f"Nothing can be pushed to {REPOSITORY}, which spec.output.repository names" in plan.message
    assert (world.runs, world.condition("InputsValid")) == ({}, ("Unknown", "RegistryUnreachable"))
    world.now += 301
    world.reconcile()
    assert world.condition("InputsValid") == ("False", "RegistryUnreachable")
    world.heads.clear()
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-347")
def test_where_something_was_pushed_already_it_is_not_asked_again() -> None:
    world = BuildPlanWorld()
    world.build_all()
    world.asked.clear()
    world.set("source.containerfile", "FROM busybox:1.36\nRUN other\n")
    world.reconcile()
    assert f"head {REPOSITORY}:latest" not in world.asked


@pytest.mark.req("BD-064")
def test_a_missing_config_map_ends_when_it_is_there() -> None:
    world = BuildPlanWorld({**SPEC, "source": {"containerfileFrom": {"name": "files"}}})
    assert (world.plan().decision, world.plan().reason) == ("Wait", "InputMissing")
    world.settle()
    assert world.condition("InputsValid") == ("False", "InputMissing")
    world.inputs["files"] = {"data": {"Containerfile": "FROM busybox:1.36\n"}}
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-005")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": {"containerfile": "FRUM busybox\n"}}, "ContainerfileInvalid"),
        (
            {"source": {"overrides": [{"architecture": "arm64", "containerfile": "FROM scratch\n"}]}},
            "ContainerfileMissing",
        ),
        ({"output": {**SPEC["output"], "index": "Never"}}, "IndexForbidden"),
        ({"builder": {"securityProfile": "Privileged"}}, "ProfileForbidden"),
        ({"output": {"repository": "no-host"}}, "InvalidSpec"),
    ],
)
def test_what_only_the_spec_can_mend_is_invalid(change: dict[str, Any], reason: str) -> None:
    world = BuildPlanWorld({**SPEC, **change})
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Invalid", reason)
    world.settle()
    assert (world.runs, world.condition("InputsValid")) == ({}, ("False", reason))
    assert world.condition("Degraded") == ("True", reason)


@pytest.mark.req("BD-151")
def test_a_forbidden_profile_names_the_value_of_the_installation_that_allows_it() -> None:
    """An administrator sets values; the flag of the process that they become is nothing to look for."""
    plan = BuildPlanWorld({**SPEC, "builder": {"securityProfile": "Privileged"}}).plan()
    assert "set builds.allowPrivileged: true in the values of the installation" in plan.message


@pytest.mark.req("BD-151")
@pytest.mark.parametrize(
    ("changes", "scheduling", "is_refused"),
    [
        ({}, {}, True),
        ({"ready": False}, {}, False),
        ({"schedulable": False}, {}, False),
        ({"deleting": True}, {}, False),
        ({"taints": (("team", "x", "NoSchedule"),)}, {}, False),
        ({"taints": (("team", "x", "NoSchedule"),)}, {"tolerations": [{"operator": "Exists"}]}, True),
        ({}, {"nodeSelector": {"userns": "yes"}}, False),
        ({"user_namespaces": frozenset({"other"})}, {}, True),
    ],
)
def test_a_profile_that_a_node_cannot_start_is_said_before_a_job_is_made(
    changes: dict[str, Any], scheduling: dict[str, Any], is_refused: bool
) -> None:
    """Its kubelet would try to make such a pod until the build's time is over."""
    perhaps = {"scheduling": {"perArchitecture": [{"architecture": "arm64", **scheduling}]}} if scheduling else {}
    world = BuildPlanWorld({**SPEC, **perhaps, "builder": {"securityProfile": "UserNamespace"}})
    able = next(each for each in world.nodes if each.architecture == "arm64")
    able = msgspec.structs.replace(able, labels={**able.labels, "userns": "yes"})
    unable = msgspec.structs.replace(able, labels={}, **{"name": "unable", "user_namespaces": frozenset(), **changes})
    world.nodes = [*(each for each in world.nodes if each.name != able.name), able, unable]
    plan = world.plan()
    if is_refused:
        assert (plan.decision, plan.reason) == ("Invalid", "UserNamespaceUnavailable")
        assert "runtime of node unable reports no user namespaces" in plan.message
    else:
        assert plan.decision == "Build"


@pytest.mark.req("BD-153")
def test_a_namespace_that_forbids_build_pods_is_said_before_a_job_is_made() -> None:
    world = BuildPlanWorld()
    inputs = world.facts().inputs
    plan = world.plan(inputs=msgspec.structs.replace(inputs, pod_security="restricted"))
    assert (plan.decision, plan.reason) == ("Wait", "PodSecurityForbids")


@pytest.mark.req("BD-060")
def test_a_registry_that_cannot_be_reached_is_undecided_for_the_time_of_preflight() -> None:
    world = BuildPlanWorld()
    world.unreachable = True
    plan = world.reconcile()
    assert (plan.decision, plan.reason) == ("Wait", "RegistryUnreachable")
    assert world.condition("InputsValid") == ("Unknown", "RegistryUnreachable")
    assert world.condition("Degraded") == ("False", "None")
    world.now += 301
    world.reconcile()
    assert world.condition("InputsValid") == ("False", "RegistryUnreachable")
    pauses = []
    for _ in range(8):
        pause = world.plan().requeue_after
        assert pause is not None
        pauses.append(pause)
        world.now += pause
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]
    world.unreachable = False
    assert world.plan().decision == "Build"


@pytest.mark.req("BD-047")
def test_without_nodes_to_list_nothing_is_planned() -> None:
    world = BuildPlanWorld()
    world.build_all()
    world.set("output.labels", {"a": "b"})
    plan = world.plan(nodes=None)
    assert (plan.decision, plan.reason) == ("Wait", "NodesUnknown")
    assert {write.kind for write in plan.writes} == {"ImageBuild"}
    assert all(write.verb == "status" for write in plan.writes)
    assert plan.writes[0].body["status"]["architectures"] == ["amd64", "arm64"], "the last D stays"


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-219")
def test_a_registry_that_is_down_while_publishing_is_tried_until_the_index_timeout() -> None:
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(
        verb="", code="RegistryUnreachable", message="503", passing=True, retry_after=20.0
    )
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    plan = world.reconcile()
    assert (run_phase(world), plan.requeue_after) == ("Assembling", 20.0)
    world.now += 301
    world.reconcile()
    assert run_phase(world) == "Failed"
    assert phases(world) == {"amd64": "Built", "arm64": "Built"}, "all children are recorded"
    plan = world.plan()
    assert (plan.decision, plan.reason, plan.requeue_after) == ("Held", "RegistryUnreachable", 60.0)
    world.now += 61
    world.push_trouble = None
    world.made.clear()
    assert world.plan().decision == "Reassemble"
    world.settle()
    assert (world.condition("Ready"), world.made) == (("True", "Published"), [])


@pytest.mark.req("BD-219", "BD-240")
def test_what_keeps_a_result_from_being_published_is_told_by_the_build_itself() -> None:
    """Whoever looks at the build must not have to look at its run."""
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code="RegistryUnreachable", message="HTTP 503", passing=True)
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    found = next(each for each in world.status()["conditions"] if each["type"] == "Progressing")
    assert (found["status"], found["reason"]) == ("True", "RegistryUnreachable")
    assert "cannot publish the result yet: HTTP 503; it is tried again" in found["message"]


@pytest.mark.req("BD-218", "BD-219")
@pytest.mark.parametrize("reason", ["QuotaExceeded", "PushTooLarge", "RepositoryMissing"])
def test_what_a_registry_has_no_room_for_is_published_once_it_has(reason: str) -> None:
    """No Secret changes when a quota is raised; nothing is built again."""
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code=reason, message="no room")
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    plan = world.settle()
    assert (plan.decision, plan.reason, plan.requeue_after) == ("Held", reason, 600.0)
    assert world.condition("Degraded") == ("True", reason)
    assert "tried again every 10 minutes" in plan.message
    world.made.clear()
    world.push_trouble = None
    world.now += 601
    assert world.settle().decision == "UpToDate"
    assert world.made == []


@pytest.mark.req("BD-102", "BD-218")
def test_another_tag_releases_a_result_whose_tag_is_immutable() -> None:
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "tags": ["1.0"]}})
    world.push_trouble = WriteFailure(verb="", code="TagImmutable", message="the tag 1.0 is immutable")
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    plan = world.settle()
    assert (plan.decision, plan.reason) == ("Held", "TagImmutable")
    assert "a change of the spec" in plan.message
    world.now += 3600
    assert world.plan().decision == "Held"
    world.push_trouble = None
    world.made.clear()
    world.set("output.tags", ["1.1"])
    world.settle()
    assert world.condition("Ready") == ("True", "Published")
    assert (world.made, world.status()["tags"]) == ([], ["1.1"])


@pytest.mark.req("BD-346")
def test_another_attempt_to_publish_takes_nothing_back_before_it() -> None:
    """A reason that is cleared before each attempt and written after it is two writes, and each brings a pass."""
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code="RegistryUnreachable", message="503", passing=True)
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    assert run_phase(world) == "Assembling"
    first = world.plan().writes[0]
    assert (first.verb, first.step) == ("push-index", BuildStep.PUBLISH)


@pytest.mark.req("BD-219")
def test_failures_in_a_row_are_tried_after_longer_pauses() -> None:
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code="RegistryUnreachable", message="503", passing=True)
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    pauses = []
    for _ in range(3):
        world.now += 301
        world.reconcile()
        pause = world.plan().requeue_after
        assert pause is not None
        pauses.append(pause)
        world.now += pause
        world.reconcile()
    assert pauses == [60.0, 120.0, 240.0]


@pytest.mark.parametrize("reason", ["MixedFormats", "DuplicatePlatform", "RegistryInconsistent", "PushDenied"])
def test_a_registry_that_refuses_the_result_fails_the_execution(reason: str) -> None:
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code=reason, message="no")
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    assert run_phase(world) == "Failed"
    plan = world.settle()
    assert (plan.decision, plan.reason) == ("Held", reason)
    assert world.condition("Degraded") == ("True", reason)


@pytest.mark.req("BD-170")
def test_children_of_two_formats_are_not_joined() -> None:
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.reconcile()
    world.succeed("arm64")
    message = world.pods[next(each for each in world.pods if "arm64" in each)]["status"]["containerStatuses"][0]
    ended = message["state"]["terminated"]
    ended["message"] = ended["message"].replace(OCI_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
    plan = world.plan()
    assert not any(write.verb == "push-index" for write in plan.writes)
    world.reconcile()
    assert world.condition("Degraded") == ("True", "MixedFormats")


@pytest.mark.req("BD-173")
def test_a_child_of_another_architecture_fails_its_architecture() -> None:
    world = BuildPlanWorld()
    world.push_trouble = WriteFailure(verb="", code="ArchitectureMismatch", message="it is amd64", architecture="arm64")
    world.reconcile()
    world.succeed("amd64")
    world.succeed("arm64")
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64").get("digest")) == ("Failed", None)
    assert phases(world)["amd64"] == "Built"


@pytest.mark.req("BD-092")
def test_a_child_that_cannot_be_copied_is_built() -> None:
    world = BuildPlanWorld()
    world.build_all()
    world.set("output.repository", "registry.example.com/team/other")
    world.push_trouble = WriteFailure(verb="", code="ReuseFailed", message="no route", architecture="arm64")
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64")["reason"]) == ("Pending", "ReuseFailed")
    world.push_trouble = None
    world.made.clear()
    world.build_all()
    assert [each.split()[0] for each in world.made] == ["arm64"]
    assert world.status()["image"].startswith("registry.example.com/team/other@")


# -- the API server says no --------------------------------------------------------------------------------------------


@pytest.mark.req("BD-220")
def test_a_job_that_is_refused_is_pending_and_fails_after_node_wait() -> None:
    world = BuildPlanWorld()
    job = next(write.name for write in world.plan().writes if write.kind == "Job" and "arm64" in write.name)
    world.refused[job] = "exceeded quota: jobs=1"
    plan = world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64")["reason"]) == ("Pending", "JobRefused")
    assert "exceeded quota" in child(world, "arm64")["message"]
    assert plan.requeue_after == 5.0
    assert phases(world)["amd64"] == "Building", "the others go on"
    world.schedule("amd64")
    world.now += 901
    world.reconcile()
    assert (phases(world)["arm64"], child(world, "arm64")["reason"]) == ("Failed", "JobRefused")


@pytest.mark.req("BD-220")
@pytest.mark.parametrize("suffix", ["-in", "-context"])
def test_what_a_job_mounts_may_be_refused_too(suffix: str) -> None:
    world = BuildPlanWorld(
        {**SPEC, "source": {**SPEC["source"], "context": {"type": "ConfigMap", "configMap": {"name": "one"}}}}
    )
    world.inputs["one"] = {"data": {"a": "b"}}
    job = next(write.name for write in world.plan().writes if write.kind == "Job" and "arm64" in write.name)
    world.refused[f"{job}{suffix}"] = "exceeded quota: count/configmaps=9"
    assert world.reconcile().requeue_after == 5.0
    assert (phases(world)["arm64"], child(world, "arm64")["reason"]) == ("Pending", "JobRefused")


@pytest.mark.req("BD-220")
def test_a_job_that_is_accepted_later_is_made() -> None:
    world = BuildPlanWorld()
    job = next(write.name for write in world.plan().writes if write.kind == "Job" and "arm64" in write.name)
    world.refused[job] = "exceeded quota"
    world.reconcile()
    world.refused.clear()
    world.now += 30
    world.reconcile()
    assert (phases(world)["arm64"], job in world.jobs) == ("Building", True)


@pytest.mark.req("BD-021")
def test_an_execution_name_that_somebody_else_has_is_a_conflict_and_nothing_is_overwritten() -> None:
    world = BuildPlanWorld()
    name = world.plan().execution
    foreign = {"metadata": {"name": name, "namespace": "team", "uid": "x", "ownerReferences": []}, "spec": {}}
    failure = WriteFailure(
        verb="create",
        step=BuildStep.CREATE_EXECUTION,
        kind="ImageBuildRun",
        name=name,
        code="NameConflict",
        message="it is not ours",
    )
    plan = world.plan(failures=(failure,))
    world.carry_out(plan)
    assert world.condition("Degraded") == ("True", "NameConflict")
    assert (world.runs, world.jobs, bool(foreign)) == ({}, {}, True)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-154")
def test_jobs_are_made_in_order_within_max_parallel() -> None:
    world = BuildPlanWorld(spec(scheduling={"maxParallel": 1}), architectures=("s390x", "amd64", "arm64"))
    plan = world.reconcile()
    assert [each.split()[0] for each in world.made] == ["amd64"]
    assert [(each.architecture, each.reason) for each in plan.per_architecture[1:]] == [
        ("arm64", "Queued"),
        ("s390x", "Queued"),
    ]
    world.succeed("amd64")
    world.reconcile()
    assert [each.split()[0] for each in world.made] == ["amd64", "arm64"]


@pytest.mark.req("BD-154")
def test_older_executions_come_first_within_the_jobs_of_the_cluster() -> None:
    world = BuildPlanWorld()
    assert len([write for write in world.plan(places=places_left(19, 20)).writes if write.kind == "Job"]) == 1
    assert [write for write in world.plan(places=places_left(15, 20, queued=5)).writes if write.kind == "Job"] == []
    world.carry_out(world.plan(places=places_left(20, 20)))
    assert world.condition("Progressing") == ("True", "Queued")


@pytest.mark.req("BD-155")
def test_an_architecture_without_any_node_gets_its_job() -> None:
    world = BuildPlanWorld(
        spec(architectures={"mode": "Explicit", "list": ["amd64", "s390x"]}), architectures=("amd64",)
    )
    world.reconcile()
    assert [each.split()[0] for each in world.made] == ["amd64", "s390x"]


@pytest.mark.req("BD-092", "BD-176")
def test_a_child_of_a_failed_run_is_copied_from_where_its_job_pushed_it() -> None:
    """A run that was interrupted has copied nothing out of the staging repository."""
    staging = "registry.example.com/team/staging"
    world = BuildPlanWorld({**SPEC, "output": {**SPEC["output"], "stagingRepository": staging}})
    world.reconcile()
    child = world.succeed("amd64")
    world.delete_job(world.job_of("arm64"))
    world.reconcile()
    world.set("rebuild", {"token": "again"})
    world.reconcile()
    world.succeed("arm64")
    (push,) = [each for each in world.plan().writes if each.verb == "push-index"]
    assert push.body["children"][0]["reference"] == f"{staging}@{child}"
    world.reconcile()
    assert world.condition("Ready") == ("True", "Published")
