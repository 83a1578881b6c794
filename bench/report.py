"""RP-040, TN-068: what ``polyarch report`` and ``taint plan`` cost in a large cluster, as processes of their own.

An API server in this process holds 20 000 pods of 2 000 Deployments with 800 images on 1 000 nodes. The first report
takes the answers from a file; the second asks a registry for all of them, with an empty cache: two thirds of the images
are indexes, which say everything, and the others are single images, whose configuration has to be read besides.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web

from bench.measure import Figure, resident_mib
from bench.nodes import a_node
from bench.runtime import Say, served_apart
from bench.stored_cluster import PAGE, StoredCluster
from polyarch.reports.gather import TYPES

NODES: Final = 1_000
WORKLOADS: Final = 2_000
PODS: Final = 20_000
IMAGES: Final = 800
NAMESPACES: Final = 100
SINGLE: Final = 3
"""Every third image is no index."""
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
Json = dict[str, Any]


def report(say: Say) -> list[Figure]:
    """RP-040: CPU, memory, API requests, registry requests."""
    registry = Registry()
    with (
        served_apart(registry.application()) as (registry_port, _),
        tempfile.TemporaryDirectory() as name,
    ):
        cluster = StoredCluster()
        populate(cluster, f"127.0.0.1:{registry_port}")
        folder = Path(name)
        (folder / "platforms.yaml").write_text(yaml.safe_dump(_known(f"127.0.0.1:{registry_port}")))
        say(f"{PODS} pods, {WORKLOADS} workloads, {IMAGES} images, {NODES} nodes")
        with served_apart(cluster.application()) as (port, _):
            kubeconfig = _kubeconfig(folder, port)
            command = [sys.executable, "-m", "polyarch", "report", "-o", "json", "--kubeconfig", str(kubeconfig)]
            offline = [*command, "--offline", "--platforms-file", "platforms.yaml"]
            _run(offline, folder)  # writes the bytecode
            cluster.pages.clear()
            alone = _run(offline, folder)
            pages, more = cluster.pages.total(), cluster.requests.total()
            say(f"without registries: {alone}, {pages} pages")
            asking = _run([*command, "--no-cache"], folder)
            say(f"with a registry: {asking}, {dict(registry.requests)}")
    expected = sum(max(1, math.ceil(cluster.count(kind.plural) / PAGE)) for kind in TYPES)
    return [
        Figure("a report of 20 000 pods, no registry", alone.cpu, "s CPU", "RP-040", 4, compared=True),
        Figure("a report of 20 000 pods, memory", alone.memory, "MiB", "RP-040", 200, compared=True),
        Figure("a report of 20 000 pods, API requests besides pages", pages - expected + more, "requests", "RP-040", 0,
               compared=True, note=f"{pages} pages"),
        Figure("a report, 800 images cold", registry.requests.total(), "requests", "RP-040", 1_200, compared=True),
        Figure("a report, 800 images cold, CPU", asking.cpu, "s CPU", compared=True),
    ]  # fmt: skip


def plan(say: Say) -> list[Figure]:
    """TN-068: CPU and memory of ``polyarch taint plan`` in the same cluster."""
    cluster = StoredCluster()
    populate(cluster, "registry.example")
    with tempfile.TemporaryDirectory() as name, served_apart(cluster.application()) as (port, _):
        folder = Path(name)
        (folder / "platforms.yaml").write_text(yaml.safe_dump(_known("registry.example")))
        access = ["--kubeconfig", str(_kubeconfig(folder, port)), "--offline", "--platforms-file", "platforms.yaml"]
        command = [sys.executable, "-m", "polyarch", "taint", "plan", "-o", "json", *access]
        _run(command, folder)  # writes the bytecode
        cost = _run(command, folder)
    say(f"taint plan: {cost}")
    return [
        Figure("taint plan of 20 000 pods", cost.cpu, "s CPU", "TN-068", 5),
        Figure("taint plan of 20 000 pods, memory", cost.memory, "MiB", "TN-068", 150),
    ]


class Registry:
    """Serves the images to anybody, and counts what it is asked."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.Response:
        repository, kind, reference = f"//{request.path.removeprefix('/v2/')}".rsplit("/", 2)
        self.requests[f"{request.method} {kind or 'v2'}"] += 1
        if not reference:
            return web.Response()
        number = int(repository.rpartition("app")[2])
        if kind == "blobs":
            return web.Response(body=_config(number), content_type="application/octet-stream")
        body, media_type = _manifest(number)
        digest = {"Docker-Content-Digest": _digest(body)}
        return web.Response(body=body, content_type=media_type, headers=digest)


class Cost:
    """Of one process: seconds of CPU time, and the most memory in MiB, sampled."""

    def __init__(self, cpu: float, memory: float) -> None:
        self.cpu = cpu
        self.memory = memory

    def __str__(self) -> str:
        return f"{self.cpu:.2f} s of CPU, {self.memory:.0f} MiB"


