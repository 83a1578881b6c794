"""``--numa CELLSxCPUS[,NAME=VALUE…]``: the machine and the kubelet settings of every node of a sandbox."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

import msgspec

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.cpu_manager import packed
from polyarch.sandbox.kubelet_model.machine import (
    MEMORY,
    MOST_PODS,
    Configuration,
    Cpu,
    Device,
    Machine,
    Node,
    SimulatedZone,
    TopologyPolicy,
    TopologyScope,
)

GIBIBYTE = 1024**3
MEMORY_PER_CPU = 4 * GIBIBYTE
RESERVED_MEMORY = GIBIBYTE
MAX_ZONES = 8
"""The kubelet's limit for policies other than none."""
MAX_CPUS = 1024
ITSELF, SAME_SOCKET, FAR = 10, 12, 21
"""Distance of a cell to itself, to others of its socket, and to those of other sockets."""
EXPANSION = 7
"""How much farther a cell without CPUs is than the others of its socket, as memory behind CXL is."""
EXAMPLE = (
    "2x8, or 2x8,policy=restricted,scope=pod,memory=32Gi,reserved=2,threads=2,pages=2Mi:512,devices=example.com/nic:2"
)
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


class NumaLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """The layout as asked for. All cells of a node with CPUs are alike; amounts are those of one of them."""

    zones: int
    cpus: int
    policy: TopologyPolicy = "single-numa-node"
    scope: TopologyScope = "container"
    memory: int = 0
    """Bytes; 0: 4 GiB for each CPU."""
    reserved: int = 1
    """CPUs of the whole node that pods do not get exclusively; 0: the CPU manager's policy is none."""
    threads: int = 1
    """CPUs of a core."""
    pages: tuple[tuple[int, int], ...] = ()
    """Size in bytes and count of huge pages."""
    devices: tuple[tuple[str, int], ...] = ()
    """Resource and count."""
    full_cores_only: bool = False
    prefer_closest: bool = False
    pods: int = 0
    """The most pods of the node; 0: as many as nodes usually take."""
    sockets: int = 0
    """Sockets that share the cells evenly (sub-NUMA clustering); 0: each cell is one."""
    cpuless: tuple[int, ...] = ()
    """Bytes of each further cell, which has memory and no CPUs."""

    @classmethod
    def parse(cls, text: str) -> "NumaLayout":
        """The value of the option. Raises SandboxError."""
        size, *options = text.split(",")
        match = re.fullmatch(r"([1-9][0-9]?)x([1-9][0-9]{0,3})", size)
        if match is None:
            raise SandboxError(f"--numa {text!r}: expected CELLSxCPUS, for example {EXAMPLE}")
        changes: dict[str, Any] = {}
        for option in options:
            name, equals, value = option.partition("=")
            known = _OPTIONS.get(name)
            if known is None or not equals:
                names = ", ".join(_OPTIONS)
                raise SandboxError(
                    f"--numa: {option!r} is not NAME=VALUE with a NAME of {names}; for example {EXAMPLE}"
                )
            try:
                _add(changes, *known(value))
            except ValueError as error:
                raise SandboxError(f"--numa: {option}: {error}") from None
        found = cls(int(match[1]), int(match[2]), **changes)
        found._check(text)
        return found

    def _check(self, text: str) -> None:
        problem = ""
        pages = sum(size * count for size, count in self.pages)
        if self.zones + len(self.cpuless) > MAX_ZONES:
            problem = f"a kubelet aligns pods on at most {MAX_ZONES} cells"
        elif self.zones * self.cpus > MAX_CPUS:
            problem = f"a node has at most {MAX_CPUS} CPUs here"
        elif self.cpus % self.threads:
            problem = f"{self.cpus} CPUs of a cell are not whole cores of {self.threads} threads"
        elif self.sockets and self.zones % self.sockets:
            problem = f"{self.zones} cells cannot be shared evenly by {self.sockets} sockets"
        elif self.reserved >= self.zones * self.cpus:
            problem = f"{self.reserved} reserved CPUs leave none for pods"
        elif pages + RESERVED_MEMORY >= self.memory_of_cell:
            problem = "a cell has too little memory for its huge pages and the reserved 1 GiB"
        elif self.full_cores_only and not self.reserved:
            problem = "full-pcpus-only needs the static CPU manager, so at least one reserved CPU"
        if problem:
            raise SandboxError(f"--numa {text!r}: {problem}")

    @property
    def memory_of_cell(self) -> int:
        return self.memory or self.cpus * MEMORY_PER_CPU

    @property
    def text(self) -> str:
        """As for the option, with the policy and the scope."""
        return f"{self.size},policy={self.policy},scope={self.scope}"

    @property
    def size(self) -> str:
        """``2x8``."""
        return f"{self.zones}x{self.cpus}"


