"""TN-090: nodes and their taints, from the first list to the steady state, against an API server in this process.

5 000 nodes as clouds make them, half of them arm64, of which 1 500 carry their taint; the other 1 000 get it at 600 a
minute. Then kubelets go on reporting, and nothing may be asked or written.
"""

import asyncio
import gc
import os
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from bench.measure import Figure, resident_mib
from bench.runtime import Say, served_apart
from polyarch.kube.client import Client
from polyarch.kube.manager import Process, Task
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import Operation, apply_patch
from polyarch.kube.settings import Configuration, ProcessSettings
from polyarch.objects import ObjectMeta
from polyarch.run.settings import TaintRoleSettings
from polyarch.run.taints import TaintServices, node_controllers
from polyarch.taints.api import ArchitectureTaints
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.nodes import NodeTaintState
from polyarch.taints.settings import TaintSettings

NODES: Final = 5000
TO_TAINT: Final = 1000
PER_MINUTE: Final = 600
PAGE: Final = 500
STEADY: Final = 10.0
TAINT: Final = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
FEATURES: Final = ("AESNI", "AVX", "AVX2", "FMA3", "SHA", "VMX", "SSE4", "ADX", "HTT", "MOVBE")


def a_node(number: int) -> dict[str, Any]:
    """About 10 KiB of JSON: 20 labels, 8 annotations, 50 images."""
    architecture = "arm64" if number % 2 else "amd64"
    name = f"ip-10-{number // 256}-{number % 256}-7.eu-west-1.compute.internal"
    labels = {
        **{f"feature.node.kubernetes.io/cpu-cpuid.{each}": "true" for each in FEATURES},
        "kubernetes.io/arch": architecture,
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "m6g.4xlarge",
        "topology.kubernetes.io/zone": f"eu-west-1{'abc'[number % 3]}",
        "topology.kubernetes.io/region": "eu-west-1",
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "spot",
    }
    annotations = {
        "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{number:017x}"}}',
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "projectcalico.org/IPv4Address": f"10.{number // 256}.{number % 256}.7/16",
        "projectcalico.org/IPv4VXLANTunnelAddr": "192.168.1.1",
        "karpenter.sh/nodepool-hash": f"{number:020}",
        "alpha.kubernetes.io/provided-node-ip": f"10.{number // 256}.{number % 256}.7",
        "machineconfiguration.openshift.io/currentConfig": f"rendered-worker-{number:032x}",
    }
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///eu-west-1a/i-{number:017x}"}
    if number % 2 and number >= 2 * TO_TAINT:
        spec["taints"] = [TAINT]
    kinds = ("NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {"type": each, "status": "False", "reason": "Kubelet", "message": "kubelet has sufficient memory available"}
        for each in kinds
    ]
    images = [
        {"names": [f"quay.io/team/app{each}@sha256:{each:064x}", f"quay.io/team/app{each}:1"], "sizeBytes": 12345678}
        for each in range(50)
    ]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": f"{number:032x}",
            "resourceVersion": str(number + 1),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
        "status": {
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"architecture": architecture, "operatingSystem": "linux"},
        },
    }


class ApiServer:
    """Nodes that can be listed, watched and patched; everything else is empty. It runs in a thread of its own."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        for number in range(NODES):
            node = a_node(number)
            self.nodes[node["metadata"]["name"]] = msgspec.json.encode(node)
        self.version = 1_000_000
        self.requests: Counter[str] = Counter()
        self._watches: list[asyncio.Queue[bytes]] = []

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_get("/api/v1/nodes", self._read)
        application.router.add_patch("/api/v1/nodes/{name}", self._patch)
        application.router.add_get("/apis/admissionregistration.k8s.io", self._nothing)
        application.router.add_get("/apis/{rest:.*}", self._read_nothing)
        application.router.add_post("/apis/{rest:.*}", self._event)
        return application

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        self.requests["list nodes"] += 1
        names = sorted(self.nodes)
        page = int(request.query.get("continue") or 0)
        items = [self.nodes[name] for name in names[page * PAGE : (page + 1) * PAGE]]
        token = str(page + 1) if (page + 1) * PAGE < len(names) else ""
        return self._page(items, token)

    async def _read_nothing(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        return self._page([], "")

    async def _nothing(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)

    async def _event(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({"metadata": {"name": "event"}}, status=201)

    def _page(self, items: list[bytes], token: str) -> web.Response:
        head = msgspec.json.encode({"resourceVersion": str(self.version), "continue": token})
        body = b'{"kind":"List","apiVersion":"v1","metadata":' + head + b',"items":[' + b",".join(items) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("sendInitialEvents"):
            return web.json_response({"kind": "Status", "code": 422, "reason": "Invalid"}, status=422)
        self.requests[f"watch {request.path.rpartition('/')[2]}"] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        if request.path == "/api/v1/nodes":
            self._watches.append(changes)
        while True:
            await response.write(b'{"type":"MODIFIED","object":' + await changes.get() + b"}\n")

    async def _patch(self, request: web.Request) -> web.Response:
        self.requests["patch nodes"] += 1
        operations = msgspec.json.decode(await request.read(), type=list[Operation])
        name = request.match_info["name"]
        node = apply_patch(msgspec.json.decode(self.nodes[name]), operations)
        self._store(name, node)
        return web.Response(body=msgspec.json.encode({"metadata": node["metadata"]}), content_type="application/json")

    def _store(self, name: str, node: dict[str, Any]) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        self.nodes[name] = msgspec.json.encode(node)
        for changes in self._watches:
            changes.put_nowait(self.nodes[name])

    def report(self) -> None:
        """Every kubelet reports its node's status."""
        for name, document in list(self.nodes.items()):
            node = msgspec.json.decode(document)
            node["status"]["conditions"][0]["lastHeartbeatTime"] = "2025-01-01T00:05:00Z"
            self._store(name, node)


