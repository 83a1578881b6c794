"""Pods on the sandbox's nodes live and fail as on real ones."""

import asyncio
import base64
import secrets
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import EVENTS, JOBS, LEASES, NODES, PODS
from polyarch.kube.resources import SECRETS as SECRET_OBJECTS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry

SECONDS = 60.0
Status = dict[str, Any]


def pod(name: str, image: str, *, architecture: str = "", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": image}]
    selector = {"nodeSelector": {"kubernetes.io/arch": architecture}} if architecture else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **selector, **spec},
    }


async def until(client: Client, namespace: str, name: str, condition: Callable[[Status], bool]) -> Status:
    """The pod's status once the condition holds; the last one is in the failure."""
    status: Status = {}
    try:
        async with asyncio.timeout(SECONDS):
            while not condition(status):
                await asyncio.sleep(0.05)
                status = (await client.get(PODS, name, namespace=namespace)).get("status", {})
    except TimeoutError:
        raise AssertionError(f"{name} ended as {status}") from None
    return status


def waiting(status: Status) -> str:
    (container,) = status.get("containerStatuses") or [{"state": {}}]
    return str(container["state"].get("waiting", {}).get("reason", ""))


@pytest.mark.req("SB-004")
async def test_nodes_of_every_architecture_are_ready_and_renew_their_leases(client: Client) -> None:
    nodes = (await client.list(NODES, label_selector="sandbox.polyarch.dev/node")).items
    assert {node["metadata"]["labels"]["kubernetes.io/arch"] for node in nodes} == {
        "amd64",
        "arm64",
        "ppc64le",
        "s390x",
    }
    for node in nodes:
        assert node["status"]["nodeInfo"]["architecture"] == node["metadata"]["labels"]["kubernetes.io/arch"]
        assert await client.get(LEASES, node["metadata"]["name"], namespace="kube-node-lease")
        assert not node["spec"].get("taints")


@pytest.mark.req("SB-004")
async def test_a_pod_with_a_fitting_image_runs_with_an_address_and_goes_when_deleted(
    sandbox: Sandbox, client: Client, namespace: str
) -> None:
    await client.create(PODS, pod("web", "nginx:1.27", architecture="s390x"), namespace=namespace)
    status = await until(client, namespace, "web", lambda s: s.get("phase") == "Running")
    assert status["podIP"].startswith(f"10.{sandbox.state.pod_network}.")
    assert status["containerStatuses"][0]["imageID"].startswith("docker.io/library/nginx@sha256:")
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    await client.delete(PODS, "web", namespace=namespace)
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.get(PODS, "web", namespace=namespace)
            except NotFound:
                break
            await asyncio.sleep(0.05)


@pytest.mark.req("NS-164")
async def test_pods_that_are_bound_to_a_node_that_cannot_have_them_are_refused(client: Client, namespace: str) -> None:
    """Nobody asks a scheduler here, so the node has to say it: with the reason of a real kubelet, also as an event."""
    node, label = "ppc64le-1", f"test/{namespace}"
    port: Status = {
        "containers": [{"name": "main", "image": "nginx:1.27", "ports": [{"containerPort": 1, "hostPort": 17}]}]
    }
    large: Status = {"containers": [{"name": "main", "image": "nginx:1.27", "resources": {"requests": {"cpu": "17"}}}]}
    refused: dict[str, tuple[Status, str]] = {
        "large": (large, "OutOfcpu"),
        "elsewhere": ({"nodeSelector": {label: "yes"}}, "NodeAffinity"),
        "second": (port, "NodePorts"),
        "windows": ({"os": {"name": "windows"}}, "PodOSNotSupported"),
    }
    await client.create(PODS, pod("first", "nginx:1.27", nodeName=node, **port), namespace=namespace)
    await until(client, namespace, "first", lambda s: s.get("phase") == "Running")
    for name, (spec, _) in refused.items():
        await client.create(PODS, pod(name, "nginx:1.27", nodeName=node, **spec), namespace=namespace)
    for name, (_, reason) in refused.items():
        status = await until(client, namespace, name, lambda s: s.get("phase") == "Failed")
        assert (status["reason"], status["message"].partition(":")[0]) == (reason, "Pod was rejected")
        assert "containerStatuses" not in status
    await client.patch(NODES, node, MergePatch({"metadata": {"labels": {label: "yes"}}}))
    selecting = pod("welcome", "nginx:1.27", nodeName=node, nodeSelector={label: "yes"})
    await client.create(PODS, selecting, namespace=namespace)
    await until(client, namespace, "welcome", lambda s: s.get("phase") == "Running")
    await client.patch(NODES, node, MergePatch({"metadata": {"labels": {label: None}}}))
    async with asyncio.timeout(SECONDS):
        while True:
            events = (await client.list(EVENTS, namespace=namespace)).items
            said = {each["regarding"]["name"]: each["reason"] for each in events if each["type"] == "Warning"}
            if {name: reason for name, (_, reason) in refused.items()}.items() <= said.items():
                return
            await asyncio.sleep(0.1)


