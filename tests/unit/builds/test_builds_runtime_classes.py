"""Nodes report features of handlers, and a RuntimeClass says by which handler its pods run."""

from typing import Any

import msgspec
import pytest
from builds_world import SPEC, BuildPlanWorld

NAMED = {"perArchitecture": [{"architecture": "arm64", "runtimeClassName": "sandboxed"}]}


def world_of(handler: str, *features: str) -> BuildPlanWorld:
    """arm64 is built under RuntimeClass ``sandboxed``; every node reports user namespaces for these handlers."""
    world = BuildPlanWorld({**SPEC, "scheduling": NAMED})
    world.runtime_classes = {"sandboxed": handler} if handler else {}
    world.nodes = [msgspec.structs.replace(each, user_namespaces=frozenset(features)) for each in world.nodes]
    return world


def build_container(world: BuildPlanWorld, architecture: str) -> dict[str, Any]:
    pod = world.jobs[world.job_of(architecture)]["spec"]["template"]["spec"]
    return {**pod["initContainers"][0], "hostUsers": pod.get("hostUsers")}


@pytest.mark.req("BD-152")
@pytest.mark.parametrize(("reports", "host_users"), [(("", "runsc"), False), (("", "sandboxed"), None)])
def test_auto_asks_nodes_about_the_handler_and_not_about_the_class(
    reports: tuple[str, ...], host_users: bool | None
) -> None:
    world = world_of("runsc", *reports)
    world.plan()
    assert world.asked.count("runtimeclass sandboxed") == 1
    world.reconcile()
    assert build_container(world, "arm64")["hostUsers"] is host_users
    assert build_container(world, "amd64")["hostUsers"] is False


@pytest.mark.req("BD-152")
def test_a_job_that_is_made_later_asks_as_well() -> None:
    world = world_of("runsc", "", "runsc")
    world.set("scheduling", {**NAMED, "maxParallel": 1})
    world.reconcile()
    world.succeed("amd64")
    world.asked.clear()
    world.reconcile(rounds=2)
    assert build_container(world, "arm64")["hostUsers"] is False
    assert "runtimeclass sandboxed" in world.asked


@pytest.mark.req("BD-064")
def test_a_class_that_does_not_exist_is_told_before_a_job_is_made() -> None:
    """The API server refuses pods of such a Job, without a word in its status."""
    world = world_of("")
    world.reconcile()
    assert (world.jobs, world.condition("InputsValid")) == ({}, ("False", "InputMissing"))
    message = next(each for each in world.status()["conditions"] if each["type"] == "InputsValid")["message"]
    assert "RuntimeClass sandboxed" in message
    assert "spec.scheduling.perArchitecture[arm64].runtimeClassName" in message
    world.runtime_classes = {"sandboxed": "runsc"}
    world.build_all()
    assert world.status()["summary"] == "2/2"


@pytest.mark.req("BD-346")
def test_at_rest_nobody_asks() -> None:
    world = world_of("runsc")
    world.build_all()
    world.asked.clear()
    world.reconcile()
    assert world.asked == []
