"""Images that nodes pull by an identity of their own, in a cluster: the kubelet's credential plugins for every role."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaged import NAMESPACE, Packaged, packaged
from placement_cluster import architectures, is_gated, pod

from polyarch.cli import main
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from polyarch.objects import PartialObjectMetadata
from polyarch.operator.components import taints_objects
from polyarch.operator.operands import deployment_document
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints.api import ARCHITECTURE_TAINTS

pytestmark = pytest.mark.timeout(600)
Json = dict[str, Any]
DIRECTORY = "/usr/libexec/credential-providers"
ROLES = ("pod-placement-web-hook", "pod-placement-controller", "polyarch-taints")
PLUGIN = """\
#!/bin/sh
echo "$ROLE" >> "$(dirname "$0")/runs"
cat > /dev/null
cat "$(dirname "$0")/answer.json"
"""


@pytest.fixture
async def cluster(running_sandbox: Sandbox) -> AsyncIterator[Packaged]:
    async with packaged(running_sandbox) as cluster:
        yield cluster


async def give_nodes_a_plugin(cluster: Packaged) -> None:
    """A cloud's nodes have it: a program that answers with a user of the registry."""
    answer = {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "cacheDuration": "6h",
        "auth": {cluster.sandbox.registry.address: {"username": "node", "password": "identity"}},
    }
    for node in (await cluster.client.list(NODES, type=PartialObjectMetadata)).items:
        folder = cluster.sandbox.folder.root / "nodes" / node.metadata.name / "host" / DIRECTORY.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "answer.json").write_text(json.dumps(answer))
        (folder / "cloud-credential-provider").write_text(PLUGIN)
        (folder / "cloud-credential-provider").chmod(0o755)


def values(cluster: Packaged) -> Json:
    found = cluster.values()
    found["components"] = ["placement", "taints"]
    found["registries"] |= {
        "credentialProviders": {
            "configuration": yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1",
                    "kind": "CredentialProviderConfig",
                    "providers": [
                        {
                            "name": "cloud-credential-provider",
                            "matchImages": [cluster.sandbox.registry.address],
                            "defaultCacheDuration": "12h",
                            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                            "env": [{"name": "ROLE", "value": "asked"}],
                        }
                    ],
                }
            ),
            "directory": DIRECTORY,
            "mount": "hostPath",
        },
        "identity": {
            "annotations": {"cloud.example.com/role": "reader"},
            "podLabels": {"cloud.example.com/use": "true"},
        },
    }
    return found


async def polyarch(cluster: Packaged, *arguments: str) -> int:
    return await asyncio.to_thread(main, [*arguments, "--kubeconfig", str(cluster.sandbox.kubeconfig)])


async def released(cluster: Packaged, name: str, image: str, namespace: str) -> tuple[Json, float]:
    """A new pod of the image, without a pull secret, once it has no gate; and after how many seconds."""
    await cluster.client.create(PODS, pod(image, name=name, automountServiceAccountToken=False), namespace=namespace)
    began = time.monotonic()

    async def let_go() -> Any:
        found = await cluster.client.get(PODS, name, namespace=namespace)
        return None if is_gated(found) else found

    return dict(await cluster.until(let_go)), time.monotonic() - began


