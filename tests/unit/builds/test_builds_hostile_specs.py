"""Wishes and answers as large and as wrong as they can be: each build is told what is the matter, and plans end."""

import re

import msgspec
import pytest
from builds_world import EVERY, SPEC, BuildPlanWorld, index_of

from polyarch.builds.api.crd import MESSAGE
from polyarch.builds.facts.build_facts import WriteFailure
from polyarch.builds.keys import MAX_IMAGES
from polyarch.builds.plan.conditions import MAX_MESSAGE, within
from polyarch.builds.plan.failures import SECRET_INTERVAL
from polyarch.builds.plan.planner import plan_build

SIXTEEN = (*EVERY, "386", "arm", "loong64", "mips", "mipsle", "mips64", "mips64le", "ppc64", "wasm", "xa", "xb")


@pytest.mark.req("BD-092")
def test_a_registry_that_lost_everything_is_asked_about_many_executions_in_a_few_rounds() -> None:
    """A hundred kept results of one build, none of which is there any more: it used to plan for ever."""
    world = BuildPlanWorld({**SPEC, "reproducible": {"enabled": False}, "history": {"successful": 100}})
    world.build_all()
    for number in range(1, 31):
        world.now += 100
        world.set("rebuild", {"token": f"again-{number}"})
        world.reconcile()
        for architecture in ("amd64", "arm64"):
            world.succeed(architecture, again=number)
        world.settle()
    world.manifests.clear()
    world.set("output.annotations", {"title": "web"})
    facts, rounds = world.facts(), 0
    while (found := plan_build(facts)).lookups:
        facts, rounds = world._answered(facts, found.lookups), rounds + 1
    assert found.decision == "Build"
    assert rounds <= 10
    heads = [each for each in world.asked if each.startswith("head ") and "@" in each]
    assert len(heads) == len(set(heads)), "nothing is asked twice"


@pytest.mark.req("BD-092")
def test_a_child_that_is_there_is_found_by_one_question() -> None:
    world = BuildPlanWorld({**SPEC, "reproducible": {"enabled": False}})
    world.build_all()
    world.now += 100
    world.set("rebuild", {"token": "again"})
    world.reconcile()
    for architecture in ("amd64", "arm64"):
        world.succeed(architecture, again=1)
    world.settle()
    world.asked.clear()
    world.set("output.annotations", {"title": "web"})
    assert world.plan().decision == "Reassemble"
    assert len([each for each in world.asked if each.startswith("head ")]) == 2


@pytest.mark.req("BD-320")
def test_a_status_with_hundreds_of_mistakes_is_one_that_the_api_server_takes() -> None:
    """Sixteen Containerfiles with twenty mistakes each made a message that was refused, and no status at all."""
    wrong = f"INSTRUCTION{'x' * 300}\n" * 60
    overrides = [{"architecture": each, "containerfile": wrong} for each in SIXTEEN]
    spec = {
        **SPEC,
        "source": {"overrides": overrides},
        "architectures": {"mode": "Explicit", "list": list(SIXTEEN)},
    }
    world = BuildPlanWorld(spec)
    world.reconcile()
    messages = {each["type"]: each["message"] for each in world.status()["conditions"]}
    assert max(len(each.encode()) for each in messages.values()) <= MAX_MESSAGE
    assert messages["InputsValid"].startswith("Containerfile (386), line 1: unknown instruction")
    assert messages["InputsValid"].endswith(" bytes in all)")


@pytest.mark.req("BD-241")
def test_a_message_is_cut_between_characters() -> None:
    assert within("as it is") == "as it is"
    assert within("ä" * 100, 60) == "ä" * 19 + "… (200 bytes in all)"


@pytest.mark.req("BD-022")
def test_a_long_refusal_of_a_job_is_told_as_far_as_a_status_holds_it() -> None:
    """What an admission webhook says may be long; with it the whole status of the run used to be refused."""
    world = BuildPlanWorld()
    job = next(each.name for each in world.plan().writes if each.kind == "Job")
    world.refused[job] = "policy ä " * 400
    world.reconcile()
    (run,) = world.runs.values()
    told = {each["architecture"]: each for each in run["status"]["architectures"]}
    assert told["amd64"]["reason"] == "JobRefused"
    assert told["amd64"]["message"].startswith(f"Job {job}: policy")
    assert len(told["amd64"]["message"].encode()) <= MESSAGE


