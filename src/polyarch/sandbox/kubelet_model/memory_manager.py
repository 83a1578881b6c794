"""The Static memory manager: memory and huge pages of cells for Guaranteed pods, and groups of cells.

A block that spans several cells makes them a group: until it is gone, only blocks of exactly this group or none may be
there. Blocks of one cell alone keep that cell out of groups."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from polyarch.sandbox.kubelet_model import requests
from polyarch.sandbox.kubelet_model.machine import MEMORY, Node, mask, masks, members, page_resource
from polyarch.sandbox.kubelet_model.requests import Container, Pod, PodRejected
from polyarch.sandbox.kubelet_model.topology_manager import Hints, TopologyHint, narrower

Amounts = Mapping[str, int]


class MemoryTable(msgspec.Struct, frozen=True):
    """One resource of a cell, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    """In use by containers."""
    free: int


class CellMemory(msgspec.Struct, frozen=True):
    """The memory of a cell."""

    tables: Mapping[str, MemoryTable]
    group: tuple[int, ...]
    """The cells that its blocks span; the cell alone if none does."""
    assignments: int = 0
    """How many blocks touch it, by the kubelet's own count."""

    def free(self, resource: str) -> int:
        table = self.tables.get(resource)
        return table.free if table is not None else 0

    def allocatable(self, resource: str) -> int:
        table = self.tables.get(resource)
        return table.allocatable if table is not None else 0

    def reserved(self, resource: str) -> int:
        table = self.tables.get(resource)
        return table.reserved if table is not None else 0


class Block(msgspec.Struct, frozen=True):
    """Memory or huge pages that a container holds, out of these cells together."""

    cells: tuple[int, ...]
    resource: str
    size: int


class MemoryManagerState(msgspec.Struct, frozen=True):
    """What the memory manager remembers."""

    cells: Mapping[int, CellMemory]
    held: Mapping[str, Mapping[str, tuple[Block, ...]]] = {}
    """Blocks by pod uid and container."""
    reusable: tuple[str, Mapping[int, Amounts]] = ("", {})
    """The pod that was admitted last, and what its init containers leave to its other ones, by set of cells."""

    def reusable_by(self, pod: Pod, cells: int, resource: str) -> int:
        return self.reusable[1].get(cells, {}).get(resource, 0) if self.reusable[0] == pod.uid else 0


def at_first(node: Node) -> MemoryManagerState:
    """Nothing is held."""
    cells: dict[int, CellMemory] = {}
    for cell in node.machine.cells:
        reserved = node.configuration.reserved_memory.get(cell.id, {})
        sizes = {page_resource(size): size * count for size, count in cell.pages.items()}
        tables = {name: _table(size, reserved.get(name, 0), 0) for name, size in sizes.items()}
        tables[MEMORY] = _table(cell.memory, reserved.get(MEMORY, 0), sum(sizes.values()))
        cells[cell.id] = CellMemory(tables, (cell.id,))
    return MemoryManagerState(cells)


def _table(total: int, reserved: int, pages: int) -> MemoryTable:
    allocatable = total - reserved - pages
    return MemoryTable(total, reserved, allocatable, 0, allocatable)


def allocatable(node: Node) -> tuple[Block, ...]:
    """What containers may hold, per cell and resource."""
    if node.configuration.memory_policy == "None":
        return ()
    return tuple(
        Block((cell,), name, table.allocatable)
        for cell, there in at_first(node).cells.items()
        for name, table in sorted(there.tables.items())
        if table.allocatable
    )


def _has_part(node: Node, pod: Pod) -> bool:
    return node.configuration.memory_policy == "Static" and pod.is_guaranteed and pod.pod_requests is None


def hints(node: Node, state: MemoryManagerState, pod: Pod, container: Container) -> Hints:
    """For a container."""
    if not _has_part(node, pod):
        return {}
    wanted = requests.container_memory(container)
    held = state.held.get(pod.uid, {}).get(container.name)
    return _hints(state, pod, wanted) if held is None else _hints_of_held(held, wanted)


