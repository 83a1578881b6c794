"""``polyarch report`` against a real API server and a real registry."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from polyarch.kube.client import Client
from polyarch.kube.resources import CRONJOBS, DEPLOYMENTS, PODS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.registry.seed import Registry

pytestmark = pytest.mark.req("RP-001", "RP-002", "RP-003")

BOTH, ONLY, ABSENT = "quay.io/report/both:1", "quay.io/report/only:1", "quay.io/report/absent:1"
SECONDS = 60


def template(image: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"labels": {"app": "x", "team": "red"}}, "spec": {"containers": [container], **spec}}


def deployment(name: str, image: str, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "x"}},
            "template": template(image, **spec),
        },
    }


def night(image: str) -> dict[str, Any]:
    job = {"template": template(image, restartPolicy="Never")}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "night"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}},
    }


async def report(sandbox: Sandbox, folder: Path, *arguments: str) -> dict[str, Any]:
    """The document that the command prints, run as a user runs it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "polyarch", "report", "-o", "json", *arguments),
        env={**os.environ, "HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.req("RP-010")
async def test_a_cluster_is_reported_on_and_its_snapshot_says_the_same(
    sandbox: Sandbox, client: Client, namespace: str, registry: Registry, tmp_path: Path
) -> None:
    await registry.seed({BOTH: ["linux/amd64", "linux/arm64"], ONLY: ["linux/amd64"]})
    arm = {"nodeSelector": {"kubernetes.io/arch": "arm64"}}
    for each in (deployment("there", BOTH, 2, **arm), deployment("free", BOTH), deployment("absent", ABSENT)):
        await client.create(DEPLOYMENTS, each, namespace=namespace)
    await client.create(CRONJOBS, night(ONLY), namespace=namespace)
    async with asyncio.timeout(SECONDS):
        while True:
            pods = (await client.list(PODS, namespace=namespace)).items
            if sum(bool(pod["spec"].get("nodeName")) for pod in pods) == 4:
                break
            await asyncio.sleep(0.1)
    access = ("--kubeconfig", str(sandbox.kubeconfig), "--registries-conf", str(sandbox.registries_conf))
    kept = tmp_path / "facts.json"
    found = await report(sandbox, tmp_path, *access, "--target", "arm64,amd64", "--save", str(kept))
    rows = {each["name"]: each for each in found["workloads"] if each["namespace"] == namespace}
    verdicts = {name: [answer["verdict"] for answer in row["answers"]] for name, row in rows.items()}
    assert verdicts["there"] == ["runs", "constrained"]
    assert verdicts["night"] == ["image", "ready"]
    assert verdicts["absent"] == ["unknown", "unknown"]
    assert sorted(verdicts) == ["absent", "free", "night", "there"]
    assert set(verdicts["free"]) <= {"runs", "ready"}
    assert rows["there"]["weight"] == {"cores": 0.02, "memoryBytes": 0, "replicas": 2, "pods": 2}
    assert rows["there"]["runsOn"] == ["arm64"]
    assert rows["there"]["kind"] == "Deployment"
    reason = rows["absent"]["answers"][0]["reasons"][0]
    assert (reason["image"], reason["value"].split()[0]) == (ABSENT, "absent")
    again = await report(sandbox, tmp_path, "--snapshot", str(kept), "--target", "arm64,amd64")
    assert again == found
