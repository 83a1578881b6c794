"""Network and mount namespaces of real nodes: one process keeps each, and nothing of them is outside.

The gateway is a network namespace with a bridge. A node is a network, mount and UTS namespace with one interface, the
other end of which is a port of that bridge. Each refuses what it has no route for, before it has any interface.
"""

import asyncio
import ctypes
import os
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from polyarch.sandbox import processes
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.network import GATEWAY, SERVICE_RANGE
from polyarch.sandbox.processes import is_running
from polyarch.sandbox.state import Folder
from polyarch.sandbox.tasks import until

GATEWAY_PROCESS: Final = "gateway"
BRIDGE: Final = "nodes"
RUN_SECONDS: Final = 60.0
_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def entering(pid: int, arguments: Sequence[str], *, network_only: bool = False, user: bool = False) -> tuple[str, ...]:
    """The command line that runs a program in the namespaces of the process ``pid``; with ``user``, also in its user
    namespace."""
    which = ("-n",) if network_only else ("-m", "-u", "-n", *(["-U"] if user else []))
    return ("/usr/bin/env", "nsenter", "-t", str(pid), *which, "--", *arguments)


def keeping(*flags: str) -> tuple[str, ...]:
    """The command line of a process that keeps new namespaces."""
    return ("/usr/bin/env", "unshare", *flags, "--", "sleep", "infinity")


KEEP_GATEWAY: Final = keeping("--net")
KEEP_NODE: Final = keeping("--net", "--uts", "--mount", "--propagation", "private")
KEEP_EMULATED_NODE: Final = keeping("--user", "--net", "--uts", "--mount", "--propagation", "private")
"""The other namespaces belong to the user namespace."""


async def entered(pid: int, *, seconds: float = 10.0) -> None:
    """Wait until the process has its own network namespace; it starts in ours."""

    async def is_there() -> bool:
        try:
            return _keeps(pid)
        except FileNotFoundError as error:
            raise SandboxError(f"the process {pid} that keeps a namespace has ended") from error

    if not await until(is_there, seconds=seconds, every=0.01):
        raise SandboxError(f"the process {pid} has no network namespace of its own after {seconds:.0f} s")


def _keeps(pid: int) -> bool:
    """Whether it has become the program that only keeps namespaces."""
    is_sleeping = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "sleep"
    return is_sleeping and Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


async def run(arguments: Sequence[str], *, given: str = "") -> str:
    """Run a program to its end; its output. SandboxError with what it said, if it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise SandboxError(f"{arguments[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(RUN_SECONDS):
            out, problem = await process.communicate(given.encode())
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SandboxError(f"{' '.join(arguments)}: no end after {RUN_SECONDS:.0f} s") from error
    if process.returncode:
        said = problem.decode(errors="replace").strip() or f"ended with {process.returncode}"
        raise SandboxError(f"{' '.join(arguments)}: {said}")
    return out.decode(errors="replace")


async def configure(pid: int, lines: Sequence[str]) -> None:
    """Give the lines to ``ip -batch`` in the network namespace of this process."""
    await run(entering(pid, ("ip", "-batch", "-"), network_only=True), given="".join(f"{line}\n" for line in lines))


def gateway_of(folder: Folder) -> int:
    """The pid that keeps the gateway's namespace. SandboxError if there is none."""
    known = processes.load(folder.records).get(GATEWAY_PROCESS)
    if known is None or not is_running(known):
        raise SandboxError("the gateway of the real nodes does not run; `polyarch up` starts it")
    return known.pid


def gateway_lines(pod_network: int) -> list[str]:
    """The network of a new gateway."""
    return [
        "route add unreachable default metric 4278198272",
        f"route add unreachable {SERVICE_RANGE}",
        f"route add unreachable 10.{pod_network}.0.0/16",
        "link set lo up",
        f"link add {BRIDGE} address {ethernet(GATEWAY)} type bridge",
        f"addr add {GATEWAY}/16 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]


def ethernet(address: str) -> str:
    """The hardware address of who has this address, always the same: what others remember of it stays true when a node
    boots. A bridge without one takes that of a port, and another one as ports come and go."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *IPv4Address(address).packed))


def cable_lines(keeper: int, address: str) -> list[str]:
    """In the gateway: plug in a new node, whose namespace this process keeps."""
    cable = cable_of(keeper)
    return [
        f"link add {cable} type veth peer name eth0 address {ethernet(address)} netns {keeper}",
        f"link set {cable} master {BRIDGE} up",
    ]


def cable_of(keeper: int) -> str:
    """The gateway's end of it."""
    return f"node{keeper}"


def node_lines(address: str) -> list[str]:
    """The network of a node whose interface ``eth0`` is there."""
    return [
        "route add unreachable default metric 4278198272",
        "link set lo up",
        f"addr add {address}/16 dev eth0",
        "link set eth0 up",
    ]


def route_to_pods(subnet: str, node: str) -> str:
    """Pods of another node are behind that node."""
    device = f"dev {BRIDGE}" if node == GATEWAY else ""
    return f"route replace {subnet} via {node} {device}".rstrip()


def listening(pid: int, address: str, port: int) -> socket.socket:
    """A socket that listens in the network namespace of the process. OSError if there is none."""
    with _Elsewhere(pid):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.listen(socket.SOMAXCONN)
    made.setblocking(False)
    return made


async def connected(pid: int, address: str, port: int) -> socket.socket:
    """A socket that is connected in the network namespace of the process. OSError if nobody answers."""
    with _Elsewhere(pid):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


class _Elsewhere:
    """This thread in another network namespace, for the moment in which a socket is made: a socket stays in the
    namespace that it was made in."""

    def __init__(self, pid: int) -> None:
        self._there = f"/proc/{pid}/ns/net"

    def __enter__(self) -> None:
        self._here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(self._there, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set(there)
        finally:
            os.close(there)

    def __exit__(self, *_: object) -> None:
        try:
            _set(self._here)
        finally:
            os.close(self._here)


def _set(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