def pod_hints(node: Node, state: MemoryManagerState, pod: Pod) -> Hints:
    """For a pod as a whole."""
    wanted = requests.pod_memory(pod)
    if not _has_part(node, pod) or not wanted:
        return {}
    for container in pod.all:
        held = state.held.get(pod.uid, {}).get(container.name)
        if held is not None:
            return _hints_of_held(held, wanted)
    return _hints(state, pod, wanted)


def _hints_of_held(held: Sequence[Block], wanted: Amounts) -> Hints:
    """The cells that are held already; no preference if what is held is not what is requested."""
    if {block.resource: block.size for block in held} != wanted or len(held) != len(wanted):
        return {}
    return {block.resource: [TopologyHint(mask(block.cells), preferred=True)] for block in held}


def _hints(state: MemoryManagerState, pod: Pod, wanted: Amounts) -> dict[str, list[TopologyHint]]:
    """All sets of cells with enough memory. If there is none, the answer is empty: the kubelet then has no preference,
    and refuses the pod only when it allocates."""
    fewest = len(state.cells)
    found: list[int] = []
    for cells in masks(sorted(state.cells)):
        of_mask = [state.cells[each] for each in members(cells)]
        if any(sum(cell.allocatable(name) for cell in of_mask) < size for name, size in wanted.items()):
            continue
        fewest = min(fewest, cells.bit_count())
        if _may_span(state, cells) and all(
            sum(cell.free(name) for cell in of_mask) + state.reusable_by(pod, cells, name) >= size
            for name, size in wanted.items()
        ):
            found.append(cells)
    hints = [TopologyHint(cells, cells.bit_count() == fewest) for cells in found]
    return dict.fromkeys(wanted, hints) if hints else {}


def _may_span(state: MemoryManagerState, cells: int) -> bool:
    """Whether a new block may lie in these cells, for the groups there are."""
    ids = members(cells)
    if len(ids) == 1:
        return len(state.cells[ids[0]].group) == 1
    return all(_joins(state.cells[each], ids) for each in ids)


def _joins(cell: CellMemory, group: tuple[int, ...]) -> bool:
    return not cell.assignments or (len(cell.group) > 1 and tuple(sorted(cell.group)) == group)


def allocate(
    node: Node, state: MemoryManagerState, pod: Pod, container: Container, best: TopologyHint
) -> MemoryManagerState:
    """Give the container its memory, from the cells of the topology manager's hint. Raises PodRejected."""
    if not _has_part(node, pod):
        return state
    held = state.held.get(pod.uid, {}).get(container.name)
    if held is not None:
        return _with_reuse(state, pod, container, held)
    wanted = requests.container_memory(container)
    cells = _cells_for(state, pod, wanted, best)
    blocks = tuple(Block(members(cells), name, size) for name, size in wanted.items())
    tables = dict(state.cells)
    for block in blocks:
        # What an init container of this pod leaves is counted already.
        more = max(0, block.size - state.reusable_by(pod, cells, block.resource))
        _take(tables, block, more)
    by_container = {**state.held.get(pod.uid, {}), container.name: blocks}
    by_container |= _shrunken_init(pod, container, by_container)
    state = msgspec.structs.replace(state, cells=tables, held={**state.held, pod.uid: by_container})
    return _with_reuse(state, pod, container, blocks)


