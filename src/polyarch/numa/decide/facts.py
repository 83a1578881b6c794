"""What an exporter knows of its machine, before anything is decided: cells, kubelet settings, what is allocatable, what
is used.

``host`` gathers these values, the other modules of this room turn them into zones. A cell is a NUMA node of the
machine; its id is the kernel's number, and ids may have holes. Pure.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One online cell as sysfs shows it (NE-031 – NE-035)."""

    id: int
    cpus: frozenset[int] = frozenset()
    """Online CPUs; none for a cell of memory alone."""
    memory: int | None = None
    """Bytes; None: could not be read."""
    pages: Mapping[int, int] | None = None
    """Count of huge pages by their size in bytes; None: could not be read."""
    costs: tuple[tuple[int, int], ...] = ()
    """Distance by id of the target, ascending; empty: could not be read."""
    socket: int | None = None
    """The package id that all CPUs of the cell agree on."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All online cells, ascending by id."""

    cells: tuple[Cell, ...]
    threads_per_core: int = 1
    """The largest SMT width seen."""


class MemoryBlock(msgspec.Struct, frozen=True):
    """``ContainerMemory`` of podresources: memory, or huge pages of one size, of one or of several cells together."""

    resource: str
    """``memory`` or ``hugepages-<size>``."""
    size: int
    """Bytes."""
    cells: tuple[int, ...] = ()


class Devices(msgspec.Struct, frozen=True):
    """``ContainerDevices`` of podresources: devices of one resource with the same cells."""

    resource: str
    ids: tuple[str, ...]
    cells: tuple[int, ...] = ()
    """Empty: not bound to a cell. A negative id means the same."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What one container holds exclusively."""

    name: str
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[Devices, ...] = ()


class ListedPod(msgspec.Struct, frozen=True):
    """One pod of the kubelet's ``List``."""

    namespace: str
    name: str
    containers: tuple[Container, ...] = ()


class Allocatable(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's ``GetAllocatableResources``: what pods may get in all."""

    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[Devices, ...] = ()


class CpuState(msgspec.Struct, frozen=True):
    """``cpu_manager_state`` of the kubelet (NE-069)."""

    policy: str
    shared: frozenset[int]
    """``defaultCpuSet``."""


class CellMemoryState(msgspec.Struct, frozen=True):
    """What ``memory_manager_state`` says of one cell and resource."""

    cell: int
    resource: str
    allocatable: int
    """Bytes."""
    free: int
    group: tuple[int, ...] = ()
    """``cells``: the cells that a block of memory here spans, ascending; this cell alone if none does."""


class MemoryState(msgspec.Struct, frozen=True):
    """``memory_manager_state`` of the kubelet (NE-069)."""

    policy: str
    cells: tuple[CellMemoryState, ...] = ()
    ended: tuple[MemoryBlock, ...] = ()
    """Blocks of pods that are over. The kubelet frees them when it next admits a pod, so ``cells`` still has them."""


class ManagerStates(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's checkpoint files; None: absent, unreadable or of an unknown format."""

    cpu: CpuState | None = None
    memory: MemoryState | None = None


class KubeletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the kubelet that decide how it places containers (NE-100 – NE-103)."""

    policy: TopologyPolicy = "none"
    scope: TopologyScope = "container"
    max_numa_nodes: int | None = None
    """``max-allowable-numa-nodes``; None: not set."""
    topology_options: tuple[tuple[str, str], ...] = ()
    """``topologyManagerPolicyOptions``, sorted."""
    cpu_manager_policy: str = "none"
    cpu_manager_options: tuple[tuple[str, str], ...] = ()
    memory_manager_policy: str = "None"
    pod_level_managers: bool = False
    """The feature gate ``PodLevelResourceManagers``."""
    reserves_cpus: bool | None = None
    """``reservedSystemCPUs`` or a CPU reservation is set; None: unknown, as the settings came from flags (NO-091)."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a scan has gathered, before anything is decided (NE-060)."""

    machine: Machine
    allocatable: Allocatable
    pods: tuple[ListedPod, ...] = ()
    """As the kubelet listed them, nothing left out yet."""
    kubelet: KubeletSettings = KubeletSettings()
    states: ManagerStates = ManagerStates()
    terminal: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of the pods of this node in phase Succeeded or Failed (NE-068)."""
    node_uid: str = ""
    """Of the live Node; empty: not known, or there is none (NE-018)."""
