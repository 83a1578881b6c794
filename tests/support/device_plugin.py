"""A device plugin for real kubelets: devices with NUMA zones that are nothing but their names.

It serves on a socket in the kubelet's own folder and registers there again whenever the kubelet has made a new socket,
as plugins of vendors do. A process of its own serves all nodes of a test. The messages are the part of the kubelet's
v1beta1 API that a plugin needs.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Server

from polyarch.numa.host.podresources import SocketPath, socket_identity
from polyarch.sandbox.kubelet_model.machine import Device

FOLDER: Final = "device-plugins"
"""Below the kubelet's folder."""
LOOK_SECONDS: Final = 0.2
_REPEATED: Final = "*"
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": (1, "bool"), "get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "NUMANode": {"ID": (1, "int64")},
    "TopologyInfo": {"nodes": (1, "*NUMANode")},
    "Device": {"ID": (1, "string"), "health": (2, "string"), "topology": (3, "TopologyInfo")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "ContainerAllocateResponse": {},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}
"""Number and type of each field, ``*`` for a list."""


def _messages() -> Mapping[str, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="device_plugin.proto", package="v1beta1", syntax="proto3")
    for message, fields in _FIELDS.items():
        made = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            plain = kind.removeprefix(_REPEATED)
            label = field.LABEL_REPEATED if kind.startswith(_REPEATED) else field.LABEL_OPTIONAL
            described = made.field.add(name=name, number=number, label=label)
            if plain in _FIELDS:
                described.type, described.type_name = field.TYPE_MESSAGE, f".v1beta1.{plain}"
            else:
                described.type = field.Type.Value(f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}")) for name in _FIELDS}


_MESSAGES: Final = _messages()


class DevicePlugin:
    """The devices of one resource on one node."""

    def __init__(self, kubelet: Path, devices: Iterable[Device]) -> None:
        """``kubelet``: what is ``/var/lib/kubelet`` on the node."""
        self._devices = tuple(devices)
        self._resource = self._devices[0].resource
        self._folder = kubelet / FOLDER
        self._name = f"{self._resource.replace('/', '-')}.sock"

    async def run(self) -> None:
        """Serves, until its process ends."""
        server, known = None, None
        while True:
            there = socket_identity(self._folder / "kubelet.sock")
            if there is not None and there != known:
                if server is not None:
                    server.close()
                server = await self._serve()
                if await self._registers():
                    known = there
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self) -> Server:
        own = self._folder / self._name
        own.unlink(missing_ok=True)
        path, server = SocketPath(own), Server([self])
        try:
            await server.start(path=path.path)
        finally:
            path.close()
        return server

    async def _registers(self) -> bool:
        path = SocketPath(self._folder / "kubelet.sock")
        channel = Channel(path=path.path)
        method = UnaryUnaryMethod(
            channel, "/v1beta1.Registration/Register", _MESSAGES["RegisterRequest"], _MESSAGES["Empty"]
        )
        request = _MESSAGES["RegisterRequest"](version="v1beta1", endpoint=self._name, resource_name=self._resource)
        try:
            await method(request, timeout=10)
        except (OSError, GRPCError, StreamTerminatedError, TimeoutError):
            return False  # the kubelet has just ended, or does not serve yet
        finally:
            channel.close()
            path.close()
        return True

    # -- what the kubelet calls ----------------------------------------------------------------------------------------

    async def _options(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(_MESSAGES["DevicePluginOptions"]())

    async def _list(self, stream: Any) -> None:
        """All devices, and nothing more until the kubelet goes."""
        await stream.recv_message()
        answer = _MESSAGES["ListAndWatchResponse"]()
        for device in self._devices:
            made = answer.devices.add(ID=device.id, health="Healthy")
            for zone in device.cells:
                made.topology.nodes.add(ID=zone)
        await stream.send_message(answer)
        await asyncio.Event().wait()

    async def _allocate(self, stream: Any) -> None:
        request = await stream.recv_message()
        answer = _MESSAGES["AllocateResponse"]()
        for _ in request.container_requests:
            answer.container_responses.add()
        await stream.send_message(answer)

    def __mapping__(self) -> dict[str, Handler]:
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        calls = {
            "GetDevicePluginOptions": Handler(self._options, one, _MESSAGES["Empty"], _MESSAGES["DevicePluginOptions"]),
            "ListAndWatch": Handler(self._list, many, _MESSAGES["Empty"], _MESSAGES["ListAndWatchResponse"]),
            "Allocate": Handler(self._allocate, one, _MESSAGES["AllocateRequest"], _MESSAGES["AllocateResponse"]),
        }
        return {f"/v1beta1.DevicePlugin/{name}": handler for name, handler in calls.items()}


async def serve(kubelets: Iterable[Path], devices: Iterable[Device]) -> None:
    by_resource: dict[str, list[Device]] = {}
    for device in devices:
        by_resource.setdefault(device.resource, []).append(device)
    async with asyncio.TaskGroup() as tasks:
        for kubelet in kubelets:
            for several in by_resource.values():
                tasks.create_task(DevicePlugin(kubelet, several).run())


@contextlib.contextmanager
def plugged_in(kubelets: Iterable[Path], devices: Iterable[Device]) -> Iterator[None]:
    """Each of these nodes has the devices until the end of the block."""
    given = msgspec.json.encode((tuple(map(str, kubelets)), tuple(devices))).decode()
    running = subprocess.Popen([sys.executable, __file__, given])
    try:
        yield
    finally:
        running.kill()
        running.wait()


if __name__ == "__main__":
    folders, found = msgspec.json.decode(sys.argv[1], type=tuple[tuple[str, ...], tuple[Device, ...]])
    asyncio.run(serve(map(Path, folders), found))
