"""The kubelet's podresources API: its address, its interface, its messages as facts, and recorded responses of it.

``kubelet_socket`` has the client of a running kubelet. Recorded responses are JSON files of a directory,
``fake:///dir``, with the names of the proto's fields, as Go programs and ``protojson`` write them; lowerCamel is read
too. They show on any machine what another one would publish, and need no gRPC.
"""

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import Message

from polyarch.numa.facts import Allocatable, Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.host import podresources_pb2 as api

MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Of one message."""
CALL_TIMEOUT: Final = 10.0
LONGEST_SOCKET_PATH: Final = 107
"""``sun_path`` has 108 bytes, with the zero at its end (unix(7))."""

PodResourcesCall = Literal["list", "get_allocatable_resources", "get"]
"""A call, by the name that ``rte_podresource_api_call_failures_total`` gives it."""


class PodResourcesError(Exception):
    """A call failed: ``function`` is the call, the message says where and why."""

    def __init__(self, function: PodResourcesCall, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.function = function


class PodResources(Protocol):
    """The kubelet's responses as facts. Every call raises :class:`PodResourcesError` and nothing else.

    Ids of zones are passed on as they come, negative ones and unknown ones too.
    """

    async def until_ready(self) -> None:
        """Returns once there is somebody to ask; waits for it without limit."""

    async def list(self) -> list[ListedPod]:
        """All pods with the resources of their containers."""

    async def allocatable(self) -> Allocatable:
        """What all pods together may get."""

    async def get(self, namespace: str, name: str) -> ListedPod:
        """One pod; picked out of ``list`` where the kubelet does not implement ``Get``."""

    async def close(self) -> None:
        """Lets go of the connection; the next call opens another."""


class CallMetrics(Protocol):
    """Counts calls."""

    def call_failed(self, function: PodResourcesCall) -> None:
        """Once per failed call; a call that is repeated and fails again counts twice."""

    def pods_unnamed(self, count: int) -> None:
        """Pods without name or namespace were in a response, and left out."""


class NoCallMetrics:
    """Counts nothing."""

    def call_failed(self, function: PodResourcesCall) -> None:
        pass

    def pods_unnamed(self, count: int) -> None:
        pass


# -- addresses and sockets ---------------------------------------------------------------------------------------------


class PodResourcesAddress(NamedTuple):
    """A ``unix://`` socket or a ``fake://`` directory of recorded responses."""

    fake: bool
    path: Path

    def __str__(self) -> str:
        return f"{'fake' if self.fake else 'unix'}://{self.path}"


def parse_podresources_url(url: str) -> PodResourcesAddress:
    """Raises ValueError with the problem."""
    parts = urlsplit(url)
    if parts.scheme not in {"unix", "fake"} or parts.netloc or not parts.path.startswith("/"):
        raise ValueError(
            f"{url!r} is no address of podresources: write unix:///path/of/kubelet.sock or fake:///directory"
        )
    return PodResourcesAddress(parts.scheme == "fake", Path(parts.path))


class SocketIdentity(NamedTuple):
    """Tells a socket from its successor: a kubelet that starts makes its own."""

    device: int
    inode: int
    made: int
    """Nanoseconds: file systems give the inode of a removed file to the next."""


def socket_identity(path: Path) -> SocketIdentity | None:
    """None while there is no socket."""
    try:
        status = path.stat()
    except OSError:
        return None
    return SocketIdentity(status.st_dev, status.st_ino, status.st_mtime_ns) if stat.S_ISSOCK(status.st_mode) else None


