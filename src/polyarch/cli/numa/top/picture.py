"""``polyarch numa top`` on a terminal: bars of what is used, reserved and free, or of many nodes a heat map.

Everything that a colour says a character says, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from polyarch.cli.numa.amounts import age, short
from polyarch.cli.numa.top.lines import Amount, NodeLines
from polyarch.cli.output import bars
from polyarch.cli.output.bars import Drawn, plain
from polyarch.cli.output.terminal import styled

HEAT: Final = "▁▂▃▄▅▆▇█"
MOST_BARS: Final = 120
"""Cells; of more the picture is a heat map with a line per node."""
_WIDE, _NARROW = 16, 8
_ROOM_FOR_WIDE: Final = 130
_HOT, _WARM = 0.9, 0.6
_GAP: Final = "  "


def picture(found: Sequence[NodeLines], total: Mapping[str, Amount], *, columns: int, colour: bool) -> str:
    """``columns`` is the width of the terminal."""
    cells = sum(len(each.cells) for each in found)
    rows = _heat(found, tuple(total), colour) if cells > MOST_BARS else _bars(found, tuple(total), columns, colour)
    lines = [*_aligned(list(rows), colour), *_totals(found, total, cells)]
    legend = bars.legend("used", "reserved", "free") if cells <= MOST_BARS else f"{HEAT[0]} free … {HEAT[-1]} full"
    return "".join(f"{line.rstrip()}\n" for line in (*lines, "", styled(legend, "dim", colour=colour)))


def _bars(found: Sequence[NodeLines], resources: Sequence[str], columns: int, colour: bool) -> Iterator[list[Drawn]]:
    width = _WIDE if columns >= _ROOM_FOR_WIDE else _NARROW
    yield [
        plain(each)
        for each in ("NODE", "CELL", *(name.upper() for name in resources), "LARGEST POD", "POLICY", "AGE", "MARKS")
    ]
    for node, cells, marks, _ in found:
        settings = node.facts.settings
        end = [plain(f"{settings.policy}/{settings.scope}"), plain(age(node.age)), _mark(marks, colour)]
        if not cells:
            yield [plain(node.name), *[plain("-")] * (len(resources) + 2), *end]
        for number, cell in enumerate(cells):
            parts = [_bar(name, cell.amounts.get(name), width, colour) for name in resources]
            largest = " + ".join(f"{short(name, each.largest)} {name}" for name, each in cell.amounts.items())
            first = [plain(node.name if not number else ""), plain(str(cell.cell))]
            yield [*first, *parts, plain(largest), *(end if not number else [])]


def _bar(name: str, amount: Amount | None, width: int, colour: bool) -> Drawn:
    if amount is None or not amount.allocatable:
        return plain("-")
    whole = amount.allocatable
    taken = min(whole, whole - min(whole, amount.available))
    reserved = min(whole - taken, amount.reserved)
    drawn = bars.bar(
        taken / whole,
        reserved / whole,
        width=width,
        style=_heat_style((taken + reserved) / whole),
        partly_style="yellow",
        colour=colour,
    )
    text = f" {short(name, amount.free)} of {short(name, whole)}"
    return Drawn(drawn.shown + text, drawn.width + len(text))


def _heat(found: Sequence[NodeLines], resources: Sequence[str], colour: bool) -> Iterator[list[Drawn]]:
    yield [
        plain(each) for each in ("NODE", *(f"{name.upper()} BY CELL" for name in resources), "POLICY", "AGE", "MARKS")
    ]
    for node, cells, marks, _ in found:
        parts = []
        for name in resources:
            amounts = [cell.amounts.get(name) for cell in cells]
            shares = [
                each.used / each.allocatable if each is not None and each.allocatable else None for each in amounts
            ]
            blocks = "".join(_block(share, colour) for share in shares)
            free = short(name, sum(each.free for each in amounts if each is not None))
            parts.append(Drawn(f"{blocks} {free}", len(shares) + 1 + len(free)))
        settings = node.facts.settings
        yield [
            plain(node.name), *parts, plain(f"{settings.policy}/{settings.scope}"), plain(age(node.age)),
            _mark(marks, colour),
        ]  # fmt: skip


def _block(share: float | None, colour: bool) -> str:
    if share is None:
        return "-"
    character = HEAT[min(len(HEAT) - 1, int(share * len(HEAT)))]
    return styled(character, _heat_style(share), colour=colour)


def _heat_style(share: float) -> str:
    return "red" if share >= _HOT else "yellow" if share >= _WARM else "green"


def _mark(marks: Sequence[str], colour: bool) -> Drawn:
    text = ", ".join(marks)
    return Drawn(styled(text, "red", colour=colour), len(text))


def _aligned(rows: Sequence[Sequence[Drawn]], colour: bool) -> Iterator[str]:
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
