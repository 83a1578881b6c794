"""Properties of the planner, with a simulated world that carries its plans out.

For random sequences of edits, node changes, outcomes of Jobs and deaths of the builder: at most one live Job for each
architecture and key, every published index complete, no child deleted that something refers to, and in the end the same
result as that of the final inputs built from nothing.
"""

import contextlib
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from builds_world import BASE, REPOSITORY, SPEC, BuildPlanWorld, CutOff, index_of, made_by, node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildFacts
from polyarch.builds.plan.planner import plan_build

TEXTS = [f"FROM busybox:1.36\nRUN echo {word}\n" for word in ("one", "two", "three")]
ARCHITECTURES = ("amd64", "arm64", "s390x")
GENTLE = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])

EDITS = st.one_of(
    st.tuples(st.just("source.containerfile"), st.sampled_from(TEXTS)),
    st.tuples(
        st.just("source.overrides"),
        st.lists(
            st.builds(
                lambda architecture, text: {"architecture": architecture, "containerfile": text},
                st.sampled_from(ARCHITECTURES),
                st.sampled_from(TEXTS),
            ),
            max_size=2,
            unique_by=lambda each: each["architecture"],
        ),
    ),
    st.tuples(st.just("output.tags"), st.lists(st.sampled_from(["latest", "stable"]), unique=True)),
    st.tuples(st.just("output.index"), st.sampled_from(["Auto", "Always"])),
    st.tuples(st.just("output.annotations"), st.sampled_from([{}, {"a": "b"}])),
    st.tuples(st.just("output.repository"), st.sampled_from([REPOSITORY, f"{REPOSITORY}2"])),
    st.tuples(st.just("architectures.exclude"), st.sampled_from([[], ["arm64"]])),
    st.tuples(st.just("failFast"), st.booleans()),
    st.tuples(st.just("scheduling"), st.sampled_from([{"maxParallel": 0}, {"maxParallel": 1}])),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("registryAccess"), st.sampled_from(["Controller", "Job"])),
    st.tuples(
        st.just("rebuild"),
        st.sampled_from([{}, {"token": "1"}, {"token": "2", "architectures": ["amd64"]}, {"token": "3"}]),
    ),
)
EVENTS = st.one_of(
    st.tuples(st.just("edit"), EDITS),
    st.tuples(st.just("reconcile"), st.none()),
    st.tuples(st.just("build"), st.none()),
    st.tuples(st.just("die"), st.integers(0, 12)),
    st.tuples(st.just("succeed"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("delete job"), st.integers(0, 3)),
    st.tuples(st.just("lose pods"), st.none()),
    st.tuples(st.just("join"), st.sampled_from(ARCHITECTURES)),
    st.tuples(st.just("leave"), st.sampled_from(ARCHITECTURES)),
    st.tuples(st.just("base moves"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.sampled_from([1, 60, 1000])),
    st.tuples(st.just("unlabel"), st.integers(0, 3)),
    st.tuples(st.just("prune"), st.sampled_from([None, 0, 1, 2])),
)
HISTORIES = [{"successful": 1, "failed": 0}, {"successful": 2, "failed": 1}]


def live_jobs(world: BuildPlanWorld) -> list[dict[str, Any]]:
    return [job for job in world.jobs.values() if not (job.get("status") or {}).get("conditions")]


def apply(world: BuildPlanWorld, event: tuple[str, Any]) -> None:
    kind, value = event
    world.now += 1
    jobs = sorted(live_jobs(world), key=lambda job: str(job["metadata"]["name"]))
    match kind:
        case "edit":
            world.set(*value)
        case "reconcile":
            world.reconcile()
        case "build":
            world.build_all()
        case "die":
            with contextlib.suppress(CutOff):
                world.reconcile(stop_before=value)
        case "join":
            if not any(each.architecture == value for each in world.nodes):
                world.nodes.append(node(value, created=world.now - 3600))
        case "leave":
            kept = [each for each in world.nodes if each.architecture != value]
            world.nodes = kept or world.nodes
        case "base moves":
            world.bases[BASE] = index_of(BASE, ARCHITECTURES, str(value))
        case "time":
            world.now += value
        case "lose pods":
            world.pods.clear()
        case "prune":
            with contextlib.suppress(CutOff):
                world.prune(images=value)
        case "unlabel":
            recorded = {child.job_uid for run in world.runs for child in world.execution(run).children}
            known = [str(job["metadata"]["name"]) for job in jobs if job["metadata"]["uid"] in recorded]
            if known:
                world.unlabel(known[value % len(known)])
        case _ if jobs:
            name = str(jobs[value % len(jobs)]["metadata"]["name"])
            made = made_by(world.jobs[name])
            if len([job for job in jobs if made_by(job) == made]) > 1:
                return  # an execution that is being superseded; which of the two is meant is not said
            succeed = (lambda _: world.publish()) if made == names.INDEX_ROLE else world.succeed
            {"succeed": succeed, "fail": world.fail}.get(kind, lambda _: world.delete_job(name))(made)


def check(world: BuildPlanWorld) -> None:
    """What holds at any time."""
    labels = Counter(
        (made_by(job), job["metadata"]["annotations"][names.KEY_ANNOTATION],
         job["metadata"]["annotations"].get(names.REPOSITORY_ANNOTATION))
        for job in live_jobs(world)
    )  # fmt: skip
    assert not labels or max(labels.values()) == 1, f"two live Jobs for one key: {labels}"
    for reference, (_, children) in world.manifests.items():
        repository = reference.partition("@")[0]
        assert all(f"{repository}@{each}" in world.manifests for each in children), f"{reference} is not complete"
    status = world.status()
    if image := status.get("image"):
        assert image in world.manifests, "what is published is there"
        for each in status["images"]:
            assert each["reference"] in world.manifests
    for tag, digest in world.tags.items():
        assert f"{tag.rpartition(':')[0]}@{digest}" in world.manifests
    for each in map(world.execution, world.runs):
        if each.deleting:
            continue
        assert not each.result or each.result in world.manifests, f"{each.name} names a result that was deleted"
        for child in each.children:
            there = {reference.partition("@")[0] for reference in world.manifests if reference.endswith(child.digest)}
            copied = each.phase == "Succeeded" or child.phase == "Built"
            assert not child.digest or (each.repository in there if copied else there), f"{child} was deleted"


def finish(world: BuildPlanWorld) -> None:
    """Everything is let to its end: what fails is rebuilt by a new token until it is published."""
    world.set("suspend", False)
    if not any(each.architecture == "amd64" for each in world.nodes):
        world.nodes.append(node("amd64"))
    for attempt in range(12):
        world.now += 1
        world.build_all()
        world.now += 1
        if world.plan().decision in ("UpToDate", "Retag") and world.plan().reason == "Covered":
            return
        world.set("rebuild", {"token": f"end {attempt}"})
    raise AssertionError(f"no end: {world.plan().decision} {world.plan().message}")


@pytest.mark.req("BD-111", "BD-231", "BD-324", "BD-390")
@GENTLE
@given(st.lists(EVENTS, max_size=14), st.sampled_from(HISTORIES))
def test_any_history_ends_with_the_result_of_the_final_inputs(
    history: list[tuple[str, Any]], kept: dict[str, int]
) -> None:
    """At no time are there two live Jobs for one key, a result of which a part is missing, or a record of a child that
    was deleted."""
    world = BuildPlanWorld({**SPEC, "history": {**kept, "images": "Delete"}})
    for event in history:
        apply(world, event)
        check(world)
    finish(world)
    check(world)
    if any(kind == "base moves" for kind, _ in history):  # a base is looked at again with the next Job only
        world.set("rebuild", {"token": "with the bases of today"})
        world.build_all()
    fresh = BuildPlanWorld(world.builds["web"]["spec"])
    fresh.nodes = world.nodes
    fresh.bases = world.bases
    fresh.set("rebuild", None)
    fresh.build_all()
    found, wanted = images(world), images(fresh)
    assert {architecture: found.get(architecture) for architecture in wanted} == wanted
    if found.keys() == wanted.keys():
        assert world.status()["image"] == fresh.status()["image"]
    for tag in world.builds["web"]["spec"]["output"].get("tags") or ():
        repository = world.status()["image"].partition("@")[0]
        assert world.tags[f"{repository}:{tag}"] == world.status()["image"].partition("@")[2]


def images(world: BuildPlanWorld) -> dict[str, str]:
    """The published image of every architecture; in this world its digest says what it was built from."""
    return {each["architecture"]: each["reference"] for each in world.status()["images"]}


@pytest.mark.req("BD-006", "BD-324", "BD-390")
@GENTLE
@given(st.lists(EVENTS, max_size=10))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(history: list[tuple[str, Any]]) -> None:
    world = BuildPlanWorld()
    for event in history:
        apply(world, event)
    world.reconcile()
    # A Job was deleted before its successor of the same name is made, or a new one became possible. That a label was
    # put back is seen by the next plan only.
    for _ in range(2 if any(kind == "unlabel" for kind, _ in history) else 1):
        if world.plan().writes:
            world.reconcile()
    assert [(write.verb, write.kind, write.name) for write in world.plan().writes] == []


@pytest.mark.req("BD-006", "BD-100", "BD-390")
@GENTLE
@given(st.lists(EVENTS, max_size=10), st.integers(0, 2**32))
def test_any_order_of_the_facts_gives_the_same_plan(history: list[tuple[str, Any]], seed: int) -> None:
    world = BuildPlanWorld()
    world.set("source.overrides", [{"architecture": each, "containerfile": TEXTS[0]} for each in ARCHITECTURES])
    for event in history:
        apply(world, event)
    facts = world.facts()
    assert plan_build(facts) == plan_build(shuffled(facts, seed))
    known = world.plan()
    world.nodes = random.Random(seed).sample(world.nodes, len(world.nodes))
    assert world.plan() == known


def shuffled(facts: BuildFacts, seed: int) -> BuildFacts:
    """The same facts in another order."""
    order = random.Random(seed)

    def mixed(several: Any) -> Any:
        return tuple(order.sample(list(several), len(several)))

    def members(mapping: Any) -> Any:
        return dict(mixed(tuple(mapping.items())))

    executions = tuple(
        msgspec.structs.replace(each, children=mixed(each.children), keys=mixed(each.keys), pins=mixed(each.pins))
        for each in facts.executions
    )
    spec = facts.request.spec
    source = msgspec.structs.replace(spec.source, overrides=list(mixed(spec.source.overrides or [])) or None)
    wish = msgspec.structs.replace(facts.request, spec=msgspec.structs.replace(spec, source=source))
    return msgspec.structs.replace(
        facts,
        request=wish,
        nodes=mixed(facts.nodes or ()),
        executions=mixed(executions),
        jobs=mixed(facts.jobs),
        inputs=msgspec.structs.replace(facts.inputs, config_maps=members(facts.inputs.config_maps)),
    )