class SocketPath:
    """A path that fits into a socket's address, and the descriptor that has to stay open while it is used."""

    def __init__(self, path: Path) -> None:
        """A path that is too long is reached through its directory. Raises OSError if that cannot be opened."""
        self._directory: int | None = None
        self.path = str(path)
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            self._directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._directory}/{path.name}"

    def close(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            os.close(directory)


# -- messages as facts -------------------------------------------------------------------------------------------------

# Fields that we do not know stay where the parser put them, and cost nothing.


def listed_pods(response: api.ListPodResourcesResponse) -> tuple[list[ListedPod], int]:
    """The pods in the order of the response, and how many more have no name or no namespace."""
    pods = [_pod(pod) for pod in response.pod_resources if pod.name and pod.namespace]
    return pods, len(response.pod_resources) - len(pods)


def pod_of_get(response: api.GetPodResourcesResponse) -> ListedPod | None:
    """None: the response names no pod."""
    pod = response.pod_resources
    return _pod(pod) if pod.name and pod.namespace else None


def allocatable_resources(response: api.AllocatableResourcesResponse) -> Allocatable:
    return Allocatable(
        cpus=tuple(response.cpu_ids), memory=_memory(response.memory), devices=_devices(response.devices)
    )


def _pod(pod: api.PodResources) -> ListedPod:
    containers = (
        Container(
            name=container.name,
            cpus=tuple(container.cpu_ids),
            memory=_memory(container.memory),
            devices=_devices(container.devices),
        )
        for container in pod.containers
    )
    return ListedPod(pod.namespace, pod.name, tuple(containers))


def _memory(blocks: Iterable[api.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(block.memory_type, block.size, _zones(block.topology)) for block in blocks)


def _devices(devices: Iterable[api.ContainerDevices]) -> tuple[Devices, ...]:
    return tuple(Devices(entry.resource_name, tuple(entry.device_ids), _zones(entry.topology)) for entry in devices)


def _zones(topology: api.TopologyInfo) -> tuple[int, ...]:
    return tuple(node.ID for node in topology.nodes)


# -- recorded responses ------------------------------------------------------------------------------------------------

RESPONSE_FILES: dict[PodResourcesCall, str] = {
    "list": "list.json",
    "get_allocatable_resources": "get_allocatable_resources.json",
    "get": "get.json",
}

M = TypeVar("M", bound=Message)


class RecordedResponses:
    """Reads the files anew for each call."""

    def __init__(self, address: PodResourcesAddress, *, metrics: CallMetrics) -> None:
        self._folder = address.path
        self._metrics = metrics

    async def until_ready(self) -> None:
        """At once: a file that is missing is a failed call."""

    async def list(self) -> list[ListedPod]:
        pods, unnamed = listed_pods(self._read("list", api.ListPodResourcesResponse()))
        if unnamed:
            self._metrics.pods_unnamed(unnamed)
        return pods

    async def allocatable(self) -> Allocatable:
        return allocatable_resources(self._read("get_allocatable_resources", api.AllocatableResourcesResponse()))

    async def get(self, namespace: str, name: str) -> ListedPod:
        """The pod of ``get.json`` if that is the wanted one; where there is no such file, out of ``list.json``."""
        if not self._path("get").exists():
            pods = await self.list()
        else:
            pod = pod_of_get(self._read("get", api.GetPodResourcesResponse()))
            pods = [pod] if pod else []
        for pod in pods:
            if (pod.namespace, pod.name) == (namespace, name):
                return pod
        self._metrics.call_failed("get")
        raise PodResourcesError("get", f"{self._folder} has no pod {namespace}/{name}")

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _path(self, function: PodResourcesCall) -> Path:
        return self._folder / RESPONSE_FILES[function]

    def _read(self, function: PodResourcesCall, response: M) -> M:
        from google.protobuf.json_format import ParseDict, ParseError  # an exporter on a node never gets here

        path = self._path(function)
        try:
            with path.open("rb") as file:
                text = file.read(MAX_RESPONSE_BYTES + 1)
            if len(text) > MAX_RESPONSE_BYTES:
                raise ValueError(f"more than {MAX_RESPONSE_BYTES >> 20} MiB, the longest answer that is read")
            document = json.loads(text)
            if not isinstance(document, dict):
                raise ParseError("not a JSON object")
            return ParseDict(document, response, ignore_unknown_fields=True)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        except (ParseError, ValueError, RecursionError) as error:
            problem = f"{path}: {error}"
        self._metrics.call_failed(function)
        raise PodResourcesError(function, problem)