@pytest.mark.req("IN-042", "IN-043", "RG-086", "PL-330")
async def test_images_that_nodes_pull_by_their_identity_constrain_their_pods(cluster: Packaged, tmp_path: Path) -> None:
    """From the values of an installation to a constrained pod that waited for nothing; before, it waits in vain."""
    await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cloud"}})
    await cluster.sandbox.registry.seed(
        {
            f"registry.example.com/account/{name}:1": {
                "platforms": ["linux/arm64"],
                "private": True,
                "users": {"node": "identity"},
            }
            for name in ("app", "other")
        }
    )
    await give_nodes_a_plugin(cluster)
    file = tmp_path / "values.yaml"
    with_plugins = values(cluster)
    registries = {
        name: value for name, value in with_plugins["registries"].items() if name in cluster.values()["registries"]
    }
    file.write_text(yaml.safe_dump({**with_plugins, "registries": registries}))
    assert await polyarch(cluster, "install", "--values", str(file), "--wait", "-q") == 0
    unread, seconds = await released(cluster, "unread", "registry.example.com/account/app:1", "cloud")
    assert architectures(unread) is None
    assert seconds >= 25

    file.write_text(yaml.safe_dump(with_plugins))
    assert await polyarch(cluster, "install", "--values", str(file), "--wait", "-q") == 0
    await cluster.available(CPPCS, ARCHITECTURE_TAINTS)
    for image in ("app", "other"):
        placed, seconds = await released(cluster, image, f"registry.example.com/account/{image}:1", "cloud")
        assert architectures(placed) == ["arm64"]
        assert seconds < 20
    await check_roles(cluster)
    runs = [
        len(path.read_text().splitlines())
        for path in (cluster.sandbox.folder.root / "nodes").glob(f"*/host{DIRECTORY}/runs")
    ]
    assert 1 <= sum(runs) <= 12, "once for each process, whatever the image"


async def check_roles(cluster: Packaged) -> None:
    """Every role that asks registries has plugins and identity."""
    for name in ROLES:
        account = await cluster.client.get(SERVICE_ACCOUNTS, name, namespace=NAMESPACE)
        assert account["metadata"]["annotations"]["cloud.example.com/role"] == "reader"
        deployment = await cluster.client.get(DEPLOYMENTS, name, namespace=NAMESPACE)
        template = deployment["spec"]["template"]
        assert template["metadata"]["labels"]["cloud.example.com/use"] == "true"
        assert {"hostPath"} <= {kind for volume in template["spec"]["volumes"] for kind in volume}
    found = await cluster.client.get(CONFIGMAPS, "polyarch-registries", namespace=NAMESPACE)
    assert "credential-providers.yaml" in found["data"]


MOUNTS: list[tuple[Json, str, str]] = [
    ({"credential_provider_image": "plugins:1"}, "image", "restricted"),
    ({"credential_provider_image": "plugins:1", "credential_provider_mount": "copy"}, "emptyDir", "restricted"),
    ({"credential_provider_directory": DIRECTORY}, "", "restricted"),
    ({"credential_provider_directory": DIRECTORY, "credential_provider_mount": "hostPath"}, "hostPath", "privileged"),
]


@pytest.mark.req("IN-042")
@pytest.mark.parametrize(("settings", "volume", "level"), MOUNTS, ids=str)
async def test_pods_with_plugins_are_allowed_in_the_namespace_that_polyarch_makes(
    settings: Json, volume: str, level: str, cluster: Packaged
) -> None:
    """By Pod Security of the API server: only plugins of nodes need a higher level than ``restricted``."""
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plugins", "labels": labels}}
    await cluster.client.create(NAMESPACES, home)
    try:
        own = OperatorSettings(namespace="plugins", registries_configmap="mirrors", **settings)
        role = taints_objects.deployment(own)
        template = deployment_document(role, own, ClusterCapabilities(version=(1, 36)))["spec"]["template"]
        document = {"apiVersion": "v1", "kind": "Pod", **template}
        document["metadata"] = {"name": "role", **template["metadata"]}
        spec = {**template["spec"], "serviceAccountName": "default", "automountServiceAccountToken": False}
        document["spec"] = {name: value for name, value in spec.items() if name != "priorityClassName"}
        made = await cluster.client.create(PODS, document, namespace="plugins", type=dict, dry_run=True)
        volumes = {kind for each in made["spec"]["volumes"] for kind in each} - {"name"}
        assert volumes & {"image", "emptyDir", "hostPath"} == ({volume} if volume else set())
    finally:
        await cluster.client.delete(NAMESPACES, "plugins")
        await cluster.gone(NAMESPACES, "plugins")
