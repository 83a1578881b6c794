"""``polyarch taint clean`` in a real cluster: no controller, no kind, killed after every write."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from placement_cluster import pod, until
from taint_shop import BOTH, FOREIGN, NAMESPACE, OURS, Shop, shop, tolerated

from polyarch.kube.client import Client
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, NODES, POD_DISRUPTION_BUDGETS, PODS
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req("TN-072")

Json = dict[str, Any]
EVERYTHING = ("--yes", "--templates", "--evict")


@pytest.fixture
def sandbox(commanded_sandbox: Sandbox) -> Sandbox:
    return commanded_sandbox


@pytest.fixture
async def world(sandbox: Sandbox, client: Client) -> AsyncIterator[Shop]:
    """With taints, tolerations, a foreign taint beside ours, and a pod with our gate."""
    async with shop(sandbox, client) as found:
        await found.open()
        await found.annotate("arm64-1", spec={"taints": [FOREIGN]})
        ran = await found.taint("apply", "--yes", "--accept-blocked", "--watch", "1")
        assert ran.code == 0, ran.err
        await found.runs(5)
        gated = pod(
            BOTH, name="gated", schedulingGates=[{"name": "example.com/mine"}, {"name": "polyarch.dev/tolerations"}]
        )
        gated["metadata"]["labels"] = {"polyarch.dev/tolerations": "gated", "app": "mine"}
        await client.create(PODS, gated, namespace=NAMESPACE)
        yield found


async def is_clean(world: Shop) -> None:
    """No node carries a taint of ours, foreign ones are where they were, and no pod has our gate."""
    assert await world.taints() == {"amd64-1": [], "amd64-2": [], "arm64-1": [FOREIGN], "arm64-2": []}
    for node in (await world.client.list(NODES)).items:
        assert "polyarch.dev/managed-taints" not in node["metadata"].get("annotations", {})
    gated = await world.client.get(PODS, "gated", namespace=NAMESPACE)
    assert gated["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]
    assert gated["metadata"]["labels"] == {"app": "mine"}


@pytest.mark.req("TN-094")
async def test_clean_deletes_no_pod_and_leaves_nothing(world: Shop) -> None:
    before = {each["metadata"]["uid"] for each in await world.pods()}
    tried = await world.taint("clean", "--dry-run", "-o", "json")
    assert tried.code == 1
    assert {each["kind"] for each in json.loads(tried.out)["changes"]} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Node",
        "Pod",
    }
    assert (await world.taints())["arm64-2"] == [OURS]
    ran = await world.taint("clean", "--yes", "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["left"] == []
    await is_clean(world)
    assert {each["metadata"]["uid"] for each in await world.pods()} == before
    assert tolerated(await world.client.get(DAEMONSETS, "agent", namespace=NAMESPACE)) == ["arm64"], "not asked for"
    versions = await world.versions()
    again = await world.taint("clean", "--yes")
    assert (again.code, "nothing to do" in again.out) == (0, True)
    assert await world.versions() == versions
    assert (await world.taint("clean", "--dry-run")).code == 0


@pytest.mark.req("TN-070")
@pytest.mark.timeout(600)
async def test_a_clean_that_is_killed_after_any_write_is_continued_by_the_next(world: Shop) -> None:
    for _ in range(15):
        if await world.killed("clean", *EVERYTHING, after=1) == 0:
            break
        assert (await world.taints())["arm64-1"][0] == FOREIGN
    await is_clean(world)
    assert tolerated(await world.client.get(DAEMONSETS, "agent", namespace=NAMESPACE)) == []

    async def none_tolerates() -> bool:
        pods = [each for each in await world.pods() if each["metadata"]["name"] != "gated"]
        return len(pods) == 5 and not any(tolerated(each) for each in pods)

    await until(none_tolerates, seconds=90)


@pytest.mark.req("TN-071")
async def test_a_disruption_budget_is_respected_and_bare_pods_are_only_named(world: Shop) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    await world.client.create(POD_DISRUPTION_BUDGETS, budget, namespace=NAMESPACE)
    bare = pod(BOTH, name="bare")
    bare["metadata"]["annotations"] = {"polyarch.dev/tolerations": "arm64"}
    await world.client.create(PODS, bare, namespace=NAMESPACE)

    async def budget_knows() -> bool:
        found = await world.client.get(POD_DISRUPTION_BUDGETS, "web", namespace=NAMESPACE)
        return found.get("status", {}).get("expectedPods") == 1

    await until(budget_knows)
    [web] = [
        each["metadata"]["uid"] for each in await world.pods() if each["metadata"].get("labels", {}).get("app") == "web"
    ]
    tried = await world.taint("clean", "--evict", "--dry-run")
    assert "as soon as its PodDisruptionBudget allows it" in tried.err
    assert "taint-shop/bare" in tried.err
    assert {each["metadata"]["uid"] for each in await world.pods()} >= {web}
    await world.client.delete(POD_DISRUPTION_BUDGETS, "web", namespace=NAMESPACE)
    ran = await world.taint("clean", "--yes", "--evict", "-o", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["bare"] == ["taint-shop/bare"]

    async def replaced() -> bool:
        pods = await world.pods()
        uids = {each["metadata"]["uid"] for each in pods if not each["metadata"].get("deletionTimestamp")}
        return web not in uids and "bare" in {each["metadata"]["name"] for each in pods}

    await until(replaced, seconds=60)
    assert len((await world.client.list(DEPLOYMENTS, namespace=NAMESPACE)).items) == 1
