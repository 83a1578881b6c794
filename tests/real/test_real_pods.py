"""Pods on real kubelets: placed by their images, started, ended, and refused where zones are too small."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.real_kubelets import cgroup_of, eventually, node_names, processes_of

from polyarch.kube.client import Client
from polyarch.kube.resources import PODS, SERVICES
from polyarch.objects import Unstructured
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.namespaces import connected, listening
from polyarch.sandbox.tasks import until

pytestmark = pytest.mark.timeout(300)

HERE = "docker.io/library/nginx:1.27"
ELSEWHERE = "quay.io/acme/mainframe-bridge:4.1"
TOO_MUCH = "TopologyAffinityError"


def pod(name: str, image: str = HERE, **spec: Any) -> dict[str, Any]:
    resources = spec.pop("resources", {})
    container = {"name": "app", "image": image, "resources": resources}
    metadata = {"name": name, **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [container], **spec},
    }


async def statuses(client: Client, namespace: str) -> dict[str, dict[str, Any]]:
    found = await client.list(PODS, namespace=namespace, type=Unstructured)
    return {each.metadata.name: each.status for each in found.items}


async def phases(client: Client, namespace: str, settled: int) -> dict[str, str]:
    """Phase by pod, once so many of them are not on their way to a node or in it any more."""
    found: dict[str, str] = {}

    async def are_settled() -> bool:
        seen = await statuses(client, namespace)
        found.clear()
        found.update({name: str(each.get("reason") or each.get("phase")) for name, each in seen.items()})
        return sum(each != "Pending" for each in found.values()) >= settled

    await until(are_settled, seconds=60)
    return found


@pytest.mark.req("SB-017")
async def test_a_pod_runs_where_its_image_does_and_waits_where_none_fits(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("here"), namespace=namespace)
    await client.create(PODS, pod("elsewhere", ELSEWHERE), namespace=namespace)
    assert await phases(client, namespace, 1) == {"here": "Running", "elsewhere": "Pending"}
    document = (await client.get(PODS, "elsewhere", namespace=namespace, type=Unstructured)).document
    assert document["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    assert "nodeName" not in document["spec"]
    began = asyncio.get_running_loop().time()
    await client.delete(PODS, "here", namespace=namespace)

    async def is_gone() -> bool:
        return "here" not in await statuses(client, namespace)

    assert await until(is_gone, seconds=30)
    assert asyncio.get_running_loop().time() - began < 4.5, "the program ends when it is told to"


@pytest.mark.req("NS-164")
async def test_pods_that_zones_cannot_hold_are_refused_by_kubelets_unless_we_schedule_them(
    cluster: Sandbox, client: Client, namespace: str
) -> None:
    """Four pods of five CPUs take a zone each of two nodes. A fifth of four has room in the sums and in no zone."""
    amounts = [{"limits": {"cpu": cpus, "memory": "1Gi"}} for cpus in ("5", "5", "5", "5", "4")]
    for number, wanted in enumerate(amounts):
        scheduled = pod(f"ours-{number}", resources=wanted, schedulerName="topo-aware-scheduler")
        await client.create(PODS, scheduled, namespace=namespace)
    ours = await phases(client, namespace, 4)
    assert sorted(ours.values()) == ["Pending", *["Running"] * 4]
    for name in ours:
        await client.delete(PODS, name, namespace=namespace)

    async def are_gone() -> bool:
        return not await statuses(client, namespace)

    assert await until(are_gone, seconds=60)
    for number, wanted in enumerate(amounts):
        await client.create(PODS, pod(f"stock-{number}", resources=wanted), namespace=namespace)
    stock = await phases(client, namespace, 5)
    assert TOO_MUCH in stock.values(), "the sums of a node say nothing about its zones"


@pytest.mark.req("SB-017")
async def test_a_pod_reaches_itself_and_another_pod_of_its_node_through_a_service(
    cluster: Sandbox, client: Client, namespace: str
) -> None:
    """Answers come back through the rules of the Service, with or without the kernel's module for bridges."""
    node = node_names(cluster)[0]
    metadata = {"labels": {"app": "server"}}
    await client.create(PODS, pod("server", metadata=metadata, nodeName=node), namespace=namespace)
    await client.create(PODS, pod("client", nodeName=node), namespace=namespace)
    spec = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}
    wanted = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": spec}
    await client.create(SERVICES, wanted, namespace=namespace)
    assert await phases(client, namespace, 2) == {"server": "Running", "client": "Running"}
    document = (await client.get(SERVICES, "server", namespace=namespace, type=Unstructured)).document
    service = document["spec"]["clusterIP"]
    server, other = [await process_in(cluster, client, namespace, name) for name in ("server", "client")]
    with listening(server, "0.0.0.0", 8080):
        for pid in (server, other):
            await eventually(reaches(pid, service), "the Service does not lead to its pod")


async def process_in(cluster: Sandbox, client: Client, namespace: str, name: str) -> int:
    """The pid of a process in the network namespace of a pod."""
    found = await client.get(PODS, name, namespace=namespace, type=Unstructured)
    group = cgroup_of(cluster, found.metadata.uid, "pids")
    assert group is not None
    return next(pid for _, pid in processes_of(group))


def reaches(pid: int, address: str) -> Callable[[], Any]:
    """Whether a connection from there is accepted within three seconds."""

    async def look() -> bool:
        try:
            async with asyncio.timeout(3):
                (await connected(pid, address, 80)).close()
        except (OSError, TimeoutError):
            return False
        return True

    return look