@lru_cache
def node(numa: NumaLayout) -> Node:
    """The machine, and the configuration of its kubelet."""
    machine = _machine(numa)
    reserved = packed(machine, machine.by_id, numa.reserved)
    configuration = Configuration(
        topology_policy=numa.policy,
        topology_scope=numa.scope,
        prefer_closest=numa.prefer_closest,
        cpu_policy="static" if reserved else "none",
        full_cores_only=numa.full_cores_only,
        reserved_cpus=reserved,
        memory_policy="Static",
        reserved_memory={0: {MEMORY: RESERVED_MEMORY}},
        most_pods=numa.pods or MOST_PODS,
    )
    return Node(machine, configuration)


def _machine(numa: NumaLayout) -> Machine:
    """CPUs of a core follow one another, cells too: cell 0 of 2x8 has the CPUs 0-7. Cells without CPUs come last, the
    first of them at the first socket."""
    sockets = numa.sockets or numa.zones
    socket_of = [cell * sockets // numa.zones for cell in range(numa.zones)]
    socket_of += [number % sockets for number in range(len(numa.cpuless))]
    cpus = tuple(
        Cpu(number, core=number // numa.threads, socket=socket_of[number // numa.cpus], cell=number // numa.cpus)
        for number in range(numa.zones * numa.cpus)
    )

    def distance(one: int, other: int) -> int:
        if one == other:
            return ITSELF
        is_near = socket_of[one] == socket_of[other]
        return (SAME_SOCKET if is_near else FAR) + EXPANSION * (max(one, other) >= numa.zones)

    cells = tuple(
        SimulatedZone(
            id=cell,
            memory=numa.memory_of_cell if cell < numa.zones else numa.cpuless[cell - numa.zones],
            pages=dict(numa.pages) if cell < numa.zones else {},
            distances=tuple(distance(cell, other) for other in range(len(socket_of))),
        )
        for cell in range(len(socket_of))
    )
    devices = tuple(
        Device(resource, f"{resource.rpartition('/')[2]}-{cell}-{number}", (cell,))
        for resource, count in numa.devices
        for cell in range(numa.zones)
        for number in range(count)
    )
    return Machine(cells=cells, cpus=cpus, devices=devices)


def _add(changes: dict[str, Any], name: str, value: object) -> None:
    if isinstance(value, list):
        value = (*changes.get(name, ()), *value)
    changes[name] = value


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]*)(Ki|Mi|Gi|Ti)", text)
    if match is None:
        raise ValueError("expected an amount such as 512Mi or 32Gi")
    return int(match[1]) * _UNITS[match[2]]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("expected a number")
    return int(text)


def _threads(text: str) -> int:
    if text not in {"1", "2", "4", "8"}:
        raise ValueError("expected 1, 2, 4 or 8")
    return int(text)


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}")
    return text


def _pods(text: str) -> int:
    if not 1 <= _count(text) <= MOST_PODS:
        raise ValueError(f"expected 1 to {MOST_PODS} pods of a node")
    return int(text)


def _sockets(text: str) -> int:
    if not 1 <= _count(text) <= MAX_ZONES:
        raise ValueError(f"expected 1 to {MAX_ZONES} sockets")
    return int(text)


def _truth(text: str) -> bool:
    return _choice(text, ("true", "false")) == "true"


def _pages(text: str) -> tuple[int, int]:
    size, _, count = text.partition(":")
    if size not in {"64Ki", "1Mi", "2Mi", "16Mi", "512Mi", "1Gi", "2Gi", "16Gi"} or not count:
        raise ValueError("expected SIZE:COUNT with a size of huge pages, for example 2Mi:512")
    return _bytes(size), _count(count)


def _devices(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition(":")
    if re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", name) is None:
        raise ValueError("expected DOMAIN/NAME:COUNT, for example example.com/nic:2")
    if not 1 <= _count(count) <= MAX_CPUS:
        raise ValueError(f"expected 1 to {MAX_CPUS} devices of a cell")
    return name, int(count)


_OPTIONS: Mapping[str, Any] = {
    "policy": lambda text: ("policy", _choice(text, get_args(TopologyPolicy))),
    "scope": lambda text: ("scope", _choice(text, get_args(TopologyScope))),
    "memory": lambda text: ("memory", _bytes(text)),
    "reserved": lambda text: ("reserved", _count(text)),
    "threads": lambda text: ("threads", _threads(text)),
    "sockets": lambda text: ("sockets", _sockets(text)),
    "cpuless": lambda text: ("cpuless", [_bytes(text)]),
    "pages": lambda text: ("pages", [_pages(text)]),
    "devices": lambda text: ("devices", [_devices(text)]),
    "full-pcpus-only": lambda text: ("full_cores_only", _truth(text)),
    "prefer-closest-numa-nodes": lambda text: ("prefer_closest", _truth(text)),
    "pods": lambda text: ("pods", _pods(text)),
}
