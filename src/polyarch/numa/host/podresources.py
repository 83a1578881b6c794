"""Where the podresources API is asked, and how a new socket at the same place is told from the old one."""

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from polyarch.numa.facts import Allocatable, Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.host import podresources_pb2 as api


class PodResourcesAddress(NamedTuple):
    """A ``unix://`` socket or a ``fake://`` directory of answers."""

    fake: bool
    path: Path

    def __str__(self) -> str:
        return f"{'fake' if self.fake else 'unix'}://{self.path}"


def parse_podresources_url(url: str) -> PodResourcesAddress:
    """Raises ValueError with what is wrong."""
    parts = urlsplit(url)
    if parts.scheme not in {"unix", "fake"} or parts.netloc or not parts.path.startswith("/"):
        raise ValueError(
            f"{url!r} is no address of podresources: write unix:///path/of/kubelet.sock or fake:///directory"
        )
    return PodResourcesAddress(parts.scheme == "fake", Path(parts.path))


class SocketIdentity(NamedTuple):
    """Which socket it is: a kubelet that starts makes its own."""

    device: int
    inode: int
    made: int
    """Nanoseconds: file systems give the inode of a removed file to the next."""


def socket_identity(path: Path) -> SocketIdentity | None:
    """None while there is no socket."""
    try:
        found = path.stat()
    except OSError:
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


LONGEST_SOCKET_PATH = 107
"""``sun_path`` has 108 bytes, with the zero at its end (unix(7))."""


class SocketPath:
    """A path that fits into a socket's address, and what has to stay open while it is used."""

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


# -- What a caller sees of the podresources API, whichever way it is asked.


PodResourcesCall = Literal["list", "get_allocatable_resources", "get"]
"""A call, by the name that ``rte_podresource_api_call_failures_total`` gives it."""

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Bytes of one message."""
CALL_TIMEOUT = 10.0
"""Seconds of one call."""


class PodResourcesError(Exception):
    """A call failed: ``function`` is the call, the message says where and why."""

    def __init__(self, function: PodResourcesCall, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.function = function


class CallMetrics(Protocol):
    """What is counted of calls."""

    def call_failed(self, function: PodResourcesCall) -> None:
        """Once per failed call; a call that is repeated and fails again counts twice."""

    def pods_unnamed(self, count: int) -> None:
        """Pods without name or namespace were in an answer, and passed over."""


class NoCallMetrics:
    """Counts nothing."""

    def call_failed(self, function: PodResourcesCall) -> None:
        pass

    def pods_unnamed(self, count: int) -> None:
        pass


class PodResources(Protocol):
    """The kubelet's answers as facts. Every call raises :class:`PodResourcesError` and nothing else.

    Cell ids are passed on as they come, negative ones and unknown ones too.
    """

    async def until_ready(self) -> None:
        """Returns once there is somebody to ask; waits for it without limit."""

    async def list(self) -> list[ListedPod]:
        """All pods with the resources of their containers."""

    async def allocatable(self) -> Allocatable:
        """What pods may get in all."""

    async def get(self, namespace: str, name: str) -> ListedPod:
        """One pod; picked out of ``list`` where the kubelet does not implement ``Get``."""

    async def close(self) -> None:
        """Lets go of the connection; the next call opens another."""


# -- The kubelet's messages as facts.


def listed_pods(answer: api.ListPodResourcesResponse) -> tuple[list[ListedPod], int]:
    """The pods in the order of the answer, and how many more have no name or no namespace."""
    pods = [_pod(each) for each in answer.pod_resources if each.name and each.namespace]
    return pods, len(answer.pod_resources) - len(pods)


def pod_of_get(answer: api.GetPodResourcesResponse) -> ListedPod | None:
    """None: the answer names no pod."""
    pod = answer.pod_resources
    return _pod(pod) if pod.name and pod.namespace else None


def allocatable_resources(answer: api.AllocatableResourcesResponse) -> Allocatable:
    return Allocatable(cpus=tuple(answer.cpu_ids), memory=_memory(answer.memory), devices=_devices(answer.devices))


def _pod(pod: api.PodResources) -> ListedPod:
    containers = (
        Container(name=each.name, cpus=tuple(each.cpu_ids), memory=_memory(each.memory), devices=_devices(each.devices))
        for each in pod.containers
    )
    return ListedPod(pod.namespace, pod.name, tuple(containers))


def _memory(blocks: Iterable[api.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(each.memory_type, each.size, _zones(each.topology)) for each in blocks)


def _devices(devices: Iterable[api.ContainerDevices]) -> tuple[Devices, ...]:
    return tuple(Devices(each.resource_name, tuple(each.device_ids), _zones(each.topology)) for each in devices)


def _zones(topology: api.TopologyInfo) -> tuple[int, ...]:
    return tuple(node.ID for node in topology.nodes)


# -- Answers of the podresources API as files of a directory: ``fake:///dir``.


RESPONSE_FILES: dict[PodResourcesCall, str] = {
    "list": "list.json",
    "get_allocatable_resources": "get_allocatable_resources.json",
    "get": "get.json",
}

M = TypeVar("M", bound=Message)


class RecordedResponses:
    """Reads the files anew for each call."""

    def __init__(self, address: PodResourcesAddress, *, counting: CallMetrics) -> None:
        self._folder = address.path
        self._counting = counting

    async def until_ready(self) -> None:
        """At once: a file that is missing is a failed call."""

    async def list(self) -> list[ListedPod]:
        pods, unnamed = listed_pods(self._read("list", api.ListPodResourcesResponse()))
        if unnamed:
            self._counting.pods_unnamed(unnamed)
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
        self._counting.call_failed("get")
        raise PodResourcesError("get", f"{self._folder} has no pod {namespace}/{name}")

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _path(self, function: PodResourcesCall) -> Path:
        return self._folder / RESPONSE_FILES[function]

    def _read(self, function: PodResourcesCall, answer: M) -> M:
        path = self._path(function)
        try:
            with path.open("rb") as file:
                text = file.read(MAX_RESPONSE_BYTES + 1)
            if len(text) > MAX_RESPONSE_BYTES:
                raise ValueError(f"more than {MAX_RESPONSE_BYTES >> 20} MiB, the longest answer that is read")
            document = json.loads(text)
            if not isinstance(document, dict):
                raise ParseError("not a JSON object")
            return ParseDict(document, answer, ignore_unknown_fields=True)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        except (ParseError, ValueError, RecursionError) as error:
            problem = f"{path}: {error}"
        self._counting.call_failed(function)
        raise PodResourcesError(function, problem)