def _cells_for(state: MemoryManagerState, pod: Pod, wanted: Amounts, best: TopologyHint) -> int:
    cells, preferred = best.cells, best.preferred
    if cells is None:
        found = _hints(state, pod, wanted)
        if not found:
            raise _problem("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
        default = _best(found.get(MEMORY, []))
        if preferred and not default.preferred:
            raise _problem("failed to find the default preferred hint")
        cells, preferred = default.cells or 0, default.preferred
    if any(sum(state.cells[each].free(name) for each in members(cells)) < size for name, size in wanted.items()):
        wider = [hint for hint in _hints(state, pod, wanted).get(MEMORY, []) if cells & ~(hint.cells or 0) == 0]
        if not wider:
            raise _problem("failed to find NUMA nodes to extend the current topology hint")
        extended = _best(wider)
        if preferred and not extended.preferred:
            raise _problem("failed to find the extended preferred hint")
        cells = extended.cells or 0
    ids = members(cells)
    if len(ids) > 1 and not all(_joins(state.cells[each], ids) for each in ids):
        raise _problem("preferred hint violates NUMA node allocation")
    return cells


def _problem(text: str) -> PodRejected:
    return PodRejected.unexpected(f"[memorymanager] {text}")


def _best(hints: Sequence[TopologyHint]) -> TopologyHint:
    """Preferred ones first, then the narrowest."""
    best = hints[0]
    for hint in hints[1:]:
        is_same = hint.preferred == best.preferred
        if (hint.preferred and not is_same) or (is_same and narrower(hint.cells or 0, best.cells or 0)):
            best = hint
    return best


def _take(cells: dict[int, CellMemory], block: Block, size: int) -> None:
    """Count the block in all its cells, and its size from the first ones that have some left."""
    left = size
    for each in block.cells:
        cell = cells[each]
        taken = min(left, cell.free(block.resource))
        left -= taken
        cells[each] = _changed(cell, block.resource, taken, cell.assignments + 1, block.cells)


def _changed(cell: CellMemory, resource: str, taken: int, assignments: int, group: tuple[int, ...]) -> CellMemory:
    tables = dict(cell.tables)
    if (table := tables.get(resource)) is not None:
        tables[resource] = msgspec.structs.replace(table, reserved=table.reserved + taken, free=table.free - taken)
    return CellMemory(tables, group, assignments)


def _with_reuse(
    state: MemoryManagerState, pod: Pod, container: Container, blocks: Sequence[Block]
) -> MemoryManagerState:
    before = state.reusable[1] if state.reusable[0] == pod.uid else {}
    left = {cells: dict(amounts) for cells, amounts in before.items()}
    for block in blocks:
        amounts = left.setdefault(mask(block.cells), {})
        now = amounts.get(block.resource, 0)
        is_init = pod.is_ordinary_init(container)
        amounts[block.resource] = max(now, block.size) if is_init else max(0, now - block.size)
    return msgspec.structs.replace(state, reusable=(pod.uid, left))


def _shrunken_init(
    pod: Pod, container: Container, held: Mapping[str, tuple[Block, ...]]
) -> dict[str, tuple[Block, ...]]:
    """The blocks of earlier init containers without what this container takes over from them."""
    changed: dict[str, tuple[Block, ...]] = {}
    for block in held[container.name]:
        left = block.size
        for init in pod.init:
            if init.name == container.name or not left:
                break
            if init.is_sidecar:
                continue
            kept: list[Block] = []
            for other in changed.get(init.name, held.get(init.name, ())):
                is_alike = other.resource == block.resource and set(other.cells) == set(block.cells)
                over = min(left, other.size) if is_alike else 0
                left -= over
                kept.append(msgspec.structs.replace(other, size=other.size - over))
            if init.name in held:
                changed[init.name] = tuple(kept)
    return changed


def started(state: MemoryManagerState, pod: Pod, container: str) -> MemoryManagerState:
    """A container has been created: the init containers before it are over, and their blocks are given back."""
    for init in pod.init:
        if init.name == container:
            break
        if not init.is_sidecar:
            state = _without(state, pod.uid, init.name)
    return state


def _without(state: MemoryManagerState, uid: str, container: str) -> MemoryManagerState:
    blocks = state.held.get(uid, {}).get(container)
    if blocks is None:
        return state
    cells = dict(state.cells)
    for block in blocks:
        left = block.size
        for each in block.cells:
            cell = cells[each]
            back = min(left, cell.reserved(block.resource))
            left -= back
            group = cell.group if cell.assignments > 1 else (each,)
            cells[each] = _changed(cell, block.resource, -back, cell.assignments - 1, group)
    by_container = {name: held for name, held in state.held[uid].items() if name != container}
    held = {**state.held, uid: by_container}
    if not by_container:
        del held[uid]
    return msgspec.structs.replace(state, cells=cells, held=held)


def forget(state: MemoryManagerState, active: Collection[str]) -> MemoryManagerState:
    """Without the pods that are over."""
    for uid in [uid for uid in state.held if uid not in active]:
        for container in state.held[uid]:
            state = _without(state, uid, container)
    return state
