"""How a kubelet gives one container what it needs, once the topology manager has chosen cells for it or for its pod.
Pure.

Two managers may still refuse then, under every policy. The CPU manager with ``full-pcpus-only`` wants as many CPUs of
free cores as the container asks for, whatever the pod's init containers have left. The Static memory manager looks for
other cells where the chosen ones have too little, and refuses if there are none.
"""

from polyarch.numa.scheduling.exact import several
from polyarch.numa.scheduling.exact.checks import WHOLE_CORES
from polyarch.numa.scheduling.exact.demand import STATIC, Unit
from polyarch.numa.scheduling.exact.room import Cells, Room
from polyarch.numa.scheduling.exact.single import Failure
from polyarch.numa.scheduling.facts.amounts import CPU, Amounts, is_memory
from polyarch.numa.scheduling.facts.nodes import NodeFacts, NodeSettings
from polyarch.quantity import UNIT


def allocate(
    unit: Unit, cells: Cells | None, room: Room, node: NodeFacts, *, preferred: bool = True
) -> set[int] | Failure:
    """Place the unit on the cells; the result are those that it then has something of. None as ``cells``: the topology
    manager had no say. ``preferred``: they are as few as can be, and the kubelet insists on that."""
    settings = node.settings
    if settings.cpu_options and not has_whole_cores(unit, room, settings):
        return Failure("smt", (CPU,))
    if preferred and cells is not None and room.place_plainly(unit, cells):
        return set(cells)
    if is_static(settings.cpu_manager) and room.available(room.ids, CPU) < unit.needs.get(CPU, 0):
        return Failure("short", (CPU,))
    memory = cells
    needs = {name: amount for name, amount in unit.needs.items() if is_memory(name)}
    if needs:
        memory = memory_cells(needs, room, cells, preferred=preferred)
        if memory is None and is_static(settings.memory_manager):
            return Failure("short", tuple(needs))
    return room.place(unit, cells or room.ids, memory=memory or cells or room.ids)


def is_static(manager: str | None) -> bool:
    """Whether this manager is known to refuse what it cannot hand out; of other exporters' nodes it is not known."""
    return manager is not None and manager.lower() == STATIC


def has_whole_cores(unit: Unit, room: Room, settings: NodeSettings) -> bool:
    """Whether enough CPUs are free, without those whose core is reserved in part."""
    threads = settings.threads_per_core
    if not threads or settings.cpu_options.get(WHOLE_CORES) != "true":
        return True
    free = 0
    for each in room.cells:
        reserved = each.capacity.get(CPU, 0) - each.allocatable.get(CPU, 0)
        free += max(0, room.idle((each.id,), CPU) - -reserved % (threads * UNIT))
    return unit.needs.get(CPU, 0) <= free


def memory_cells(needs: Amounts, room: Room, cells: Cells | None, *, preferred: bool) -> Cells | None:
    """The cells that a container's memory comes from. None: nowhere."""
    if cells is None:
        return several.smallest(needs, room)
    if all(room.idle(cells, name) >= amount for name, amount in needs.items()):
        return cells if len(cells) == 1 or room.may_span(cells) else None
    # What init containers have left does not count above; it does for the cells that are looked for now.
    wider = several.smallest(needs, room, around=cells)
    if wider is not None and preferred and len(wider) != several.fewest(room.cells, needs):
        return None
    return wider