@pytest.mark.req("BD-320")
def test_inputs_that_no_config_map_takes_are_refused_before_there_is_a_run() -> None:
    """The Run used to wait for a quarter of an hour, and then failed with what the API server had said at once."""
    world = BuildPlanWorld()
    world.set("source.buildArgs", {f"A{each}": "x" * 4096 for each in range(64)})
    world.set("output.labels", {f"l{each}": "y" * 4096 for each in range(64)})
    found = world.reconcile()
    assert (found.decision, found.reason, found.requeue_after) == ("Invalid", "InvalidSpec", None)
    assert re.search(r"given is 1\d{6} bytes \(build\.(sh|json) 5\d{5}, .*takes 1048576", found.message)
    assert (world.runs, world.made) == ({}, [])
    world.set("output.labels", {"l": "y" * 4096})
    assert world.reconcile().decision == "Build"


@pytest.mark.req("BD-323")
def test_more_images_than_a_build_may_name_are_asked_for_of_nobody() -> None:
    """Thousands of images used to be as many requests to registries, with every plan."""
    copies = "".join(f"COPY --from=a{each} x y\n" for each in range(4000))
    world = BuildPlanWorld({**SPEC, "source": {"containerfile": f"FROM a0\n{copies}"}})
    found = world.reconcile()
    assert (found.decision, found.reason) == ("Invalid", "ContainerfileInvalid")
    assert f"name 4000 images from outside; a build has at most {MAX_IMAGES}" in found.message
    assert world.asked == []


@pytest.mark.req("BD-323")
def test_as_many_images_as_a_build_may_name_are_built_from() -> None:
    images = [f"registry.example.com/base/a{each}:1" for each in range(MAX_IMAGES)]
    copies = "".join(f"COPY --from={each} x y\n" for each in images)
    world = BuildPlanWorld({**SPEC, "source": {"containerfile": f"FROM scratch\n{copies}"}})
    world.bases |= {each: index_of(each, EVERY) for each in images}
    assert world.reconcile().decision == "Build"


@pytest.mark.req("BD-220")
def test_a_refused_job_is_made_once_the_spec_says_otherwise() -> None:
    """Requests above limits are refused; that they are no input of a key kept the corrected build held."""
    world = BuildPlanWorld()
    for write in world.plan().writes:
        if write.kind == "Job":
            world.refused[write.name] = "spec.template: Invalid value: must be less than or equal to cpu limit"
    world.reconcile()
    world.now += 3600
    world.reconcile()
    assert world.plan().decision == "Held"
    world.refused.clear()
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    world.set("scheduling", {"perArchitecture": [{"architecture": "amd64", "resources": resources}]})
    assert world.build_all().decision == "UpToDate"


@pytest.mark.req("BD-102")
def test_a_tag_that_a_registry_refuses_is_not_tried_every_few_seconds() -> None:
    world = BuildPlanWorld()
    world.build_all()
    world.set("output.tags", ["stable"])
    world.push_trouble = WriteFailure(verb="tag", code="PushDenied", message="denied: requested access is denied")
    found = world.reconcile()
    assert (found.decision, found.reason) == ("Retag", "PushDenied")
    assert found.requeue_after == SECRET_INTERVAL
    world.push_trouble = msgspec.structs.replace(world.push_trouble, code="RegistryUnreachable", passing=True)
    assert (world.reconcile().requeue_after or 0) < SECRET_INTERVAL


@pytest.mark.req("BD-324")
def test_conditions_that_are_none_are_replaced() -> None:
    world = BuildPlanWorld()
    world.build_all()
    world.builds["web"]["status"]["conditions"] = ["Ready", None, {"type": "Ready", "status": "True"}]
    next(iter(world.runs.values()))["status"]["conditions"] = "Succeeded"
    world.settle()
    assert world.condition("Ready") == ("True", "Published")
