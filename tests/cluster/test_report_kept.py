"""The report that a real controller keeps in a real cluster."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import own_roles
import pytest
from audited import Audited
from placement_cluster import PlacementCluster, until
from placement_process import run

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

BOTH, ONLY = "quay.io/kept/both:1", "quay.io/kept/only:1"


def deployment(name: str, image: str) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def policy(**report: Any) -> dict[str, Any]:
    metadata = {"name": names.SINGLETON}
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": metadata,
        "spec": {"report": report},
    }


async def scraped(url: str) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return [line for line in (await answer.text()).splitlines() if line.startswith("polyarch_report_")]


@pytest.mark.req("RP-030", "RP-031")
async def test_the_controller_keeps_config_map_and_metrics_with_its_own_rights(
    sandbox: Sandbox, client: Client, namespace: str, sole_controller: None, tmp_path: Path
) -> None:
    """Nothing that it asks for is refused, no Secret is read, and the ConfigMap is only patched."""
    await own_roles.install(client)
    await sandbox.registry.seed({BOTH: ["linux/amd64", "linux/arm64"], ONLY: ["linux/amd64"]})
    for name, image in (("fits", BOTH), ("waits", ONLY)):
        await client.create(DEPLOYMENTS, deployment(name, image), namespace=namespace)
    cluster, account = PlacementCluster(sandbox, client), names.CONTROLLER
    audited = Audited(sandbox, f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}")
    file, layout = tmp_path / "controller.kubeconfig", sandbox.layout
    token = (await client.token(DEFAULT_NAMESPACE, account)).token
    write_json(file, kubeconfig_with_token(account, layout.api_server, layout.pki.ca, token))
    flag = f"--registries-conf={sandbox.registries_conf}"
    async with AsyncExitStack() as stack:
        await client.apply(POLICIES, policy(enabled=True, interval="10m"))
        stack.push_async_callback(client.delete, POLICIES, names.SINGLETON)
        process = run(own_roles.CONTROLLER, sandbox, DEFAULT_NAMESPACE, tmp_path / "log", flag, kubeconfig=file)
        controller = await stack.enter_async_context(process)
        kept: dict[str, Any] = {}

        async def written() -> bool:
            found = await client.get(CONFIGMAPS, names.REPORT_CONFIGMAP, namespace=DEFAULT_NAMESPACE)
            kept.update(json.loads((found.get("data") or {}).get(names.REPORT_KEY) or "{}"))
            return bool(kept)

        await until(written, seconds=40)
        assert {"amd64", "arm64"} <= set(kept["targets"])
        held = next(each for each in kept["blockers"] if each["image"] == ONLY and each["target"] == "arm64")
        assert held["workloads"] == [f"{namespace}/Deployment/waits"]
        lines = await scraped(controller.said["metrics"])
        assert any('polyarch_report_workloads{target="arm64",verdict="image"}' in line for line in lines)
        asked = await audited.requests()
        assert [each for each in asked if names.REPORT_CONFIGMAP in each] == [
            f"get configmaps {names.REPORT_CONFIGMAP}",
            f"patch configmaps {names.REPORT_CONFIGMAP}",
        ]
        assert "list replicasets" in asked
        assert await audited.refused() == []
        await client.patch(POLICIES, names.SINGLETON, MergePatch({"spec": {"report": {"enabled": False}}}))

        async def gone() -> bool:
            return not await scraped(controller.said["metrics"])

        await until(gone)
        assert await cluster.client.get(CONFIGMAPS, names.REPORT_CONFIGMAP, namespace=DEFAULT_NAMESPACE)
