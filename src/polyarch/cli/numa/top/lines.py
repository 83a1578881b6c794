"""What ``polyarch numa top`` shows of a snapshot: a line per cell, totals, findings. No input, no output."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from polyarch.numa import simulation
from polyarch.numa.fit.facts import CPU, MEMORY, Amounts, NodeFacts, ZoneFacts
from polyarch.numa.snapshot import NodeSnapshot, Snapshot

USUAL_RESOURCES: Final = (CPU, MEMORY)
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})
WHOLE_CORES: Final = "full-pcpus-only"
_ONE: Final = 1000
Sort = Literal["used", "free", "name"]


class Amount(NamedTuple):
    """One resource of one cell, or of all of them; thousandths."""

    capacity: int = 0
    allocatable: int = 0
    available: int = 0
    reserved: int = 0
    largest: int = 0
    """The most that a pod could still ask for here."""

    @property
    def free(self) -> int:
        return max(0, self.available - self.reserved)

    @property
    def used(self) -> int:
        return max(0, self.allocatable - self.free)


NONE: Final = Amount()


class CellLine(NamedTuple):
    """One cell."""

    cell: int
    amounts: Mapping[str, Amount]
    """Of the resources that it lists."""


class NodeLines(NamedTuple):
    """One node with its cells."""

    node: NodeSnapshot
    cells: tuple[CellLine, ...]
    marks: tuple[str, ...]
    findings: tuple[str, ...] = ()


def lines(snapshot: Snapshot, resources: Sequence[str], *, sort: Sort, check: bool) -> list[NodeLines]:
    """Nodes in the order that is asked for; of equal ones by name."""
    found = [_node(each, resources, check=check) for each in snapshot.nodes]
    if sort == "used":
        return sorted(found, key=lambda each: -_share(each, resources))
    if sort == "free":
        return sorted(found, key=lambda each: tuple(-_sum(each, name).free for name in resources))
    return found


def totals(found: Sequence[NodeLines], resources: Sequence[str]) -> dict[str, Amount]:
    """Of all cells; ``largest`` is the largest of one cell."""
    return {name: _added(cell.amounts[name] for cell in _cells(found) if name in cell.amounts) for name in resources}


def _cells(found: Sequence[NodeLines]) -> Iterator[CellLine]:
    return (cell for each in found for cell in each.cells)


def _sum(node: NodeLines, resource: str) -> Amount:
    return _added(cell.amounts[resource] for cell in node.cells if resource in cell.amounts)


def _added(amounts: Iterator[Amount]) -> Amount:
    capacity = allocatable = available = reserved = largest = 0
    for each in amounts:
        capacity += each.capacity
        allocatable += each.allocatable
        available += each.available
        reserved += each.reserved
        largest = max(largest, each.largest)
    return Amount(capacity, allocatable, available, reserved, largest)


def _share(node: NodeLines, resources: Sequence[str]) -> float:
    """How full the fullest resource of the node is."""
    sums = [_sum(node, name) for name in resources]
    return max((each.used / each.allocatable for each in sums if each.allocatable), default=0.0)


def _node(node: NodeSnapshot, resources: Sequence[str], *, check: bool) -> NodeLines:
    left = _left(node)
    cells = tuple(_cell(node, cell, resources, left) for cell in node.facts.cells)
    return NodeLines(node, cells, tuple(_marks(node)), tuple(findings(node)) if check else ())


def _cell(node: NodeSnapshot, cell: ZoneFacts, resources: Sequence[str], left: Amounts | None) -> CellLine:
    amounts = {}
    for name in resources:
        if (available := cell.available.get(name)) is None:
            continue
        reserved = node.reserved(cell.id, name) if node.held else 0
        free = max(0, available - reserved)
        if left is not None:
            free = min(free, left.get(name, 0))
        largest = _whole_cpus(node.facts, free) if name == CPU else free
        amounts[name] = Amount(cell.capacity[name], cell.allocatable[name], available, reserved, largest)
    return CellLine(cell.id, amounts)


def _left(node: NodeSnapshot) -> Amounts | None:
    """What the sums of the node leave, where they are known."""
    if node.facts.allocatable is None or not node.residents:
        return node.facts.allocatable
    used = simulation.total(simulation.whole_request(each.facts) for each in node.residents)
    return {name: max(0, amount - used.get(name, 0)) for name, amount in node.facts.allocatable.items()}


def _whole_cpus(node: NodeFacts, free: int) -> int:
    """CPUs are handed out whole, or core by core."""
    step = _ONE
    if node.settings.cpu_options.get(WHOLE_CORES) == "true":
        step *= node.settings.threads_per_core or 1
    return free - free % step


def _marks(node: NodeSnapshot) -> Iterator[str]:
    if not node.facts.has_topology:
        yield "no-nrt"
    if node.is_stale:
        yield "stale"
    if node.is_unexplained:
        yield "unexplained"
    if node.is_mispredicted:
        yield "mispredicted"
    if node.is_cordoned:
        yield "cordoned"


def findings(node: NodeSnapshot) -> Iterator[str]:
    """Why pods are not, or not reliably, aligned here (NS-160)."""
    facts, settings = node.facts, node.facts.settings
    if not facts.has_topology:
        yield "there is no NodeResourceTopology: no exporter runs here, or it cannot publish"
        return
    if settings.cpu_manager is not None and settings.cpu_manager != "static":
        yield f"the CPU manager's policy is {settings.cpu_manager}, not static: pods get no CPUs of their own"
    if settings.memory_manager is not None and settings.memory_manager != "Static":
        yield f"the memory manager's policy is {settings.memory_manager}, not Static: memory is not aligned"
    for name in (CPU, MEMORY):
        if facts.cells and all(cell.allocatable.get(name) == cell.capacity.get(name) for cell in facts.cells):
            yield f"nothing of {name} is reserved for the system: pods can take all of it"
    if settings.policy not in ALIGNING:
        yield f"the topology manager's policy is {settings.policy}: it aligns nothing for certain"
    if node.is_stale:
        yield "the exporter has been silent for more than three periods, or does not run: what is shown may be old"
