"""Who listens on this machine's IPv4 addresses, from the kernel's table (``/proc/net/tcp``).

A connection to 127.244.0.7:22 also reaches a server that listens on 0.0.0.0:22. So before the sandbox connects to a
pod, it asks here whether a process listens on exactly that address, which only the pod's own process does.
"""

import random
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.network.addresses import POD_NETWORKS

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