class _Facts:
    """The configuration."""

    settings = TaintSettings(per_minute=PER_MINUTE, rollout="immediate")
    configuration = ArchitectureTaints(metadata=ObjectMeta(name="cluster"))

    def on_change(self, handler: Any) -> None:
        """It does not change."""

    def labels_of(self, namespace: str) -> dict[str, str]:
        return {}


async def run_led(task: Task) -> None:
    """As the manager runs what the leader does."""
    await task()


def nodes(say: Say) -> list[Figure]:
    """TN-090."""
    return asyncio.run(_nodes(say))


async def _nodes(say: Say) -> list[Figure]:
    server = ApiServer()
    with served_apart(server.application()) as (port, loop):
        gc.collect()
        memory = resident_mib(os.getpid())
        async with Client(Configuration(server=f"http://127.0.0.1:{port}"), role="bench") as client:
            settings = ProcessSettings(namespace="polyarch", metrics_port=0, health_port=0)
            process = Process("bench", settings, client, Metrics(), role_settings=[TaintRoleSettings()])
            recorder = process.recorder("polyarch.dev/taints")
            of_pods = SimpleNamespace(pods=tuple, undecided=lambda architecture: ())
            parts = SimpleNamespace(facts=_Facts(), metrics=TaintMetrics(process.metrics))
            made = node_controllers(
                process,
                cast("TaintServices", parts),
                recorder,
                is_leading=lambda: True,
                daemon_sets=SimpleNamespace(uncovered=lambda architecture: ()),
                unscheduled=of_pods,
                running=SimpleNamespace(is_done=True),
            )
            begin, spent = time.perf_counter(), time.thread_time()
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(process.informers.run()), tasks.create_task(recorder.run())]
                await process.informers.synced()
                census = made.census
                first, cpu = time.perf_counter() - begin, time.thread_time() - spent
                grown = resident_mib(os.getpid()) - memory
                known = sum(census.counts.values())
                say(f"{known} nodes known; tainting {census.number(NodeTaintState.WAITING)}")
                began = time.perf_counter()
                working = [tasks.create_task(each.run()) for each in made.group.led_controllers]
                working += [tasks.create_task(run_led(each)) for each in made.group.led.values()]
                for _ in range(6000):
                    if not census.number(NodeTaintState.WAITING):
                        break
                    await asyncio.sleep(0.05)
                lasted = time.perf_counter() - began
                patches = server.requests["patch nodes"]
                say(f"{patches} PATCHes in {lasted:.1f} s")
                await asyncio.sleep(2)
                before = server.requests.copy()
                spent = time.thread_time()
                loop.call_soon_threadsafe(server.report)
                await asyncio.sleep(STEADY)
                reported = time.thread_time() - spent
                asked = sum((server.requests - before).values())
                for task in (*working, *watching):
                    task.cancel()
    expected = TO_TAINT * 60 / PER_MINUTE
    return [
        Figure("5 000 nodes, first sync", first, "s", "TN-090", 10),
        Figure("5 000 nodes, first sync, CPU", cpu, "s CPU", compared=True),
        Figure("5 000 nodes in memory", grown, "MiB", "TN-090", 60, compared=True, note=f"{known} known"),
        Figure("a node tainted, PATCHes", patches / TO_TAINT, "requests", "TN-090", 1, compared=True),
        Figure("1 000 nodes, off the pace", abs(lasted / expected - 1) * 100, "%", "TN-090", 5, note=f"{lasted:.1f} s"),
        Figure("5 000 kubelets report, requests", asked, "requests", "TN-090", 0, compared=True),
        Figure("5 000 kubelets report, CPU", reported, "s CPU", compared=True),
    ]


SCENARIOS = {"nodes": nodes}
