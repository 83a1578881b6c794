"""NE-150 – NE-154: what one exporter costs, as a process of its own, on a machine of 8 cells.

The kubelet is a gRPC server on a unix socket and the API server a page of this process, so that what is counted is the
exporter alone. Scans follow each other without pause where their cost is measured; then the exporter idles with the
periods of a cluster, and then pods come and go.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from grpclib.server import Server, Stream

from bench.measure import Figure, cpu_seconds, percentile, resident_mib
from bench.runtime import Say, served_apart
from polyarch.numa.host import podresources_pb2
from polyarch.numa.host.podresources_grpc import PodResourcesListerBase

CELLS: Final = 8
CPUS_PER_CELL: Final = 64
MEMORY: Final = 64 << 30
"""Bytes of each cell."""
NODE: Final = "worker-1"
TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
WARM: Final = 500
"""Scans before memory is looked at."""
MANY: Final = 10_000
COUNTED: Final = 400
IDLE: Final = 60.0
CHANGES: Final = 40
ONCE: Final = 7


class Kubelet(PodResourcesListerBase):
    """So many pods, each with two CPUs, memory and a device of one cell."""

    def __init__(self) -> None:
        self.answer = podresources_pb2.ListPodResourcesResponse()

    def has(self, pods: int) -> None:
        self.answer = listed(pods)

    async def List(  # noqa: N802 - gRPC's name
        self, stream: Stream[podresources_pb2.ListPodResourcesRequest, podresources_pb2.ListPodResourcesResponse]
    ) -> None:
        await stream.recv_message()
        await stream.send_message(self.answer)

    async def GetAllocatableResources(  # noqa: N802
        self,
        stream: Stream[podresources_pb2.AllocatableResourcesRequest, podresources_pb2.AllocatableResourcesResponse],
    ) -> None:
        await stream.recv_message()
        await stream.send_message(allocatable())

    async def Get(  # noqa: N802
        self, stream: Stream[podresources_pb2.GetPodResourcesRequest, podresources_pb2.GetPodResourcesResponse]
    ) -> None:
        raise NotImplementedError


def _cell(number: int) -> podresources_pb2.TopologyInfo:
    return podresources_pb2.TopologyInfo(nodes=[podresources_pb2.NUMANode(ID=number)])


def _memory(size: int, cell: int) -> podresources_pb2.ContainerMemory:
    return podresources_pb2.ContainerMemory(memory_type="memory", size=size, topology=_cell(cell))


def _devices(ids: list[str], cell: int) -> podresources_pb2.ContainerDevices:
    return podresources_pb2.ContainerDevices(resource_name="vendor.example/nic", device_ids=ids, topology=_cell(cell))


def allocatable() -> podresources_pb2.AllocatableResourcesResponse:
    """All but CPU 0."""
    return podresources_pb2.AllocatableResourcesResponse(
        cpu_ids=list(range(1, CELLS * CPUS_PER_CELL)),
        memory=[_memory(MEMORY, cell) for cell in range(CELLS)],
        devices=[_devices([f"nic-{cell}-{number}"], cell) for cell in range(CELLS) for number in range(40)],
    )


def listed(pods: int) -> podresources_pb2.ListPodResourcesResponse:
    """One container per pod that holds something, and one that does not."""
    answer = podresources_pb2.ListPodResourcesResponse()
    for number in range(pods):
        cell, place = number % CELLS, number // CELLS
        first = cell * CPUS_PER_CELL + 1 + 2 * place
        held = podresources_pb2.ContainerResources(
            name="app",
            cpu_ids=[first, first + 1] if 2 * place + 2 < CPUS_PER_CELL else [],
            memory=[_memory(1 << 30, cell)],
            devices=[_devices([f"nic-{cell}-{place}"], cell)] if place < 40 else [],
        )
        names = {"name": f"database-{number}-7d4b9c6f5-x2x{number:02}", "namespace": f"team-{number % 20}"}
        answer.pod_resources.append(
            podresources_pb2.PodResources(
                containers=[held, podresources_pb2.ContainerResources(name="sidecar")], **names
            )
        )
    return answer


@asynccontextmanager
async def kubelet_at(socket: Path, kubelet: Kubelet) -> AsyncIterator[None]:
    """Its server, in this loop."""
    server = Server([kubelet])
    await server.start(path=str(socket))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


class ApiServer:
    """One Node and its topology; it runs in a thread of its own."""

    def __init__(self) -> None:
        self.version = 1
        self.topology: dict[str, Any] | None = None
        self.requests: Counter[str] = Counter()
        self.changed = threading.Event()
        self._watches: list[asyncio.Queue[bytes]] = []

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/api/v1/nodes", self._nodes)
        application.router.add_get("/api/v1/nodes/{name}", self._node)
        application.router.add_get(TOPOLOGIES, self._topologies)
        application.router.add_get(TOPOLOGIES + "/{name}", self._get)
        application.router.add_post(TOPOLOGIES, self._create)
        application.router.add_patch(TOPOLOGIES + "/{name}", self._patch)
        return application

    @property
    def writes(self) -> int:
        return sum(count for verb, count in self.requests.items() if verb.startswith(("post", "patch")))

    def _own(self) -> dict[str, Any]:
        metadata = {"name": NODE, "uid": "0f3c", "resourceVersion": "1"}
        return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "status": {"capacity": {"cpu": "512"}}}

    async def _node(self, request: web.Request) -> web.StreamResponse:
        self.requests["get nodes"] += 1
        return web.json_response(self._own())

    async def _nodes(self, request: web.Request) -> web.StreamResponse:
        return await self._read(request, [self._own()], "nodes")

    async def _topologies(self, request: web.Request) -> web.StreamResponse:
        return await self._read(request, [self.topology] if self.topology else [], "topologies")

    async def _read(self, request: web.Request, items: list[Any], what: str) -> web.StreamResponse:
        if "watch" not in request.query:
            self.requests[f"list {what}"] += 1
            metadata = {"resourceVersion": str(self.version)}
            return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
        if request.query.get("sendInitialEvents"):
            return web.json_response({"kind": "Status", "code": 422, "reason": "Invalid"}, status=422)
        self.requests[f"watch {what}"] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        if what == "topologies":
            self._watches.append(changes)
        try:
            while True:
                await response.write(await changes.get())
        except ConnectionResetError:  # the exporter has ended
            return response
        finally:
            if changes in self._watches:
                self._watches.remove(changes)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self.requests["get topologies"] += 1
        if self.topology is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return web.json_response(self.topology)

    async def _create(self, request: web.Request) -> web.Response:
        self.requests["post topologies"] += 1
        return self._store("ADDED", await request.json(), 201)

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        if self.topology is None:
            return await self._get(request)
        self.requests["patch topologies"] += 1
        patch = await request.json()
        metadata = self.topology["metadata"] | patch.pop("metadata", {})
        return self._store("MODIFIED", {**self.topology, **patch, "metadata": metadata}, 200)

    def _store(self, type: str, document: dict[str, Any], status: int) -> web.Response:
        self.version += 1
        document["metadata"] |= {"resourceVersion": str(self.version), "uid": "11"}
        self.topology = document
        line = msgspec.json.encode({"type": type, "object": document}) + b"\n"
        for each in self._watches:
            each.put_nowait(line)
        self.changed.set()
        return web.json_response(document, status=status)


def machine(root: Path) -> None:
    """sysfs of 8 cells, and the kubelet's configuration and state."""
    node, cpu = root / "sys/devices/system/node", root / "sys/devices/system/cpu"
    every = CELLS * CPUS_PER_CELL

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write(node / "online", f"0-{CELLS - 1}\n")
    write(cpu / "online", f"0-{every - 1}\n")
    for cell in range(CELLS):
        own, first = node / f"node{cell}", cell * CPUS_PER_CELL
        write(own / "cpulist", f"{first}-{first + CPUS_PER_CELL - 1}\n")
        write(own / "meminfo", f"Node {cell} MemTotal:       {MEMORY >> 10} kB\n")
        write(own / "distance", " ".join("10" if other == cell else "21" for other in range(CELLS)) + "\n")
        for size in (2048, 1048576):
            write(own / f"hugepages/hugepages-{size}kB/nr_hugepages", "0\n")
    for number in range(every):
        write(cpu / f"cpu{number}/topology/physical_package_id", f"{number // (every // 2)}\n")
        write(cpu / f"cpu{number}/topology/thread_siblings_list", f"{number & ~1}-{number | 1}\n")
    write(
        root / "podresources/config.yaml",
        "kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\ncpuManagerPolicy: static\n",
    )
    write(root / "var/lib/kubelet/cpu_manager_state", "{}")


