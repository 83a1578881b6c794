"""The kubelets of all nodes: what they admitted; of nodes with NUMA zones also their files, sockets and endpoints.

All files are below ``folder``, which pods of the node see as the node's own (hostPath). They are renamed over when they
change, as the kubelet does it. A later process takes up what an earlier one left; a damaged file is set aside.

Like the kubelet it forgets late: CPUs of pods that are over with :meth:`SimulatedKubelet.reconcile`, devices also when
they are listed, memory only when the next pod is admitted.
"""

import asyncio
import contextlib
import datetime as dt
import hashlib
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog
import yaml
from aiohttp import web
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from polyarch.clock import Clock
from polyarch.kube.errors import KubernetesError
from polyarch.kube.server import ReviewClient, ScraperAuthorization
from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources_grpc import PodResourcesListerBase
from polyarch.sandbox.certificates import Pki
from polyarch.sandbox.files import write_private
from polyarch.sandbox.kubelet_model import admission, cpu_manager, device_manager, memory_manager
from polyarch.sandbox.kubelet_model.admission import ManagerStates
from polyarch.sandbox.kubelet_model.device_manager import DeviceManagerState
from polyarch.sandbox.kubelet_model.machine import Device, Node
from polyarch.sandbox.kubelet_model.memory_manager import Block
from polyarch.sandbox.kubelet_model.requests import BARE_NODE, Container, NodeObject, Pod, PodRejected
from polyarch.sandbox.network import KUBELET_PORT
from polyarch.sandbox.nodes import kubelet_files
from polyarch.sandbox.nodes.kubelet_files import (
    RECONCILE_SECONDS,
    CorruptCheckpoint,
    configuration_document,
    configz,
    host_files,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")
STATE: Final = Path("var/lib/kubelet")
SOCKET: Final = STATE / "pod-resources" / "kubelet.sock"
PODS: Final = "pods"
VOLUME: Final = "volumes/kubernetes.io~projected/kube-api-access"
"""Below a pod's directory, what is mounted while its containers run. That of most pods has some letters more."""
"""Below ``STATE``: a folder for each pod until it is over."""
MACHINE: Final = "machine.sha256"
"""Beside the node's folder: what its sysfs was made from."""


class SimulatedKubelet:
    """See the module's docstring."""

    def __init__(self, name: str, node: Node, folder: Path) -> None:
        self.name = name
        self.node = node
        self.folder = folder
        self._held = admission.at_first(node)
        self._pods: dict[str, Pod] = {}
        self._saved: ManagerStates | None = None
        self._written: dict[str, str] = {}

    @property
    def socket(self) -> Path:
        return self.folder / SOCKET

    @property
    def active(self) -> list[Pod]:
        """The pods that were admitted and are not over."""
        return list(self._pods.values())

    @property
    def held(self) -> ManagerStates:
        return self._held

    def has(self, uid: str) -> bool:
        """Whether the pod was admitted and is not over."""
        return uid in self._pods

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self, pods: Iterable[Pod], seen: NodeObject = BARE_NODE) -> None:
        """Make the node's files, take up what an earlier process remembers, and admit the node's pods again, those
        first that hold something already. A pod that has no room any more is not active then. Until it has seen all
        pods a kubelet forgets none, also those that are over or gone."""
        self._make_machine()
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(configuration_document(self.node.configuration), sort_keys=False)
        self._write(STATE / "config.yaml", text)
        self._held = ManagerStates(
            self._recovered(kubelet_files.CPU_FILE, kubelet_files.read_cpus, cpu_manager.at_first(self.node)),
            self._recovered(kubelet_files.MEMORY_FILE, kubelet_files.read_memory, memory_manager.at_first(self.node)),
            self._recovered(kubelet_files.DEVICES_FILE, kubelet_files.read_devices, DeviceManagerState()),
        )
        pods = list(pods)
        known = {*self._held.cpus.held, *self._held.memory.held, *self._held.devices.held}
        kept = {*known, *(pod.uid for pod in pods)}
        for pod in sorted(pods, key=lambda pod: pod.uid not in known):
            self.admit(pod, seen, kept=kept)
        for folder in (self.folder / STATE / PODS).glob("*"):
            if folder.name not in self._pods:
                shutil.rmtree(folder, ignore_errors=True)
        self._save()

    def _make_machine(self) -> None:
        """Written once: what somebody changes in it afterwards (memory that is plugged in) stays."""
        files = host_files(self.node.machine)
        digest = hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()
        mark = self.folder.parent / MACHINE
        with contextlib.suppress(FileNotFoundError):
            if mark.read_text() == digest:
                return
        for name in ("sys", "proc"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
        write_private(mark, digest.encode())

    def _recovered(self, name: str, read: Callable[[Node, str], T], otherwise: T) -> T:
        path = self.folder / STATE / name
        try:
            return read(self.node, path.read_text(errors="replace"))
        except FileNotFoundError:
            return otherwise
        except CorruptCheckpoint as problem:
            aside = path.with_name(f"{path.name}.damaged")
            path.replace(aside)
            log.warning("checkpoint set aside", node=self.name, file=str(aside), problem=str(problem))
            return otherwise

    # -- as pods come and go -------------------------------------------------------------------------------------------

    def admit(self, pod: Pod, seen: NodeObject = BARE_NODE, *, kept: Collection[str] = ()) -> PodRejected | None:
        """Admit the pod to the node as it is ``seen``, or say why not; ``kept`` pods are not forgotten."""
        others = [other for other in self._pods.values() if other.uid != pod.uid]
        self._held, refused = admission.admit(self.node, self._held, pod, others, seen, kept=kept)
        if refused is None:
            self._pods[pod.uid] = pod
            (self.folder / STATE / PODS / pod.uid / VOLUME).mkdir(parents=True, exist_ok=True)
        self._save()
        return refused

    def started(self, uid: str, container: str) -> None:
        """A container of an admitted pod has been created."""
        if (pod := self._pods.get(uid)) is not None:
            self._held = admission.started(self._held, pod, container)
            self._save()

    def over(self, uid: str, *, is_gone: bool) -> None:
        """The pod has ended; its directory stays as long as its object, and its volumes do not."""
        self._pods.pop(uid, None)
        own = self.folder / STATE / PODS / uid
        shutil.rmtree(own if is_gone else own / VOLUME, ignore_errors=True)

    def reconcile(self) -> None:
        """Free the CPUs of pods that are over."""
        self._held = msgspec.structs.replace(self._held, cpus=cpu_manager.forget(self._held.cpus, self._pods))
        self._save()

    def list_devices(self) -> DeviceManagerState:
        """The devices in use, after those of pods that are over were freed."""
        self._held = msgspec.structs.replace(self._held, devices=device_manager.forget(self._held.devices, self._pods))
        return self._held.devices

    # -- files ---------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        for name, text in kubelet_files.texts(self.node, self._held, self._saved).items():
            self._write(STATE / name, text)
        self._saved = self._held

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(str(path)) != text:
            write_private(self.folder / path, text.encode())
            self._written[str(path)] = text


# -- the podresources API (``v1.PodResourcesLister``), on the unix socket ----------------------------------------------


WAITING = 16


class Lister(PodResourcesListerBase):
    """Answers from what the kubelet holds at the moment."""

    def __init__(self, kubelet: SimulatedKubelet) -> None:
        self._kubelet = kubelet

    async def List(  # noqa: N802 - the name of the call
        self, stream: Stream[api.ListPodResourcesRequest, api.ListPodResourcesResponse]
    ) -> None:
        await stream.recv_message()
        devices = self._kubelet.list_devices()
        pods = [self._pod(pod, devices) for pod in self._kubelet.active]
        await stream.send_message(api.ListPodResourcesResponse(pod_resources=pods))

    async def GetAllocatableResources(  # noqa: N802 - the name of the call
        self, stream: Stream[api.AllocatableResourcesRequest, api.AllocatableResourcesResponse]
    ) -> None:
        await stream.recv_message()
        node = self._kubelet.node
        is_static = node.configuration.cpu_policy == "static"
        answer = api.AllocatableResourcesResponse(
            devices=[_device(device) for device in node.machine.devices],
            cpu_ids=sorted(cpu_manager.allocatable(node)) if is_static else [],
            memory=_blocks(memory_manager.allocatable(node)),
        )
        await stream.send_message(answer)

    async def Get(  # noqa: N802 - the name of the call
        self, stream: Stream[api.GetPodResourcesRequest, api.GetPodResourcesResponse]
    ) -> None:
        request = await stream.recv_message()
        name, namespace = (request.pod_name, request.pod_namespace) if request is not None else ("", "")
        for pod in self._kubelet.active:
            if (pod.name, pod.namespace) == (name, namespace):
                found = self._pod(pod, self._kubelet.held.devices)
                await stream.send_message(api.GetPodResourcesResponse(pod_resources=found))
                return
        raise GRPCError(Status.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    def _pod(self, pod: Pod, devices: DeviceManagerState) -> api.PodResources:
        """Init containers are not listed, unless they run as long as the pod."""
        listed = [*(each for each in pod.init if each.is_sidecar), *pod.containers]
        containers = [self._container(pod, each, devices) for each in listed]
        return api.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _container(self, pod: Pod, container: Container, devices: DeviceManagerState) -> api.ContainerResources:
        held = self._kubelet.held
        ids = devices.held.get(pod.uid, {}).get(container.name, {})
        known = (each for each in self._kubelet.node.machine.devices if each.id in ids.get(each.resource, ()))
        return api.ContainerResources(
            name=container.name,
            devices=[_device(device) for device in known],
            cpu_ids=sorted(held.cpus.held.get(pod.uid, {}).get(container.name, ())),
            memory=_blocks(held.memory.held.get(pod.uid, {}).get(container.name, ())),
        )


def _device(device: Device) -> api.ContainerDevices:
    topology = _topology(device.cells) if device.cells else None
    return api.ContainerDevices(resource_name=device.resource, device_ids=[device.id], topology=topology)


def _blocks(blocks: Iterable[Block]) -> list[api.ContainerMemory]:
    return [
        api.ContainerMemory(memory_type=block.resource, size=block.size, topology=_topology(block.cells))
        for block in blocks
    ]


def _topology(cells: Iterable[int]) -> api.TopologyInfo:
    return api.TopologyInfo(nodes=[api.NUMANode(ID=cell) for cell in cells])


@contextlib.asynccontextmanager
async def serving(kubelet: SimulatedKubelet) -> AsyncIterator[None]:
    """Answer on the kubelet's socket during the block. The socket that an earlier process left is replaced; this one
    stays when the block ends, as a kubelet's does."""
    server = Server([Lister(kubelet)])
    await server.start(sock=bound(kubelet.socket), backlog=WAITING)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def bound(path: Path) -> socket.socket:
    """A unix socket at this path, also where it is longer than the kernel's limit of 107 bytes: it is named through
    its folder's descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        path.unlink(missing_ok=True)
        found.bind(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        found.close()
        raise
    finally:
        os.close(folder)
    found.setblocking(False)
    return found


# -- all kubelets of a sandbox -----------------------------------------------------------------------------------------


class PlainKubelet:
    """The kubelet of a node without zones: without managers and files."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pods: dict[str, Pod] = {}

    def start(self, pods: Iterable[Pod], seen: NodeObject) -> None:
        """Admit the node's pods again."""
        for pod in pods:
            self.admit(pod, seen)

    def has(self, uid: str) -> bool:
        return uid in self._pods

    def admit(self, pod: Pod, seen: NodeObject) -> PodRejected | None:
        """Admit the pod to the node as it is ``seen``, or say why not."""
        refused = admission.misfit(self._node, pod, self._pods.values(), seen)
        if refused is None:
            self._pods[pod.uid] = pod
        return refused

    def over(self, uid: str, *, is_gone: bool = False) -> None:
        """The pod has ended, or its object is gone."""
        self._pods.pop(uid, None)


class SimulatedKubelets:
    """One for each node, by the node's name; those with zones have a folder."""

    def __init__(self, nodes: Mapping[str, tuple[Node, Path | None]], *, clock: Clock) -> None:
        self._kubelets: dict[str, SimulatedKubelet] = {}
        self._plain: dict[str, PlainKubelet] = {}
        for name, (node, folder) in nodes.items():
            if folder is None:
                self._plain[name] = PlainKubelet(node)
            else:
                self._kubelets[name] = SimulatedKubelet(name, node, folder)
        self._clock = clock

    def of(self, node: str) -> SimulatedKubelet | None:
        """That of a node with zones."""
        return self._kubelets.get(node)

    def admitting(self, node: str) -> SimulatedKubelet | PlainKubelet | None:
        return self._kubelets.get(node) or self._plain.get(node)

    def over(self, node: str, uid: str, *, is_gone: bool = False) -> None:
        """A pod of this node has ended, or its object is gone."""
        if (kubelet := self.admitting(node)) is not None:
            kubelet.over(uid, is_gone=is_gone)

    def start(self, pods: Mapping[str, Iterable[Pod]], seen: Callable[[str], NodeObject]) -> None:
        """Start all, with the pods that are on the nodes already, and the nodes as they are seen, by name."""
        for name in (*self._kubelets, *self._plain):
            if (kubelet := self.admitting(name)) is not None:
                kubelet.start(pods.get(name, ()), seen(name))

    async def run(self) -> None:
        """Serve all sockets and forget pods that are over, until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            for kubelet in self._kubelets.values():
                await stack.enter_async_context(serving(kubelet))
            if not self._kubelets:
                await asyncio.get_running_loop().create_future()
            while True:
                await self._clock.sleep(RECONCILE_SECONDS)
                for kubelet in self._kubelets.values():
                    kubelet.reconcile()


# -- port 10250, for the pods of the sandbox: ``/configz`` -------------------------------------------------------------


CUT_OFF_SECONDS: Final = 0.1


class SimulatedKubeletPort:
    """The endpoints of all nodes; ``kubelets`` by the address on which each is asked.

    A node's own address cannot be dialled on this machine, so the port is open on the loopback address that its pods
    are told as their host's (``status.hostIP``). As with a kubelet, the caller shows a bearer token; the API server
    says whose it is (TokenReview) and whether that user may ``get`` ``nodes/configz`` (SubjectAccessReview).
    """

    def __init__(
        self, kubelets: Mapping[str, SimulatedKubelet], client: ReviewClient, *, clock: Clock, port: int = KUBELET_PORT
    ) -> None:
        self._kubelets = dict(kubelets)
        self._port = port
        self._authorizations = {
            kubelet.name: ScraperAuthorization(client, attributes=_attributes(kubelet.name), clock=clock)
            for kubelet in self._kubelets.values()
        }

    async def run(self, context: ssl.SSLContext) -> None:
        """Serve until cancelled."""
        runner = web.ServerRunner(web.Server(self.answer, access_log=None), shutdown_timeout=CUT_OFF_SECONDS)
        await runner.setup()
        try:
            for address in self._kubelets:
                await web.TCPSite(runner, address, self._port, ssl_context=context).start()
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        kubelet = self._kubelets.get(name[0]) if name else None
        if request.path == "/healthz":
            return web.Response(text="ok")
        if kubelet is None or request.path != "/configz":
            return web.Response(status=404, text="404 page not found\n")
        if (refusal := await self._refusal(kubelet, request.headers.get("Authorization", ""))) is not None:
            return refusal
        body = msgspec.json.encode(configz(kubelet.node.configuration))
        return web.Response(body=body, content_type="application/json")

    async def _refusal(self, kubelet: SimulatedKubelet, header: str) -> web.Response | None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return web.Response(status=401, text="Unauthorized")
        try:
            verdict = await self._authorizations[kubelet.name].verdict(token.strip())
        except (KubernetesError, TimeoutError) as error:
            log.warning("caller of a kubelet could not be authorised", node=kubelet.name, error=str(error))
            return web.Response(status=500, text="Authorization error")
        if verdict == "unauthenticated":
            return web.Response(status=401, text="Unauthorized")
        if verdict == "forbidden":
            return web.Response(
                status=403, text="Forbidden (verb=get, resource=nodes, subresource(s)=[configz proxy])\n"
            )
        return None


def certified(pki: Pki, addresses: Iterable[str], now: dt.datetime) -> ssl.SSLContext:
    """Serves with a certificate of the cluster's CA that is valid at these addresses."""
    pair = pki.serving("kubelet", pki.folder, now, addresses=addresses)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def _attributes(node: str) -> dict[str, dict[str, str]]:
    return {
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "configz",
            "name": node,
        }
    }
