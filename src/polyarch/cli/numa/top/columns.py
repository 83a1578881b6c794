"""``polyarch numa top`` in a pipe: a line per cell, every amount in a column of its own."""

from collections.abc import Iterator, Mapping, Sequence

from polyarch.cli.numa.amounts import age, short
from polyarch.cli.numa.top.lines import NONE, Amount, CellLine, NodeLines

AMOUNTS = ("CAPACITY", "ALLOCATABLE", "AVAILABLE", "RESERVED", "LARGEST")
GAP = "   "
NOTHING = "-"
UNLISTED = [""] * len(NONE)


def columns(found: Sequence[NodeLines], total: Mapping[str, Amount]) -> str:
    """With a header, and the totals in the last line."""
    titles = [f"{name.upper()}:{each}" for name in total for each in AMOUNTS]
    rows = [("NODE", "CELL", *titles, "POLICY", "SCOPE", "AGE", "MARKS"), *_rows(found, tuple(total))]
    cells = sum(len(each.cells) for each in found)
    sums = (text for name, amount in total.items() for text in _texts(name, amount))
    rows.append((f"total({len(found)})", str(cells), *sums, "", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = GAP.join(f"{{:<{width}}}" for width in widths).format
    return "".join(f"{line(*(text or NOTHING for text in row)).rstrip()}\n" for row in rows)


def _rows(found: Sequence[NodeLines], resources: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for node, cells, marks, _ in found:
        settings = node.facts.settings
        end = (settings.policy, settings.scope, age(node.age), ",".join(marks))
        for cell in cells or (CellLine(-1, {}),):
            amounts = ((name, cell.amounts.get(name)) for name in resources)
            texts = [text for name, each in amounts for text in (_texts(name, each) if each is not None else UNLISTED)]
            yield (node.name, str(cell.cell) if cells else "", *texts, *end)


def _texts(name: str, amount: Amount) -> list[str]:
    return [short(name, each) for each in amount]
