"""A release of the chart from installation to removal, with Helm itself, on nodes that run its pods."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import CHART, Helm
from packaged import NAMESPACE, Packaged, packaged
from placement_cluster import architectures

from polyarch.installation.objects import definitions
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, DEPLOYMENTS, NAMESPACES
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints.api import ARCHITECTURE_TAINTS

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
async def cluster(running_sandbox: Sandbox) -> AsyncIterator[Packaged]:
    async with packaged(running_sandbox) as cluster:
        yield cluster


@pytest.fixture(params=["helm-3", "helm-4"])
def helm(request: pytest.FixtureRequest, peer: Callable[[str], str], tmp_path: Path) -> Helm:
    return Helm(peer(request.param), tmp_path)


@pytest.mark.req("IN-010")
async def test_a_release_is_installed_upgraded_rolled_back_and_leaves_nothing(
    helm: Helm, cluster: Packaged, tmp_path: Path
) -> None:
    await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(cluster.values()))
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.sandbox.kubeconfig))
    wait = ("--wait", "--timeout", "120s")

    async def run(command: str, *options: str) -> str:
        return await asyncio.to_thread(helm.__call__, command, "polyarch", *options, *where)

    said = await run("install", str(CHART), "--create-namespace", "--values", str(tmp_path / "values.yaml"), *wait)
    assert "turn placement off" in said
    await cluster.available(CPPCS)
    assert await cluster.deployments() == ["pod-placement-controller", "pod-placement-web-hook", "polyarch-operator"]
    assert architectures(await cluster.placed("shop", "quay.io/chart/shop:1")) == ["arm64"]

    keep = (str(CHART), "--reuse-values", *wait)
    await run("upgrade", *keep, "--set", "operator.labels.tier=one,placement.webhookReplicas=1")
    assert (await template(cluster))["labels"]["tier"] == "one"
    await cluster.until(replicas(cluster, "pod-placement-web-hook", 1))
    await run("rollback", *wait)
    assert "tier" not in (await template(cluster))["labels"]
    await cluster.until(replicas(cluster, "pod-placement-web-hook", 3))

    await run("upgrade", *keep, "--set", "components={placement,taints},taints.replicas=1")
    await cluster.available(CPPCS, ARCHITECTURE_TAINTS)
    await cluster.until(replicas(cluster, "polyarch-taints", 1))
    await run("upgrade", *keep, "--set", "components={placement}")
    await cluster.gone(ARCHITECTURE_TAINTS, "cluster")
    await cluster.gone(DEPLOYMENTS, "polyarch-taints", NAMESPACE)

    await run("upgrade", str(CHART), "--reuse-values", "--set", "placement.configuration=null")
    await cluster.gone(CPPCS, "cluster")
    assert await cluster.deployments() == ["polyarch-operator"]
    await run("uninstall", *wait)
    for name in ("shop", NAMESPACE):
        await cluster.client.delete(NAMESPACES, name)
        await cluster.gone(NAMESPACES, name)
    for each in sorted((CHART / "crds").iterdir()):
        name = yaml.safe_load(each.read_text())["metadata"]["name"]
        await cluster.client.delete(CRDS, name)
        await cluster.gone(CRDS, name)
    assert await cluster.left() == set()


@pytest.mark.req("IN-010")
async def test_templated_definitions_come_first_and_are_kept(helm: Helm, cluster: Packaged) -> None:
    """The first command defines the kinds, the second can create an object of them."""
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.sandbox.kubeconfig))
    options = ("--create-namespace", "--skip-crds", "--set", "crds.enabled=true,operator.replicas=1", "--wait")
    await asyncio.to_thread(helm.__call__, "install", "polyarch", str(CHART), *options, *where)
    with pytest.raises(NotFound):
        await cluster.client.get(CPPCS, "cluster")
    await asyncio.to_thread(helm.__call__, "upgrade", "polyarch", str(CHART), "--reuse-values", *where)
    assert (await cluster.client.get(CPPCS, "cluster"))["spec"] is not None
    off = ("--reuse-values", "--set", "placement.configuration=null")
    await asyncio.to_thread(helm.__call__, "upgrade", "polyarch", str(CHART), *off, *where)
    await cluster.gone(CPPCS, "cluster")
    await asyncio.to_thread(helm.__call__, "uninstall", "polyarch", "--wait", *where)
    for each in definitions(InstallationSettings()):
        assert await cluster.client.get(CRDS, each["metadata"]["name"])


async def template(cluster: Packaged) -> dict[str, Any]:
    found = await cluster.client.get(DEPLOYMENTS, "polyarch-operator", namespace=NAMESPACE)
    return dict(found["spec"]["template"]["metadata"])


def replicas(cluster: Packaged, name: str, count: int) -> Callable[[], Any]:
    async def reached() -> bool:
        found = await cluster.client.get(DEPLOYMENTS, name, namespace=NAMESPACE)
        return bool(found["spec"]["replicas"] == count == found["status"].get("readyReplicas"))

    return reached
