"""The checkpoints of the kubelet's CPU and memory managers: ``cpu_manager_state`` and ``memory_manager_state``
(NE-069).

They show what podresources does not: what finished init containers still hold. They are the kubelet's own files, whose
format may change with its version, so whatever is not as expected means: not known. Nothing is ever refused because of
them. The kubelet renames new files over old ones, so no half-written one is seen.

Memory of a pod that is over stays in the file until the kubelet admits another pod. The pod's directory is gone before
that, so it tells which blocks are such leftovers; it goes without a change of the file, and is looked for every time.

Format: k8s.io/kubernetes ``pkg/kubelet/cm/cpumanager/state`` and ``pkg/kubelet/cm/memorymanager/state``.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from polyarch.numa.decide import cpulists
from polyarch.numa.decide.facts import CellMemoryState, CpuState, ManagerStates, MemoryBlock, MemoryState
from polyarch.numa.host.machine.layout import Count
from polyarch.numa.host.tree import Tree

CPU_STATE: Final = "cpu_manager_state"
MEMORY_STATE: Final = "memory_manager_state"

Blocks = dict[str, tuple[MemoryBlock, ...]]
"""By uid of the pod."""

_State = TypeVar("_State", CpuState, MemoryState)


class _CpuFile(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str


class _Room(msgspec.Struct):
    """One resource of one cell; bytes."""

    allocatable: int
    free: int


class _MemoryCell(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _Room]
    cells: list[int]


class _Block(msgspec.Struct, rename="camel"):
    """What one container was given; bytes."""

    type: str
    size: int
    numa_affinity: list[int]


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[int, _MemoryCell] | None = None
    """By cell; null with the policy None."""
    entries: dict[str, dict[str, list[_Block]]] | None = None
    """By uid of the pod and name of the container."""


class StateFiles:
    """Both files, scan after scan: each is decoded again when its content changes."""

    def __init__(self, tree: Tree, directory: str, *, count: Count = lambda _: None) -> None:
        """``directory``: the kubelet's, within the tree. ``count`` gets the name of a file from which nothing can be
        learned, once until its content changes.
        """
        self._cpu = _StateFile(tree, f"{directory}/{CPU_STATE}", lambda: count(CPU_STATE))
        self._memory = _StateFile(tree, f"{directory}/{MEMORY_STATE}", lambda: count(MEMORY_STATE))
        self._tree = tree
        self._pods = f"{directory}/pods"
        self._states = ManagerStates()
        self._blocks: Blocks = {}

    def read(self) -> ManagerStates:
        """What they say now."""
        cpu, memory = self._cpu.changed(), self._memory.changed()
        if cpu is not None:
            self._states = msgspec.structs.replace(self._states, cpu=self._cpu.judged(_cpu_state(cpu), "static"))
        if memory is not None:
            found, self._blocks = _memory_state(memory)
            self._states = msgspec.structs.replace(self._states, memory=self._memory.judged(found, "Static"))
        return self._without_leftovers()

    def _without_leftovers(self) -> ManagerStates:
        state = self._states.memory
        if state is None or not self._blocks:
            return self._states
        try:
            there = set(self._tree.names(self._pods))
        except OSError:
            return self._states
        ended = tuple(block for pod, blocks in self._blocks.items() if pod not in there for block in blocks)
        return msgspec.structs.replace(self._states, memory=msgspec.structs.replace(state, ended=ended))


def read_states(tree: Tree, directory: str, count: Count = lambda _: None) -> ManagerStates:
    """The states, read once."""
    return StateFiles(tree, directory, count=count).read()


class _StateFile:
    """One of them, and its content when it was last looked at."""

    def __init__(self, tree: Tree, path: str, count: Callable[[], None]) -> None:
        self._tree = tree
        self._path = path
        self._count = count
        self._content: bytes | None = None

    def changed(self) -> bytes | None:
        """The content if it is another one than before; one that cannot be read is empty."""
        try:
            content = self._tree.bytes(self._path)
        except OSError:
            content = b""
        if content == self._content:
            return None
        self._content = content
        return content

    def judged(self, state: _State | None, policy: str) -> _State | None:
        """The state, counted if nothing follows from it."""
        if state is None or state.policy != policy:
            self._count()
        return state


def _cpu_state(content: bytes) -> CpuState | None:
    try:
        found = msgspec.json.decode(content, type=_CpuFile)
        return CpuState(found.policy_name, cpulists.parse(found.default_cpu_set))
    except ValueError:
        return None


def _memory_state(content: bytes) -> tuple[MemoryState | None, Blocks]:
    try:
        found = msgspec.json.decode(content, type=_MemoryFile)
    except ValueError:
        return None, {}
    cells = (
        CellMemoryState(cell, resource, room.allocatable, room.free, tuple(sorted(set(state.cells))))
        for cell, state in sorted((found.machine_state or {}).items())
        for resource, room in sorted(state.memory_map.items())
    )
    blocks = {
        pod: tuple(
            MemoryBlock(each.type, each.size, tuple(sorted(set(each.numa_affinity))))
            for held in containers.values()
            for each in held
        )
        for pod, containers in sorted((found.entries or {}).items())
    }
    return MemoryState(found.policy_name, tuple(cells)), blocks
