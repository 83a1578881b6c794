"""The podresources API (``v1.PodResourcesLister``) of a modelled kubelet, on its unix socket."""

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from polyarch.numa.host import podresources_pb2 as api
from polyarch.numa.host.podresources_grpc import PodResourcesListerBase
from polyarch.sandbox.kubelet_model import cpus, memory
from polyarch.sandbox.kubelet_model.devices import Devices
from polyarch.sandbox.kubelet_model.machine import Device
from polyarch.sandbox.kubelet_model.memory import Block
from polyarch.sandbox.kubelet_model.requests import Container, Pod
from polyarch.sandbox.numa_nodes.account import Kubelet

WAITING = 16


class Lister(PodResourcesListerBase):
    """Answers from what the kubelet holds at the moment."""

    def __init__(self, kubelet: Kubelet) -> None:
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
            cpu_ids=sorted(cpus.allocatable(node)) if is_static else [],
            memory=_blocks(memory.allocatable(node)),
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

    def _pod(self, pod: Pod, devices: Devices) -> api.PodResources:
        """Init containers are not listed, unless they run as long as the pod."""
        listed = [*(each for each in pod.init if each.is_sidecar), *pod.containers]
        containers = [self._container(pod, each, devices) for each in listed]
        return api.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _container(self, pod: Pod, container: Container, devices: Devices) -> api.ContainerResources:
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
async def serving(kubelet: Kubelet) -> AsyncIterator[None]:
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