class Exporter:
    """The process."""

    def __init__(self, process: asyncio.subprocess.Process, metrics: str) -> None:
        self.pid = process.pid
        self._metrics = metrics

    async def scans(self) -> int:
        async with aiohttp.ClientSession() as session, session.get(self._metrics) as answer:
            lines = (await answer.text()).splitlines()
        return int(sum(float(each.split()[-1]) for each in lines if each.startswith("polyarch_numa_scans_total")))

    async def scanned(self, more: int) -> int:
        """Waits for so many more; how many there were."""
        first = await self.scans()
        while (now := await self.scans()) < first + more:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.5)
        return now - first


@asynccontextmanager
async def exporting(folder: Path, port: int, *flags: str) -> AsyncIterator[Exporter]:
    """It publishes ``NODE`` to the server at ``port``."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    user = {"name": "bench", "user": {"token": "bench"}}
    document = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "bench"}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    words = (
        "run",
        "numa-exporter",
        f"--kubeconfig={kubeconfig}",
        f"--hostname={NODE}",
        f"--root={folder}",
        f"--podresources-socket=unix://{folder / 'kubelet.sock'}",
        "--kubelet-config=file",
        "--metrics-mode=http",
        "--metrics-ip=127.0.0.1",
        "--metrics-port=0",
        "--podreadiness=false",
        *flags,
    )
    with (folder / "exporter.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "polyarch", *words, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "exporter.log").read_text())
        yield Exporter(process, json.loads(line)["metrics"] + "/metrics")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def exporter(say: Say) -> list[Figure]:
    """NE-150 – NE-153."""
    return asyncio.run(_exporter(say))


async def _exporter(say: Say) -> list[Figure]:
    figures: list[Figure] = []
    kubelet, server = Kubelet(), ApiServer()
    folder = Path(tempfile.mkdtemp(prefix="numa-"))
    machine(folder)
    try:
        with served_apart(server.application()) as (port, _):
            async with kubelet_at(folder / "kubelet.sock", kubelet):
                kubelet.has(110)
                figures += await _scans(folder, port, kubelet, server, say)
                figures += await _idle(folder, port, server, say)
                figures += await _freshness(folder, port, kubelet, server, say)
    finally:
        shutil.rmtree(folder)
    return figures


async def _scans(folder: Path, port: int, kubelet: Kubelet, server: ApiServer, say: Say) -> list[Figure]:
    flags = ("--sleep-interval=1ms", "--max-events-per-second=1000", "--state-poll=0")
    begin = time.monotonic()
    server.changed.clear()
    async with exporting(folder, port, *flags) as process:
        await asyncio.to_thread(server.changed.wait, 60)
        started = time.monotonic() - begin
        figures = [Figure("exporter: start to first publish", started, "s", "NE-153", 5)]
        for pods, limit in ((110, 15), (250, 30)):
            kubelet.has(pods)
            await process.scanned(WARM)
            before = cpu_seconds(process.pid)
            number = await process.scanned(COUNTED)
            spent = (cpu_seconds(process.pid) - before) / number * 1000
            say(f"{number} scans of {pods} pods")
            figures.append(
                Figure(
                    f"exporter: scan of {pods} pods", spent, "ms CPU", "NE-151", limit, compared=True, note="8 cells"
                )
            )
        first, writes = resident_mib(process.pid), server.writes
        say(f"{MANY} scans of 250 pods")
        number = await process.scanned(MANY)
        last = resident_mib(process.pid)
        figures += [
            Figure("exporter: resident, 250 pods", last, "MiB", "NE-150", 60, compared=True, note=f"{number} scans"),
            Figure("exporter: growth over 10 000 scans", last - first, "MiB", "NE-150", 2),
            Figure("exporter: writes in 10 000 scans", server.writes - writes, "", "NE-152", 0, compared=True),
        ]
    return figures


async def _idle(folder: Path, port: int, server: ApiServer, say: Say) -> list[Figure]:
    async with exporting(folder, port, "--sleep-interval=10s", "--state-poll=1s") as process:
        await asyncio.sleep(15)
        before, asked = cpu_seconds(process.pid), server.requests.copy()
        say(f"idle for {IDLE:g} s")
        await asyncio.sleep(IDLE)
        share = (cpu_seconds(process.pid) - before) / IDLE * 100
        requests = sum((server.requests - asked).values())
    return [
        Figure("exporter: idle, 10 s period, 250 pods", share, "% of a core", "NE-151", 0.5, compared=True),
        Figure("exporter: requests while idle", requests, "", "NE-152", 0, compared=True, note=f"{IDLE:g} s"),
    ]


async def _freshness(folder: Path, port: int, kubelet: Kubelet, server: ApiServer, say: Say) -> list[Figure]:
    state, waited = folder / "var/lib/kubelet/cpu_manager_state", []
    async with exporting(folder, port, "--sleep-interval=60s", "--state-poll=1s") as process:
        await process.scanned(1)
        say(f"{CHANGES} allocations")
        for number in range(CHANGES):
            server.changed.clear()
            kubelet.has(100 + number % 2)
            beside = state.with_suffix(".new")
            beside.write_text(json.dumps({"number": number}))
            beside.replace(state)  # as the kubelet writes
            begin = time.monotonic()
            if not await asyncio.to_thread(server.changed.wait, 30):
                raise RuntimeError("an allocation was not published within 30 s")
            waited.append(time.monotonic() - begin)
            await asyncio.sleep(0.1 * (number % 10))
    p99 = percentile(waited, 99)
    return [Figure("exporter: allocation to topology, p99", p99, "s", "NE-153", 3, note=f"{CHANGES} changes")]


def export(say: Say) -> list[Figure]:
    """NE-154: the command, beside an interpreter that does nothing."""
    folder = Path(tempfile.mkdtemp(prefix="numa-"))
    try:
        machine(folder)
        answers = folder / "answers"
        answers.mkdir()
        for name, message in (("list", listed(250)), ("get_allocatable_resources", allocatable())):
            (answers / f"{name}.json").write_text(_json(message))
        words = ("numa", "export", "--once", f"--root={folder}", f"--podresources-socket=fake://{answers}")
        say(f"polyarch numa export --once, {ONCE} times")
        took, spent = _least((sys.executable, "-m", "polyarch", *words, f"--hostname={NODE}"))
        nothing, _ = _least((sys.executable, "-c", "pass"))
    finally:
        shutil.rmtree(folder)
    return [
        Figure(
            "numa export --once, 250 pods",
            took * 1000,
            "ms",
            "NE-154",
            400,
            note=f"an idle Python: {nothing * 1000:.0f}",
        ),
        Figure("numa export --once, 250 pods, CPU", spent * 1000, "ms CPU", "NE-154", 400, compared=True),
    ]


def _json(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(message, preserving_proto_field_name=True)


def _least(command: tuple[str, ...]) -> tuple[float, float]:
    """Seconds and seconds of CPU of the fastest run: what else the machine does only adds."""
    found = []
    for _ in range(ONCE):
        before, begin = os.times(), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took, after = time.monotonic() - begin, os.times()
        user, system = (after.children_user - before.children_user, after.children_system - before.children_system)
        found.append((took, user + system))
    return min(found)


SCENARIOS: Final = {"exporter": exporter, "export": export}
