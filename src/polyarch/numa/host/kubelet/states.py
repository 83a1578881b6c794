"""The checkpoints of the kubelet's CPU and memory managers: ``cpu_manager_state`` and ``memory_manager_state``
(NE-069).

They show what podresources does not: what finished init containers still hold. They are the kubelet's own files, whose
format may change with its version, so whatever is not as expected means: not known. Nothing is ever refused because of
them. The kubelet renames new files over old ones, so no half-written one is seen.

Format: k8s.io/kubernetes ``pkg/kubelet/cm/cpumanager/state`` and ``pkg/kubelet/cm/memorymanager/state``.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from polyarch.numa.decide import cpulists
from polyarch.numa.decide.facts import CellMemoryState, CpuState, ManagerStates, MemoryState
from polyarch.numa.host.machine.layout import Count
from polyarch.numa.host.tree import Tree

CPU_STATE: Final = "cpu_manager_state"
MEMORY_STATE: Final = "memory_manager_state"

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


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[int, _MemoryCell] | None = None
    """By cell; null with the policy None."""


class StateFiles:
    """Both files, scan after scan: each is decoded again when its content changes."""

    def __init__(self, tree: Tree, directory: str, *, count: Count = lambda _: None) -> None:
        """``directory``: the kubelet's, within the tree. ``count`` gets the name of a file from which nothing can be
        learned, once until its content changes.
        """
        self._cpu = _StateFile(tree, f"{directory}/{CPU_STATE}", lambda: count(CPU_STATE))
        self._memory = _StateFile(tree, f"{directory}/{MEMORY_STATE}", lambda: count(MEMORY_STATE))
        self._states = ManagerStates()

    def read(self) -> ManagerStates:
        """What they say now."""
        cpu, memory = self._cpu.changed(), self._memory.changed()
        if cpu is not None:
            self._states = msgspec.structs.replace(self._states, cpu=self._cpu.judged(_cpu_state(cpu), "static"))
        if memory is not None:
            found = self._memory.judged(_memory_state(memory), "Static")
            self._states = msgspec.structs.replace(self._states, memory=found)
        return self._states


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


def _memory_state(content: bytes) -> MemoryState | None:
    try:
        found = msgspec.json.decode(content, type=_MemoryFile)
    except ValueError:
        return None
    cells = (
        CellMemoryState(cell, resource, room.allocatable, room.free, tuple(sorted(set(state.cells))))
        for cell, state in sorted((found.machine_state or {}).items())
        for resource, room in sorted(state.memory_map.items())
    )
    return MemoryState(found.policy_name, tuple(cells))
