"""What the planner looks at first, and what it does not ask for then.

Each test has two reasons to decide something, and the earlier one decides.
"""

from typing import Any

import pytest
from builds_world import BASE, EVERY, BuildPlanWorld, index_of

from polyarch.builds import names

COMMON = "FROM busybox:1.36\nRUN true\n"
OTHER = "FROM busybox:1.36\nRUN echo other\n"
EXPLICIT = {"mode": "Explicit", "list": ["amd64", "arm64"]}


def built(**sections: Any) -> BuildPlanWorld:
    world = BuildPlanWorld()
    for path, value in sections.items():
        world.set(path, value)
    world.build_all()
    world.asked.clear()
    world.made.clear()
    return world


def made(world: BuildPlanWorld) -> list[str]:
    return sorted(each.split()[0] for each in world.made)


@pytest.mark.req("BD-090")
def test_what_is_wrong_in_the_spec_comes_before_everything_else() -> None:
    """Step 1: also before the result that is there."""
    world = built()
    world.set("source.containerfile", "FRM busybox\n")
    plan = world.plan()
    assert (plan.decision, plan.reason) == ("Invalid", "ContainerfileInvalid")
    assert world.asked == []


@pytest.mark.req("BD-090")
def test_a_new_token_comes_before_a_result_that_covers() -> None:
    """Steps 4 and 9: and while it is worked on, the same token asks for nothing more."""
    world = built()
    world.set("rebuild", {"token": "again", "architectures": ["arm64"]})
    world.reconcile()
    assert made(world) == ["arm64"]
    assert world.plan().decision == "InProgress"
    world.build_all()
    assert made(world) == ["arm64"]
    assert world.plan().decision == "UpToDate"


@pytest.mark.req("BD-090")
def test_a_former_result_comes_before_the_execution_at_work() -> None:
    """Steps 5 and 6: back to what was built once, nothing is waited for."""
    world = built()
    first = world.status()["image"]
    world.set("source.containerfile", OTHER)
    world.build_all()
    world.set("source.containerfile", "FROM busybox:1.36\nRUN echo third\n")
    world.reconcile()
    world.set("source.containerfile", COMMON)
    assert world.plan().decision == "Repoint"
    world.settle()
    assert world.status()["image"] == first


@pytest.mark.req("BD-090")
def test_a_former_result_that_is_gone_does_not_count() -> None:
    """Step 5: it is looked for in the registry, with each of its children, before it is published again."""
    world = built()
    first = world.status()["image"]
    world.set("source.containerfile", OTHER)
    world.build_all()
    del world.manifests[first]
    world.asked.clear()
    world.set("source.containerfile", COMMON)
    assert world.plan().decision != "Repoint"
    assert f"head {first}" in world.asked


@pytest.mark.req("BD-090")
def test_a_failure_holds_before_base_images_are_looked_up_again() -> None:
    """Steps 7 and 8: a tag that moves does not release a build that failed on its own."""
    world = BuildPlanWorld()
    world.reconcile()
    world.succeed("amd64")
    world.fail("arm64")
    world.settle()
    world.bases[BASE] = index_of(BASE, EVERY, version="new")
    world.asked.clear()
    assert world.plan().decision == "Held"
    assert [each for each in world.asked if each.startswith("inspect")] == []


@pytest.mark.req("BD-090")
def test_base_images_are_looked_up_once_before_a_job_is_made() -> None:
    """Step 8: and keys are made anew from what was found."""
    world = built()
    world.bases[BASE] = index_of(BASE, EVERY, version="new")
    world.set("source.overrides", [{"architecture": "arm64", "containerfile": OTHER}])
    world.reconcile()
    assert made(world) == ["amd64", "arm64"], "the base has moved for both"
    world.asked.clear()
    assert world.plan().decision == "InProgress"
    assert [each for each in world.asked if BASE in each] == []


@pytest.mark.req("BD-091")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("output.repository", "registry.example.com/team/other", id="repository"),
        pytest.param("output.index", "Always", id="index"),
        pytest.param("output.annotations", {"a": "b"}, id="annotations"),
        pytest.param("output.attestations", "Keep", id="attestations"),
        pytest.param("architectures", {"mode": "Explicit", "list": ["amd64"]}, id="an architecture too many"),
    ],
)
def test_a_result_of_the_same_children_does_not_cover_what_differs_around_them(path: str, value: Any) -> None:
    world = built()
    world.set(path, value)
    assert world.plan().decision not in ("UpToDate", "Retag", "Repoint")
    world.build_all()
    assert world.made == [], "and yet nothing is built"


@pytest.mark.req("BD-091")
def test_a_result_that_lacks_an_architecture_does_not_cover() -> None:
    world = built(architectures=EXPLICIT)
    world.set("architectures", {"mode": "Explicit", "list": ["amd64", "arm64", "s390x"]})
    world.build_all()
    assert made(world) == ["s390x"]


@pytest.mark.req("BD-023", "BD-127")
def test_a_run_whose_inputs_are_gone_gets_no_further_job() -> None:
    """The architecture that waited for its turn is built from the new text, for the new run, and only once."""
    world = BuildPlanWorld()
    world.set("scheduling", {"maxParallel": 1})
    world.reconcile()
    (first,) = world.runs
    world.set("source.containerfile", OTHER)
    world.build_all()
    jobs = [each for each in world.made if each.startswith("arm64")]
    old = {each["architecture"]: each["key"] for each in world.runs[first]["spec"]["architectures"]}
    assert [each.split()[1] == old["arm64"][:8] for each in jobs] == [False]
    assert world.runs[first]["status"]["phase"] == "Superseded"
    assert names.RUN_LABEL in world.runs[first]["metadata"]["labels"]
