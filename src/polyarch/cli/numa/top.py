"""The work of ``polyarch numa top``: what every cell has and has left, printed once or until Ctrl-C."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.amounts import age, short
from polyarch.cli.numa.options import AS_USUAL, SourceOptions
from polyarch.cli.numa.snapshot import only, see
from polyarch.cli.options.common import STDOUT, Output, emit
from polyarch.cli.output import tables
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import StyledText, plain
from polyarch.cli.output.terminal import is_terminal, styled
from polyarch.numa.explanation import devices_of_several_zones
from polyarch.numa.fit import demand
from polyarch.numa.fit.facts import CPU, MEMORY, Amounts, NodeFacts, ZoneFacts
from polyarch.numa.snapshot import NodeSnapshot, Snapshot, Source
from polyarch.quantity import spelled

COMMAND: Final = "numa top"
PAUSE: Final = 2.0
"""Seconds between two looks; more where a look takes longer than a third of that."""
CLEAR: Final = "\x1b[H\x1b[2J"
Sort = Literal["used", "free", "name"]


class TopOptions(NamedTuple):
    """What the command line asks for."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    sort: Sort
    watch: bool
    check: bool
    where: SourceOptions


def run_top(asked: TopOptions, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Shows it; the exit code. Raises CommandError."""
    if asked.watch and (asked.where.nrt or wanted != [Output("text")]):
        raise UsageError(f"{COMMAND}: --watch shows a cluster as text; remove --nrt and --output")
    while True:
        began = time.monotonic()
        code = _once(asked, wanted, messages)
        if not asked.watch:
            return code
        try:
            time.sleep(max(PAUSE, 3 * (time.monotonic() - began)))
        except KeyboardInterrupt:
            return code


def _once(asked: TopOptions, wanted: Sequence[Output], messages: Messages) -> int:
    seen = see(COMMAND, asked.where, AS_USUAL, messages=messages, sums=asked.check)
    snapshot = only(seen.snapshot, asked.names, COMMAND)
    resources = asked.resources or USUAL_RESOURCES
    _require_listed(snapshot, asked.resources)
    found = lines(snapshot, resources, sort=asked.sort, check=asked.check)
    total = totals(found, resources)

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(document(found, total, source=snapshot.source, check=asked.check), form)
        at_terminal = is_terminal(sys.stdout) and wanted[0].place == STDOUT
        if at_terminal or colour:
            text = picture(found, total, columns=shutil.get_terminal_size().columns, colour=colour)
        else:
            text = columns(found, total)
        again = CLEAR if asked.watch and at_terminal else ""
        return again + text + (_findings(found, colour=colour) if asked.check else "")

    emit(wanted, render)
    return 1 if any(each.findings for each in found) else 0


def _require_listed(snapshot: Snapshot, resources: Sequence[str]) -> None:
    listed = {name for node in snapshot.nodes for cell in node.facts.cells for name in cell.available}
    for name in resources:
        if name not in listed:
            there = ", ".join(sorted(listed)) or "none at all"
            raise UsageError(f"{COMMAND}: --resource {name}: no cell lists it; they list {there}")


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


def _findings(found: Sequence[NodeLines], *, colour: bool) -> str:
    told = [(each.node.name, sentence) for each in found for sentence in each.findings]
    if not told:
        return "\nNo findings.\n"
    return "\n" + "".join(f"{styled(name, 'yellow', colour=colour)}: {sentence}\n" for name, sentence in told)


# -- lines: what is shown of a snapshot


USUAL_RESOURCES: Final = (CPU, MEMORY)
ALIGNING: Final = frozenset({"single-numa-node", "restricted"})
WHOLE_CORES: Final = "full-pcpus-only"
_ONE: Final = 1000
NONE: Final = Amount()


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
    return NodeLines(node, cells, tuple(_marks(node, resources)), tuple(findings(node)) if check else ())


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
    used = demand.total(demand.whole_request(each.facts) for each in node.residents)
    return {name: max(0, amount - used.get(name, 0)) for name, amount in node.facts.allocatable.items()}


def _whole_cpus(node: NodeFacts, free: int) -> int:
    """CPUs are handed out whole, or core by core."""
    step = _ONE
    if node.settings.cpu_options.get(WHOLE_CORES) == "true":
        step *= node.settings.threads_per_core or 1
    return free - free % step


def _marks(node: NodeSnapshot, resources: Sequence[str]) -> Iterator[str]:
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
    if not devices_of_several_zones(node.facts).keys().isdisjoint(resources):
        yield "shared-devices"
    if node.facts.zones_ignored:
        yield "other-zones"
    if CPU in resources and (node.facts.settings.cpu_manager or "static") != "static":
        yield "no-own-cpus"


def findings(node: NodeSnapshot) -> Iterator[str]:
    """Why pods are not, or not reliably, aligned here."""
    facts, settings = node.facts, node.facts.settings
    if not facts.has_topology:
        yield "there is no NodeResourceTopology: no exporter runs here, or it cannot publish"
        return
    if facts.zones_ignored:
        yield f"{facts.zones_ignored} of its zones are no NUMA nodes (type Node, name node-<id>): they do not count"
    if settings.cpu_manager is not None and settings.cpu_manager != "static":
        yield f"the CPU manager's policy is {settings.cpu_manager}, not static: pods get no CPUs of their own"
    if settings.memory_manager is not None and settings.memory_manager != "Static":
        yield f"the memory manager's policy is {settings.memory_manager}, not Static: memory is not aligned"
    for name in (CPU, MEMORY):
        listed = [cell for cell in facts.cells if name in cell.allocatable]
        if listed and all(cell.allocatable[name] == cell.capacity[name] for cell in listed):
            yield f"nothing of {name} is reserved for the system: pods can take all of it"
    if settings.policy not in ALIGNING:
        yield f"the topology manager's policy is {settings.policy}: it aligns nothing for certain"
    for name, (zones, whole) in devices_of_several_zones(facts).items():
        yield f"{name}: some belong to several zones, which all count them: the zones have {zones}, the node {whole}"
    if node.is_stale:
        yield "the exporter has been silent for more than three periods, or does not run: what is shown may be old"


# -- text in a pipe: a line per cell, every amount in a column of its own


AMOUNTS = ("CAPACITY", "ALLOCATABLE", "AVAILABLE", "RESERVED", "LARGEST")
GAP = "   "
NOTHING = "-"
UNLISTED = [""] * len(NONE)


class NodeColumn(NamedTuple):
    """A column that says something of the node, after the columns of its amounts, and a member of the document."""

    title: str
    text: Callable[[NodeLines], str]
    member: str
    value: Callable[[NodeLines], Any]
    picture: Callable[[NodeLines], str] | None
    """The text on a terminal; None: another column says it there."""


def _policy(lines: NodeLines) -> str:
    return lines.node.facts.settings.policy


def _scope(lines: NodeLines) -> str:
    return lines.node.facts.settings.scope


NODE_COLUMNS: Final = (
    NodeColumn("POLICY", _policy, "policy", _policy, lambda lines: f"{_policy(lines)}/{_scope(lines)}"),
    NodeColumn("SCOPE", _scope, "scope", _scope, None),
    NodeColumn(
        "AGE",
        lambda lines: age(lines.node.age),
        "ageSeconds",
        lambda lines: None if lines.node.age is None else int(lines.node.age),
        lambda lines: age(lines.node.age),
    ),
    NodeColumn(
        "MARKS",
        lambda lines: ",".join(lines.marks),
        "marks",
        lambda lines: list(lines.marks),
        lambda lines: ", ".join(lines.marks),
    ),
)


def columns(found: Sequence[NodeLines], total: Mapping[str, Amount]) -> str:
    """With a header, and the totals in the last line."""
    titles = [f"{name.upper()}:{each}" for name in total for each in AMOUNTS]
    rows = [("NODE", "CELL", *titles, *(column.title for column in NODE_COLUMNS)), *_rows(found, tuple(total))]
    cells = sum(len(each.cells) for each in found)
    sums = (text for name, amount in total.items() for text in _texts(name, amount))
    rows.append((f"total({len(found)})", str(cells), *sums, *("" for _ in NODE_COLUMNS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = GAP.join(f"{{:<{width}}}" for width in widths).format
    return "".join(f"{line(*(text or NOTHING for text in row)).rstrip()}\n" for row in rows)


def _rows(found: Sequence[NodeLines], resources: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for lines in found:
        end = [column.text(lines) for column in NODE_COLUMNS]
        for cell in lines.cells or (CellLine(-1, {}),):
            amounts = ((name, cell.amounts.get(name)) for name in resources)
            texts = [text for name, each in amounts for text in (_texts(name, each) if each is not None else UNLISTED)]
            yield (lines.node.name, str(cell.cell) if lines.cells else "", *texts, *end)


def _texts(name: str, amount: Amount) -> list[str]:
    return [short(name, each) for each in amount]


# -- the document ``polyarch.dev/numa-top.v1``; amounts are exact


VERSION: Final = "polyarch.dev/numa-top.v1"


def document(found: Sequence[NodeLines], total: Mapping[str, Amount], *, source: Source, check: bool) -> dict[str, Any]:
    """Nodes in the order of the lines."""
    return {
        "schemaVersion": VERSION,
        "source": source,
        "nodes": [_node_document(each, check=check) for each in found],
        "totals": {"nodes": len(found), "cells": sum(len(each.cells) for each in found), "resources": _amounts(total)},
    }


def _node_document(found: NodeLines, *, check: bool) -> dict[str, Any]:
    return {
        "node": found.node.name,
        **{column.member: column.value(found) for column in NODE_COLUMNS},
        "cells": [{"cell": each.cell, "resources": _amounts(each.amounts)} for each in found.cells],
        **({"findings": list(found.findings)} if check else {}),
    }


def _amounts(amounts: Mapping[str, Amount]) -> dict[str, Any]:
    return {name: {field: spelled(value) for field, value in each._asdict().items()} for name, each in amounts.items()}


# -- text on a terminal: bars of what is used, reserved and free, or a heat map of many nodes


HEAT: Final = "▁▂▃▄▅▆▇█"
MOST_BARS: Final = 120
"""Cells; of more the picture is a heat map with a line per node."""
_WIDE, _NARROW = 16, 8
_ROOM_FOR_WIDE: Final = 130
_HOT, _WARM = 0.9, 0.6
_GAP: Final = "  "
PICTURE_TITLES: Final = tuple(column.title for column in NODE_COLUMNS if column.picture is not None)


def picture(found: Sequence[NodeLines], total: Mapping[str, Amount], *, columns: int, colour: bool) -> str:
    """``columns`` is the width of the terminal."""
    cells = sum(len(each.cells) for each in found)
    rows = _heat(found, tuple(total), colour) if cells > MOST_BARS else _bars(found, tuple(total), columns, colour)
    lines = [*_aligned(list(rows), colour), *_totals(found, total, cells)]
    legend = tables.legend("used", "reserved", "free") if cells <= MOST_BARS else f"{HEAT[0]} free … {HEAT[-1]} full"
    return "".join(f"{line.rstrip()}\n" for line in (*lines, "", styled(legend, "dim", colour=colour)))


def _bars(
    found: Sequence[NodeLines], resources: Sequence[str], columns: int, colour: bool
) -> Iterator[list[StyledText]]:
    width = _WIDE if columns >= _ROOM_FOR_WIDE else _NARROW
    titles = ("NODE", "CELL", *(name.upper() for name in resources), "LARGEST POD", *PICTURE_TITLES)
    yield [plain(title) for title in titles]
    for lines in found:
        name_of_node, end = plain(lines.node.name), _end(lines, colour)
        if not lines.cells:
            yield [name_of_node, *[plain("-")] * (len(resources) + 2), *end]
        for number, cell in enumerate(lines.cells):
            parts = [_bar(name, cell.amounts.get(name), width, colour) for name in resources]
            largest = " + ".join(f"{short(name, each.largest)} {name}" for name, each in cell.amounts.items())
            first = [name_of_node if not number else plain(""), plain(str(cell.cell))]
            yield [*first, *parts, plain(largest), *(end if not number else [])]


def _bar(name: str, amount: Amount | None, width: int, colour: bool) -> StyledText:
    if amount is None or not amount.allocatable:
        return plain("-")
    whole = amount.allocatable
    taken = min(whole, whole - min(whole, amount.available))
    reserved = min(whole - taken, amount.reserved)
    drawn = tables.bar(
        taken / whole,
        reserved / whole,
        width=width,
        style=_heat_style((taken + reserved) / whole),
        partly_style="yellow",
        colour=colour,
    )
    text = f" {short(name, amount.free)} of {short(name, whole)}"
    return StyledText(drawn.shown + text, drawn.width + len(text))


def _heat(found: Sequence[NodeLines], resources: Sequence[str], colour: bool) -> Iterator[list[StyledText]]:
    yield [plain(title) for title in ("NODE", *(f"{name.upper()} BY CELL" for name in resources), *PICTURE_TITLES)]
    for lines in found:
        parts = []
        for name in resources:
            amounts = [cell.amounts.get(name) for cell in lines.cells]
            shares = [
                each.used / each.allocatable if each is not None and each.allocatable else None for each in amounts
            ]
            blocks = "".join(_block(share, colour) for share in shares)
            free = short(name, sum(each.free for each in amounts if each is not None))
            parts.append(StyledText(f"{blocks} {free}", len(shares) + 1 + len(free)))
        yield [plain(lines.node.name), *parts, *_end(lines, colour)]


def _block(share: float | None, colour: bool) -> str:
    if share is None:
        return "-"
    character = HEAT[min(len(HEAT) - 1, int(share * len(HEAT)))]
    return styled(character, _heat_style(share), colour=colour)


def _heat_style(share: float) -> str:
    return "red" if share >= _HOT else "yellow" if share >= _WARM else "green"


def _end(lines: NodeLines, colour: bool) -> list[StyledText]:
    """The columns of the node; marks stand out."""
    texts = [column.picture(lines) for column in NODE_COLUMNS if column.picture is not None]
    return [
        StyledText(styled(text, "red", colour=colour), len(text)) if title == "MARKS" else plain(text)
        for title, text in zip(PICTURE_TITLES, texts, strict=True)
    ]


def _aligned(rows: Sequence[Sequence[StyledText]], colour: bool) -> Iterator[str]:
    count = max(map(len, rows))
    widths = [max((row[index].width for row in rows if index < len(row)), default=0) for index in range(count)]
    for number, row in enumerate(rows):
        line = _GAP.join(each.shown + " " * (width - each.width) for each, width in zip(row, widths, strict=False))
        yield styled(line.rstrip(), "bold", colour=colour) if not number else line


def _totals(found: Sequence[NodeLines], total: Mapping[str, Amount], cells: int) -> Iterator[str]:
    yield ""
    yield f"{len(found)} {'node' if len(found) == 1 else 'nodes'}, {cells} {'cell' if cells == 1 else 'cells'}"
    for name, each in total.items():
        reserved = f" ({short(name, each.reserved)} are reserved)" if each.reserved else ""
        yield (
            f"  {name}: {short(name, each.free)} of {short(name, each.allocatable)} free{reserved}, "
            f"at most {short(name, each.largest)} on one cell"
        )