@pytest.mark.req("SB-004")
async def test_a_foreign_binary_ends_in_crash_loop_backoff(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", "quay.io/acme/billing:2.3", architecture="arm64"), namespace=namespace)
    status = await until(client, namespace, "a", lambda s: waiting(s) == "CrashLoopBackOff")
    last = status["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 1
    assert last["message"] == "exec /bin/app: exec format error"
    assert status["containerStatuses"][0]["restartCount"] >= 1
    async with asyncio.timeout(SECONDS):
        while True:
            events = (await client.list(EVENTS, namespace=namespace)).items
            told = {event["reason"] for event in events if event.get("regarding", {}).get("name") == "a"}
            if {"Failed", "BackOff"} <= told:
                return
            await asyncio.sleep(0.1)


@pytest.mark.req("SB-004")
async def test_an_index_without_the_platform_cannot_be_pulled_until_it_is_pushed(
    client: Client, namespace: str, registry: Registry
) -> None:
    image = f"quay.io/late/{secrets.token_hex(4)}:1"
    await registry.seed({image: ["linux/amd64"]})
    await client.create(PODS, pod("a", image, architecture="ppc64le"), namespace=namespace)
    status = await until(client, namespace, "a", lambda s: waiting(s) in {"ErrImagePull", "ImagePullBackOff"})
    assert "no match for platform in manifest" in status["containerStatuses"][0]["state"]["waiting"]["message"]
    await registry.seed({image: ["linux/amd64", "linux/ppc64le"]})
    await until(client, namespace, "a", lambda s: s.get("phase") == "Running")


@pytest.mark.req("SB-004")
async def test_a_private_image_needs_the_pods_own_pull_secret(
    client: Client, namespace: str, registry: Registry
) -> None:
    image = f"quay.io/private/{secrets.token_hex(4)}:1"
    await registry.seed({image: {"platforms": ["linux/amd64", "linux/arm64"], "users": {"alice": "wonderland"}}})
    await client.create(PODS, pod("without", image, architecture="amd64"), namespace=namespace)
    status = await until(client, namespace, "without", lambda s: waiting(s) in {"ErrImagePull", "ImagePullBackOff"})
    assert "pull access denied" in status["containerStatuses"][0]["state"]["waiting"]["message"]
    config = {"auths": {registry.address: {"auth": base64.b64encode(b"alice:wonderland").decode()}}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull"},
        "data": {".dockerconfigjson": base64.b64encode(msgspec.json.encode(config)).decode()},
    }
    await client.create(SECRET_OBJECTS, secret, namespace=namespace)
    document = pod("with", image, architecture="arm64", imagePullSecrets=[{"name": "pull"}])
    await client.create(PODS, document, namespace=namespace)
    await until(client, namespace, "with", lambda s: s.get("phase") == "Running")


@pytest.mark.req("SB-004")
async def test_a_job_comes_to_its_end(client: Client, namespace: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1.36"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template}}
    await client.create(JOBS, job, namespace=namespace)
    async with asyncio.timeout(SECONDS):
        while not (await client.get(JOBS, "once", namespace=namespace)).get("status", {}).get("succeeded"):
            await asyncio.sleep(0.1)


@pytest.mark.req("SB-008", "SB-013")
@pytest.mark.parametrize("path", ["logs/", "metrics"])
async def test_a_nodes_address_is_never_dialled_nor_its_name_looked_up(sandbox: Sandbox, path: str) -> None:
    """Asked for a node's files, the API server asks the kubelet API of the sandbox, which has none."""
    files = sandbox.pki.client("admin")
    context = ssl.create_default_context(cafile=str(sandbox.ca))
    context.load_cert_chain(files.certificate, files.key)
    url = f"{sandbox.api_server}/api/v1/nodes/amd64-1/proxy/{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        assert answer.status == 404
        assert "container logs only" in await answer.text()
