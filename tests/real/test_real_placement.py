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


def requests(sandbox: Sandbox, repository: str) -> list[LogLine]:
    """Those of the registry's log about this repository."""
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
        f"{kind_of(image)}-{kind}": {"Running" if f"linux/{HERE}" in platforms else "Pending": NODES}
        for image, platforms in known.items()
        for kind in ("deployment", "daemonset")
    }
    seen: dict[str, Counter[str]] = {}

    async def are_settled() -> bool:
        seen.clear()
        for each in await pods_of(client, namespace):
            where = seen.setdefault(each["metadata"]["labels"]["app"], Counter())
            where["gated" if is_gated(each) else each["status"]["phase"]] += 1
        return seen == expected

    await until(are_settled, seconds=SECONDS)
    assert seen == expected
    nodes: dict[str, set[str]] = {}
    for each in await pods_of(client, namespace):
        (container,) = each["spec"]["containers"]
        wanted = {platform.removeprefix("linux/") for platform in known[container["image"]]}
        assert set(architectures(each) or ()) == wanted, each["metadata"]["name"]
        runs = HERE in wanted
        assert bool(each["spec"].get("nodeName")) == runs, "no node gets what it cannot run"
        if runs:
            nodes.setdefault(each["spec"]["nodeName"], set()).add(kind_of(container["image"]))
    assert list(nodes.values()) == [{"here", "both"}] * NODES
    for image in known:
        pulls = [each for each in requests(cluster, repository_of(image)) if each.user_agent.startswith("containerd/")]
        layers = [each for each in pulls if "/blobs/" in each.path and each.status == 200]
        assert bool(layers) == (kind_of(image) != "elsewhere"), "kubelets pull what runs, from the sandbox's registry"


def repository_of(image: str) -> str:
    return image.rpartition(":")[0]


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
    image = f"quay.io/{namespace}/private-{scheme}:1"
    user, password = "robot", "a-password"
    described = {"platforms": [f"linux/{HERE}"], "users": {user: password}, "scheme": scheme}
    await cluster.registry.seed({image: described})
    await client.create(PODS, pod(image, name="without"), namespace=namespace)
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    content = json.dumps({"auths": {"quay.io": {"auth": login}}}).encode()
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
    assert architectures(await client.get(PODS, "with", namespace=namespace)) == [HERE]

    def waits(each: Json) -> bool:
        states = [one.get("state", {}).get("waiting", {}) for one in each["status"].get("containerStatuses", ())]
        return is_gated(each) or any(one.get("reason") in ("ErrImagePull", "ImagePullBackOff") for one in states)

    assert await until(looking("without", waits), seconds=SECONDS)
    assert architectures(await client.get(PODS, "without", namespace=namespace)) is None
    users = {each.user for each in requests(cluster, repository_of(image)) if each.status == 200}
    assert user in users
    kinds = {each.user_agent.partition("/")[0] for each in requests(cluster, repository_of(image)) if each.user == user}
    assert kinds >= {"containerd", "polyarch"}
