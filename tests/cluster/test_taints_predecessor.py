"""Taking over from archaware-controller in a real cluster, by the objects that it leaves."""

import asyncio
import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import taints_predecessor as predecessor
from placement_cluster import until
from taint_process import configured, taint_role, tolerated
from taints_predecessor import CONSISTENT, WRONG, Case

from polyarch.cli import main
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import NODES, PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry

Json = dict[str, Any]
EVERYWHERE = {"mode": "tolerations", "nodes": {"rollout": "immediate", "atRegistration": "none"}}
"""It taints every node."""
QUIET_SECONDS = 5.0


@pytest.fixture(scope="module")
def sandbox(taken_over_sandbox: Sandbox) -> Sandbox:
    """Its nodes are tainted."""
    return taken_over_sandbox


async def left_in(client: Client, registry: Registry, namespace: str, cases: Iterable[Case]) -> dict[str, Case]:
    """Its taints on every node, and a pod of each case with the tolerations that it gave."""
    for node in (await client.list(NODES)).items:
        taint = predecessor.taint(node["status"]["nodeInfo"]["architecture"])
        await client.patch(NODES, node["metadata"]["name"], MergePatch({"spec": {"taints": [taint]}}))
    found = {}
    for number, case in enumerate(cases):
        name = f"case-{number}"
        images = [f"quay.io/left/{secrets.token_hex(4)}:1" for _ in (*case.containers, *case.init_containers)]
        await registry.seed(dict(zip(images, (*case.containers, *case.init_containers), strict=True)))
        containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
        spec = {
            "containers": containers[: len(case.containers)],
            "initContainers": containers[len(case.containers) :],
            "tolerations": [predecessor.toleration(each) for each in case.left],
            "schedulerName": "nobody",
        }
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await client.create(PODS, document, namespace=namespace)
        found[name] = case
    return found


async def versions(client: Client, namespace: str) -> dict[str, str]:
    """Changes with every write."""
    nodes, pods = await client.list(NODES), await client.list(PODS, namespace=namespace)
    return {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in (*nodes.items, *pods.items)
        if each["metadata"]["name"] != SENTINEL["metadata"]["name"]
    }


SENTINEL: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new"},
    "spec": {"containers": [{"name": "main", "image": "nginx:1.27"}], "schedulerName": "nobody"},
}


async def taken_over(client: Client, namespace: str) -> None:
    """A pod that the predecessor never saw has got its tolerations, and a while has passed."""
    await client.create(PODS, SENTINEL, namespace=namespace)

    async def is_tolerating() -> bool:
        return bool(tolerated(await client.get(PODS, "new", namespace=namespace)))

    await until(is_tolerating, seconds=60)
    await asyncio.sleep(QUIET_SECONDS)


@pytest.mark.req("TN-082")
async def test_taking_over_a_cluster_that_it_left_consistent_writes_nothing(
    sandbox: Sandbox, client: Client, namespace: str, registry: Registry, tmp_path: Path
) -> None:
    await left_in(client, registry, namespace, CONSISTENT)
    before = await versions(client, namespace)
    async with configured(client, namespace, **EVERYWHERE), taint_role(sandbox, client, namespace, tmp_path):
        await taken_over(client, namespace)
        assert await versions(client, namespace) == before


@pytest.mark.req("TN-082", "TN-094")
async def test_what_it_left_wrong_is_completed_and_named_in_the_plan(
    sandbox: Sandbox,
    client: Client,
    namespace: str,
    registry: Registry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No program may take a toleration away; a plan says which pods have to be created again."""
    cases = await left_in(client, registry, namespace, WRONG)
    async with configured(client, namespace, **EVERYWHERE):
        async with taint_role(sandbox, client, namespace, tmp_path):
            await taken_over(client, namespace)
            for name, case in cases.items():
                pod = await client.get(PODS, name, namespace=namespace)
                assert tolerated(pod) == [*case.left, *case.missing], case.name
        monkeypatch.setenv("KUBECONFIG", str(sandbox.kubeconfig))
        arguments = ("taint", "plan", "-o", "json", "--registries-conf", str(sandbox.registries_conf), "--no-cache")
        await asyncio.to_thread(main, arguments)
    plan = json.loads(capsys.readouterr().out)
    named = {each["name"]: each for each in plan["wrongTolerations"] if each["namespace"] == namespace}
    assert {cases[name].name: tuple(sorted(each["values"])) for name, each in named.items()} == (
        predecessor.extra_tolerations()
    )