def populate(cluster: StoredCluster, registry: str) -> None:
    """Deployments with their ReplicaSets and pods, as a cluster stores them."""
    cluster.put("nodes", map(a_node, range(NODES)))
    cluster.put("namespaces", ({"metadata": {"name": f"team-{number}", "labels": {}}} for number in range(NAMESPACES)))
    cluster.put("deployments", (_made(number, registry) for number in range(WORKLOADS)))
    cluster.put("replicasets", (_made(number, registry, revision=True) for number in range(WORKLOADS)))
    cluster.put("pods", (_pod(number, registry) for number in range(PODS)))


def _made(number: int, registry: str, *, revision: bool = False) -> Json:
    name, replicas = f"service-{number}", PODS // WORKLOADS
    metadata = {"name": name, "namespace": f"team-{number % NAMESPACES}", "uid": f"deployment-{number}"}
    if revision:
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": metadata["uid"]}
        metadata |= {"name": f"{name}-1", "uid": f"replicaset-{number}", "ownerReferences": [owner | _CONTROLLER]}
    template = {"metadata": {"labels": {"app": name, "team": f"t{number % 9}"}}, "spec": _spec(number, registry)}
    selector = {"matchLabels": {"app": name}}
    return {"metadata": metadata, "spec": {"replicas": replicas, "selector": selector, "template": template}}


_CONTROLLER: Final = {"controller": True, "blockOwnerDeletion": True}


def _pod(number: int, registry: str) -> Json:
    made = number % WORKLOADS
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"service-{made}-1", "uid": f"replicaset-{made}"}
    metadata = {
        "name": f"service-{made}-1-{number}",
        "namespace": f"team-{made % NAMESPACES}",
        "uid": f"pod-{number}",
        "labels": {"app": f"service-{made}", "pod-template-hash": "5d4f8c7b96", "team": f"t{made % 9}"},
        "ownerReferences": [owner | _CONTROLLER],
    }
    body, _ = _manifest(made % IMAGES)
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {
        "name": "main",
        "image": _image(made, registry),
        "imageID": f"{_image(made, registry).rpartition(':')[0]}@{_digest(body)}",
        "state": state,
        "ready": True,
    }
    conditions = [{"type": each, "status": "True"} for each in ("Initialized", "Ready", "ContainersReady")]
    return {
        "metadata": metadata,
        "spec": {**_spec(made, registry), "nodeName": a_name(number % NODES)},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [status]},
    }


def a_name(number: int) -> str:
    """Of a node."""
    name: str = a_node(number)["metadata"]["name"]
    return name


def _spec(number: int, registry: str) -> Json:
    container = {
        "name": "main",
        "image": _image(number, registry),
        "args": ["--listen", ":8080"],
        "env": [{"name": f"SETTING_{each}", "value": f"value-of-{each}"} for each in range(10)],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    }
    selector = {"nodeSelector": {"kubernetes.io/arch": "amd64"}} if number % 10 == 0 else {}
    return {"containers": [container], "serviceAccountName": "default", **selector}


def _image(number: int, registry: str) -> str:
    return f"{registry}/team/app{number % IMAGES}:1"


def _known(registry: str) -> Json:
    """The same answers as a file."""
    return {
        _image(number, registry): ["linux/amd64"] if number % SINGLE == 0 else ["linux/amd64", "linux/arm64"]
        for number in range(IMAGES)
    }


def _manifest(number: int) -> tuple[bytes, str]:
    if number % SINGLE == 0:
        config = _config(number)
        described = {"mediaType": CONFIG, "digest": _digest(config), "size": len(config)}
        return _encoded({"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}), MANIFEST
    entries = [
        {
            "mediaType": MANIFEST,
            "digest": _digest(f"{number} {architecture}".encode()),
            "size": 500,
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture in ("amd64", "arm64")
    ]
    return _encoded({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}), INDEX


def _config(number: int) -> bytes:
    return _encoded({"os": "linux", "architecture": "amd64", "config": {"Labels": {"number": str(number)}}})


def _encoded(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _kubeconfig(folder: Path, port: int) -> Path:
    cluster = {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    user = {"name": "bench", "user": {}}
    content = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "bench"}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def _run(command: list[str], folder: Path) -> Cost:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "HOME": str(folder)}
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    most = 0.0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most = max(most, resident_mib(process.pid))
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # a plan ends with 1 as long as something is in the way
        raise RuntimeError(f"it ended with {process.returncode}: {(folder / 'errors').read_text()}")
    return Cost(usage.ru_utime + usage.ru_stime, most)


SCENARIOS: Final = {"report": report, "plan": plan}
