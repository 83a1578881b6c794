"""What the kubelet has handed out although no container in its answer holds it (NE-069).

The answer leaves out init containers that have finished, but the kubelet keeps their CPUs and memory until the pod
ends. Its checkpoint files show them: CPUs that the shared pool lacks, memory that is not free. The file about memory is
late in one way: a pod that is over stays in it until another one is admitted, which a scheduler that trusts these zones
may never send. So what such pods had does not count. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from polyarch.numa.decide.facts import ManagerStates, MemoryState
from polyarch.numa.decide.usage import CPU, Amounts, Layout, Place, count_cells, spread

CPU_POLICY: Final = "static"
MEMORY_POLICY: Final = "Static"
"""The policies under which the states say anything about exclusive resources."""


class HandedOut(NamedTuple):
    """What the checkpoint files say."""

    amounts: Amounts
    """Handed out at least, by cell and resource."""
    groups: dict[int, frozenset[int]]
    """By cell, the cells that share its memory, itself among them."""


NOTHING: Final = HandedOut({}, {})


def handed_out(states: ManagerStates, allocatable_cpus: frozenset[int], layout: Layout) -> HandedOut:
    """CPUs that may be allocated and are not in the shared pool, and memory that is not free, by cell.

    A file of another policy, or none, says nothing.
    """
    cpus = states.cpu
    memory = states.memory
    amounts: Amounts = {}
    if cpus is not None and cpus.policy == CPU_POLICY:
        amounts = count_cells((cell, CPU) for cell, _ in layout.cpus(allocatable_cpus - cpus.shared))
    if memory is None or memory.policy != MEMORY_POLICY:
        return HandedOut(amounts, {})
    held = _held_memory(memory, layout)
    return HandedOut(amounts | held, _groups(memory, layout, held))


def hidden(least: Mapping[Place, int], listed: Mapping[Place, int]) -> Amounts:
    """By how much the files exceed the answer. ``listed`` is the usage of all pods in it: what a pattern of
    ``podExclude`` leaves out is not hidden, and does not come back by this way."""
    return {place: amount - listed.get(place, 0) for place, amount in least.items() if amount > listed.get(place, 0)}


def taken_from(allocatable: Mapping[Place, int], kept: HandedOut, listed: Mapping[Place, int]) -> Amounts:
    """The room that each cell has for blocks that span several (NE-063).

    The kubelet knows from which of its cells it took a block, and what the files say is on one cell must not be counted
    on another as well. Files that have less of a group than the answer are late, and say nothing of it.
    """
    room = dict(allocatable)
    for (cell, resource), amount in kept.amounts.items():
        places = [(each, resource) for each in kept.groups.get(cell, ())]
        if places and sum(kept.amounts.get(each, 0) for each in places) >= sum(listed.get(each, 0) for each in places):
            room[cell, resource] = amount
    return room


def _held_memory(state: MemoryState, layout: Layout) -> Amounts:
    """What is not free, without the blocks of pods that are over: the kubelet frees these when somebody wants them."""
    held = {
        (each.cell, each.resource): max(each.allocatable - each.free, 0)
        for each in state.cells
        if each.cell in layout.cells
    }
    ended = spread(state.ended, layout, held)
    return {place: max(amount - ended.get(place, 0), 0) for place, amount in held.items()}


def _groups(state: MemoryState, layout: Layout, held: Mapping[Place, int]) -> dict[int, frozenset[int]]:
    """The groups in which anything is held; one of ended pods alone is over, too."""
    in_use = {cell for (cell, _), amount in held.items() if amount}
    groups: dict[int, frozenset[int]] = {}
    for each in state.cells:
        cells = layout.cells.intersection(each.group)
        if each.cell in cells and len(cells) > 1 and in_use & cells:
            groups[each.cell] = groups.get(each.cell, frozenset()) | cells
    return groups
