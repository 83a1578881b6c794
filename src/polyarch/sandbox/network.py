"""The sandbox's network: ranges of addresses, listeners of this machine, paths of unix sockets.

Services, nodes and pods have addresses of private ranges that are never dialled. A pod that is run listens on loopback
at the address with the same three last numbers: pod 10.244.0.7 on 127.244.0.7. So many pods can use the same port of
one machine. All sandboxes of a machine share its loopback range, therefore each has a pod network of its own: the
second number of its pods' addresses.
"""

import ipaddress
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from polyarch.sandbox.errors import SandboxError

SERVICE_RANGE = "10.96.0.0/16"
NODE_NETWORK = 250
GATEWAY = f"10.{NODE_NETWORK}.255.254"
"""Where real nodes find the API server and the registry."""
GATEWAY_API_PORT, GATEWAY_REGISTRY_PORT = 6443, 5000
POD_NETWORKS = range(100, 250)
DEFAULT_POD_NETWORK = 244
KUBELET_PORT = 10_250
KUBERNETES_SERVICE = "10.96.0.1"
"""The ClusterIP of Service ``kubernetes``: the first of the range."""
PER_OCTET = 250

_SERVICES = ipaddress.IPv4Network(SERVICE_RANGE)


def node_address(number: int) -> str:
    """The InternalIP of the node with this number, counted from 0."""
    return f"10.{NODE_NETWORK}.{number // PER_OCTET}.{number % PER_OCTET + 1}"


def pod_address(number: int, *, network: int = DEFAULT_POD_NETWORK) -> str:
    """``status.podIP`` number ``number``; after 62 500 addresses they repeat."""
    return f"10.{network}.{number // PER_OCTET % PER_OCTET}.{number % PER_OCTET + 1}"


def loopback_of(pod: str) -> str:
    """Where the process of the pod with this address listens; ValueError if it is not the address of a pod."""
    if not is_pod(pod):
        raise ValueError(f"{pod} is not the address of a pod of a sandbox")
    return "127." + pod.partition(".")[2]


def loopback_on_node(node: str, *, network: int) -> str:
    """Where the process of a pod on the host's network listens: beside the loopback addresses of the pod network."""
    third, _, last = node.partition(".")[2].partition(".")[2].partition(".")
    return f"127.{network}.{PER_OCTET + int(third) % 6}.{last}"


def is_pod(address: str, *, network: int | None = None) -> bool:
    """Whether it is a pod's address: in this pod network, or in any."""
    return _second(address) in (POD_NETWORKS if network is None else (network,))


def is_node(address: str) -> bool:
    return _second(address) == NODE_NETWORK


def is_service(address: str) -> bool:
    """Whether it is in the range of ClusterIPs."""
    parsed = _parse(address)
    return parsed is not None and parsed in _SERVICES


def _second(address: str) -> int | None:
    """The second number of an address 10.x.y.z; None for every other text."""
    parsed = _parse(address)
    return parsed.packed[1] if parsed is not None and parsed.packed[0] == 10 else None


def _parse(text: str) -> ipaddress.IPv4Address | None:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError:
        return None


# -- listeners, from the kernel's table (``/proc/net/tcp``) ------------------------------------------------------------
# A connection to 127.244.0.7:22 also reaches a server that listens on 0.0.0.0:22. So before the sandbox connects to a
# pod, it asks here whether a process listens on exactly that address, which only the pod's own process does.


TABLE = Path("/proc/net/tcp")
LISTEN, REQUESTED = "0A", "03"
"""States of a socket; kernels before 4.4 list connections that are being made (SYN_RECV) among the listeners."""


def listeners(table: Iterable[str]) -> Iterator[tuple[str, int]]:
    """(address, port) of every listening socket in the lines of ``/proc/net/tcp``.

    An address is printed there as one number in the machine's byte order: ``0700F47F`` is 127.244.0.7 on amd64. The
    kernel lists listeners first, and writes the table while it is read: what comes after them, thousands of connections
    on a busy machine, is left unread.
    """
    for line in islice(table, 1, None):
        fields = line.split()
        if fields[3] == LISTEN:
            address, _, port = fields[1].partition(":")
            yield socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder)), int(port, 16)
        elif fields[3] != REQUESTED:
            return


def is_listening(address: str, port: int) -> bool:
    """Whether a process listens on exactly this address, not only on all addresses."""
    with TABLE.open(encoding="ascii") as table:
        return (address, port) in listeners(table)


def free_pod_network(taken: Collection[int]) -> int:
    """A pod network that no other sandbox has recorded and in which nobody listens.

    Sandboxes of other users are seen only by their listeners, so the choice is random, like that of ports.
    """
    with TABLE.open(encoding="ascii") as table:
        used = {int(address.split(".")[1]) for address, _ in listeners(table)}
    free = [network for network in POD_NETWORKS if network not in taken and network not in used]
    if not free:
        raise SandboxError(f"all {len(POD_NETWORKS)} pod networks of this machine are in use; stop a sandbox")
    return random.SystemRandom().choice(free)


# -- unix sockets, in ``sockets/`` of the folder -----------------------------------------------------------------------
# The kernel limits the path of a unix socket to 107 bytes. Where the sandbox's folder is deeper, ``sockets`` is a
# symbolic link to a private folder of the machine's temporary folder. All processes of the sandbox find it through it.


MAXIMUM_PATH_BYTES = 107
LONGEST_NAME = "kubelet.sock"


def prepare_sockets(root: Path) -> None:
    """Create the folder of the sockets; again, if the machine has emptied its temporary folder."""
    folder = root / "sockets"
    if _fits(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not folder.is_dir():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.unlink(missing_ok=True)
        short = Path(tempfile.mkdtemp(prefix="polyarch-"))
        if not _fits(short):
            short.rmdir()
            short = Path(tempfile.mkdtemp(prefix="polyarch-", dir="/tmp"))
        folder.symlink_to(short)


def remove_sockets(root: Path) -> None:
    """Delete what :func:`prepare` created outside of the sandbox's folder."""
    folder = root / "sockets"
    if folder.is_symlink():
        shutil.rmtree(folder.readlink(), ignore_errors=True)


def egress_socket(root: Path) -> str:
    """Where the API server asks for connections into the cluster."""
    return str((root / "sockets").resolve() / "egress.sock")


def kubelet_socket(root: Path) -> str:
    """Where the kubelet endpoint of all nodes listens: TLS, as on port 10250 of a node."""
    return str((root / "sockets").resolve() / LONGEST_NAME)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / LONGEST_NAME)) <= MAXIMUM_PATH_BYTES
