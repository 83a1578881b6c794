"""What the kubelet has handed out although no container in its answer holds it (NE-069).

The answer leaves out init containers that have finished, but the kubelet keeps their CPUs and memory until the pod
ends. Its checkpoint files show them: CPUs that the shared pool lacks, memory that is not free. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from polyarch.numa.decide.facts import CpuState, ManagerStates, MemoryState
from polyarch.numa.decide.usage import CPU, Amounts, Layout, Place

CPU_POLICY: Final = "static"
MEMORY_POLICY: Final = "Static"
"""The policies under which the states say anything about exclusive resources."""


class HandedOut(NamedTuple):
    """What the checkpoint files say."""

    amounts: Amounts
    """Handed out at least, by cell and resource."""
    groups: dict[int, frozenset[int]]
    """By cell, the cells that share its memory, itself among them."""
    unusable: tuple[str, ...]
    """``cpu``, ``memory``: files that say nothing, because they could not be read or the policy is another one."""


NOTHING: Final = HandedOut({}, {}, ())


def handed_out(states: ManagerStates, allocatable_cpus: frozenset[int], layout: Layout) -> HandedOut:
    """CPUs that may be allocated and are not in the shared pool, and memory that is not free, by cell."""
    amounts: Amounts = {}
    groups: dict[int, frozenset[int]] = {}
    unusable = []
    if states.cpu is not None and states.cpu.policy == CPU_POLICY:
        amounts |= _cpus(states.cpu, allocatable_cpus, layout)
    else:
        unusable.append("cpu")
    if states.memory is not None and states.memory.policy == MEMORY_POLICY:
        amounts |= _memory(states.memory, layout)
        groups = _groups(states.memory, layout)
    else:
        unusable.append("memory")
    return HandedOut(amounts, groups, tuple(unusable))


def hidden(least: Mapping[Place, int], listed: Mapping[Place, int]) -> Amounts:
    """By how much the files exceed the answer. ``listed`` is the usage of all pods in it: what a pattern of
    ``podExclude`` leaves out is not hidden, and does not come back by this way."""
    return {place: amount - listed.get(place, 0) for place, amount in least.items() if amount > listed.get(place, 0)}


def _cpus(state: CpuState, allocatable: frozenset[int], layout: Layout) -> Amounts:
    amounts: Amounts = {}
    for cell, _ in layout.cpus(allocatable - state.shared):
        amounts[cell, CPU] = amounts.get((cell, CPU), 0) + 1
    return amounts


def _memory(state: MemoryState, layout: Layout) -> Amounts:
    return {
        (each.cell, each.resource): max(each.allocatable - each.free, 0)
        for each in state.cells
        if each.cell in layout.cells
    }


def _groups(state: MemoryState, layout: Layout) -> dict[int, frozenset[int]]:
    groups: dict[int, frozenset[int]] = {}
    for each in state.cells:
        cells = layout.cells.intersection(each.group)
        if each.cell in cells and len(cells) > 1:
            groups[each.cell] = groups.get(each.cell, frozenset()) | cells
    return groups
