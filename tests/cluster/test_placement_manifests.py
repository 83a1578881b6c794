"""The manifests in deploy/ against a real API server: it takes them, and their pods may run (PL-002, PL-502)."""

import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml
from placement_cluster import until

from polyarch.kube.client.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, by_kind
from polyarch.placement.operator import operands

DEPLOY = Path(__file__).parents[2] / "deploy" / "kustomize"
FILES = [
    *sorted(path.name for path in DEPLOY.glob("*.yaml") if path.name != "kustomization.yaml"),
    "openshift/rbac.yaml",
    "openshift/trusted-ca.yaml",
    "node-aware/rbac.yaml",
]


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


@pytest.fixture
async def homes(client: Client) -> None:
    """The namespaces that the manifests name."""
    for name in ("polyarch-system", "openshift-config"):
        await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.mark.parametrize("file", FILES)
async def test_the_api_server_takes_the_manifest(client, homes, file):
    """PL-002, PL-550: as a dry run, every object on its own."""
    for document in documents(file):
        resource = by_kind(document["apiVersion"], document["kind"])
        await client.apply(resource, document, namespace=document["metadata"].get("namespace", ""), dry_run=True)


@pytest.mark.parametrize("file", ["web-hook.yaml", "controller.yaml"])
async def test_pods_of_the_deployments_pass_the_restricted_policy(client, file):
    """PL-502, PL-552: in a namespace labelled like ours."""
    namespace = operands.namespace(f"restricted-{secrets.token_hex(4)}")
    name = namespace["metadata"]["name"]
    await client.create(NAMESPACES, namespace)
    (deployment,) = [each for each in documents(file) if each["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    account = template["spec"]["serviceAccountName"]
    await client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}},
        namespace=name,
    )
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    metadata = {**template["metadata"], "name": "probe"}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    async def admitted() -> bool:
        try:
            await client.create(PODS, document, namespace=name, dry_run=True)
        except Forbidden as error:
            if "violates PodSecurity" in error.message:
                pytest.fail(error.message)
            return False
        return True

    await until(admitted)
    document["spec"] = {**spec, "containers": [{"name": "x", "image": "x"}]}
    with pytest.raises(Forbidden, match="violates PodSecurity"):
        await client.create(PODS, document, namespace=name, dry_run=True)
    await client.delete(NAMESPACES, name)
