"""Images of this architecture, of another and of both, side by side on every node, pulled over TLS."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from placement_cluster import architectures, is_gated, pod

from polyarch.kube.client import Client
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, SECRETS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.real.configuration import REGISTRY
from polyarch.sandbox.registry.proxy import LogLine
from polyarch.sandbox.tasks import until
from polyarch.sandbox.versions import host_architecture

pytestmark = [pytest.mark.req("SB-017"), pytest.mark.timeout(300)]

HERE = host_architecture()
ELSEWHERE = "s390x"
NODES = 2
SECONDS = 120.0
Json = dict[str, Any]


def images(namespace: str) -> dict[str, list[str]]:
    """Image to its platforms: for this architecture, for another one, for both."""
    return {
        f"quay.io/{namespace}/here:1": [f"linux/{HERE}"],
        f"docker.io/{namespace}/elsewhere:1": [f"linux/{ELSEWHERE}"],
        f"ghcr.io/{namespace}/both:1": [f"linux/{HERE}", f"linux/{ELSEWHERE}"],
    }


def kind_of(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[0]


def workload(kind: str, image: str) -> Json:
    """A Deployment or DaemonSet of pods with this image."""
    name = f"{kind_of(image)}-{kind.lower()}"
    labels = {"app": name}
    container = {"name": "app", "image": image}
    spec: Json = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        },
    }
    if kind == "Deployment":
        spec["replicas"] = NODES
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def pods_of(client: Client, namespace: str) -> list[Json]:
    return [dict(each) for each in (await client.list(PODS, namespace=namespace)).items]


def requests(sandbox: Sandbox, image: str) -> list[LogLine]:
    """Those of the registry's log about the repository of this image."""
    repository = image.rpartition(":")[0].removeprefix(f"{REGISTRY}/")
    lines = sandbox.registry_log.read_bytes().splitlines()
    found = (msgspec.json.decode(each, type=LogLine) for each in lines)
    return [each for each in found if each.repository == repository]


async def test_workloads_of_three_images_share_the_nodes(cluster: Sandbox, client: Client, namespace: str) -> None:
    known = images(namespace)
    await cluster.registry.seed(known)
    for image in known:
        await client.create(DEPLOYMENTS, workload("Deployment", image), namespace=namespace)
        await client.create(DAEMONSETS, workload("DaemonSet", image), namespace=namespace)
    expected = {
        f"{kind_of(image)}-deployment": {"Running" if f"linux/{HERE}" in platforms else "Pending": NODES}
        for image, platforms in known.items()
    } | {
        f"{kind_of(image)}-daemonset": {"Running" if f"linux/{HERE}" in platforms else "not pulled": NODES}
        for image, platforms in known.items()
    }
    seen: dict[str, Counter[str]] = {}

    async def are_settled() -> bool:
        seen.clear()
        for each in await pods_of(client, namespace):
            seen.setdefault(each["metadata"]["labels"]["app"], Counter())[state_of(each)] += 1
        return seen == expected

    await until(are_settled, seconds=SECONDS)
    assert seen == expected
    nodes: dict[str, set[str]] = {}
    for each in await pods_of(client, namespace):
        name, image = each["metadata"]["name"], each["spec"]["containers"][0]["image"]
        supported = [platform.removeprefix("linux/") for platform in known[image]]
        if "daemonset" in name:  # its controller chose the node, so placement leaves it alone: taints are for these
            assert architectures(each) is None, name
        else:
            assert architectures(each) == sorted(supported), each["metadata"]
            assert bool(each["spec"].get("nodeName")) == (HERE in supported), "no node gets what it cannot run"
        if state_of(each) == "Running":
            nodes.setdefault(each["spec"]["nodeName"], set()).add(kind_of(image))
    assert list(nodes.values()) == [{"here", "both"}] * NODES
    for image in known:
        pulls = [each for each in requests(cluster, image) if each.user_agent.startswith("containerd/")]
        layers = [each for each in pulls if "/blobs/" in each.path and each.status == 200]
        assert bool(layers) == (kind_of(image) != "elsewhere"), "kubelets pull what runs, from the sandbox's registry"


def state_of(found: Json) -> str:
    """The phase, but where a gate or an image keeps a pod from running."""
    waiting = {one.get("state", {}).get("waiting", {}).get("reason") for one in statuses(found)}
    if waiting & {"ErrImagePull", "ImagePullBackOff"}:
        return "not pulled"
    return "gated" if is_gated(found) else str(found["status"]["phase"])


def statuses(found: Json) -> list[Json]:
    return list(found["status"].get("containerStatuses", ()))


async def test_containers_without_a_common_architecture_are_told_apart_from_those_with_one(
    cluster: Sandbox, client: Client, namespace: str
) -> None:
    here, elsewhere, both = images(namespace)
    await cluster.registry.seed(images(namespace))
    for name, pair in {"fits": (here, both), "none": (here, elsewhere)}.items():
        await client.create(PODS, pod(*pair, name=name), namespace=namespace)

    async def state() -> Mapping[str, Json]:
        return {each["metadata"]["name"]: each for each in await pods_of(client, namespace)}

    async def runs() -> bool:
        return (await state())["fits"]["status"]["phase"] == "Running"

    assert await until(runs, seconds=SECONDS)
    assert architectures((await state())["fits"]) == [HERE]
    assert "nodeName" not in (await state())["none"]["spec"]


@pytest.mark.parametrize("scheme", ["bearer", "basic"])
async def test_a_private_image_runs_with_its_pull_secret_and_waits_without(
    cluster: Sandbox, client: Client, namespace: str, scheme: str
) -> None:
    """The kubelet and polyarch read the same Secret; the registry asks both who they are."""
    image = f"{REGISTRY}/{namespace}/private-{scheme}:1"
    user, password = "robot", "a-password"
    described = {"platforms": [f"linux/{HERE}"], "users": {user: password}, "scheme": scheme}
    await cluster.registry.seed({image.replace(REGISTRY, cluster.registry.address): described})
    await client.create(PODS, pod(image, name="without"), namespace=namespace)
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    content = json.dumps({"auths": {REGISTRY: {"auth": login}}}).encode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(content).decode()},
    }
    await client.create(SECRETS, secret, namespace=namespace)
    with_secret = pod(image, name="with", imagePullSecrets=[{"name": "login"}])
    await client.create(PODS, with_secret, namespace=namespace)

    def looking(name: str, holds: Callable[[Json], bool]) -> Callable[[], Any]:
        async def look() -> bool:
            return holds(await client.get(PODS, name, namespace=namespace))

        return look

    assert await until(looking("with", lambda each: each["status"]["phase"] == "Running"), seconds=SECONDS)
    found = await client.get(PODS, "with", namespace=namespace)
    assert architectures(found) == [HERE], found["metadata"]

    assert await until(looking("without", lambda each: state_of(each) in ("gated", "not pulled")), seconds=SECONDS)
    assert architectures(await client.get(PODS, "without", namespace=namespace)) is None
    users = {each.user for each in requests(cluster, image) if each.status == 200}
    assert user in users
    kinds = {each.user_agent.partition("/")[0] for each in requests(cluster, image) if each.user == user}
    assert kinds >= {"containerd", "polyarch"}
