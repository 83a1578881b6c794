"""How the demo looks: live tables on a terminal, one line for each change in a pipe, nothing for ``-o json``."""

import sys
import textwrap
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from polyarch.cli.sandbox.next_steps import after_demo
from polyarch.platforms import Platform
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo import show as demo
from polyarch.sandbox.demo.show import WITH, WITHOUT, DemoOutput, DemoResult
from polyarch.sandbox.demo.workloads import WORKLOADS, DemoRow, DemoWorkload, platforms
from polyarch.sandbox.document import DemoCells, DemoOperator

Tables = dict[str, tuple[DemoRow, ...]]

WIDE = 120
"""Columns of a terminal from which on the whole table fits."""
_WIDE_HEADINGS = ("POD", "IMAGES RUN ON", "PATH", "CONSTRAINT", "NODE", "STATE")


async def show(sandbox: Sandbox, *, quiet: bool) -> tuple[DemoResult, int]:
    """Do the demo and show it; the exit code is 1 if a pod that could run did not."""
    console = Console(highlight=False)
    if quiet or not console.is_terminal:
        stream = sys.stderr if quiet else sys.stdout
        shown = await demo.show(sandbox, in_lines(stream))
    else:
        shown = await _live(sandbox, console)
    if not quiet:
        _print_end(console, sandbox, shown)
    return shown, 1 if shown.failed else 0


async def _live(sandbox: Sandbox, console: Console) -> DemoResult:
    rows: Tables = {}
    operator: DemoOperator | None = None
    now = ""
    with Live(console=console, refresh_per_second=12) as live:

        def listen(namespace: str, changed: tuple[DemoRow, ...]) -> None:
            rows[namespace] = changed
            live.update(tables(rows, operator, console.width, now=now))

        def tell(line: DemoOperator) -> None:
            nonlocal operator
            operator = line
            live.update(tables(rows, operator, console.width, now=now))

        def begin(text: str) -> None:
            nonlocal now
            now = text
            live.update(tables(rows, operator, console.width, now=now))

        shown = await demo.show(sandbox, DemoOutput(listen, tell, begin))
        begin("")
        return shown


def in_lines(stream: TextIO) -> DemoOutput:
    """Print what changed of a pod that one would want to read; what comes back, as a back-off does, is told once."""
    told: set[str] = set()

    def listen(namespace: str, changed: tuple[DemoRow, ...]) -> None:
        for row in changed:
            text = _line(namespace, row)
            if row.phase and text not in told:
                told.add(text)
                say(text)

    def say(text: str) -> None:
        print(text, file=stream, flush=True)

    return DemoOutput(listen, lambda line: say(_operator_line(line)), lambda text: say(f"now: {text}"))


def _line(namespace: str, row: DemoRow) -> str:
    constraint = f" [{','.join(row.architectures)}]" if row.architectures else ""
    way = f" {' '.join(filter(None, (row.path, row.reason)))}{constraint}," if namespace == WITH and row.path else ""
    place = f" on {row.node}" if row.node else ""
    requests = f", {row.requests} API request{'s' if row.requests > 1 else ''}" if row.requests else ""
    return f"{namespace}/{row.name}:{way} {row.problem or row.phase}{place}{requests}"


def _operator_line(line: DemoOperator) -> str:
    if line.uninstall_seconds is None:
        return (
            f"operator: {line.installed} objects installed, {line.made} made by the operator, "
            f"available after {line.install_seconds:.1f} s"
        )
    return f"operator: uninstalled in {line.uninstall_seconds:.1f} s, left: {_left(line)}"


def _left(line: DemoOperator) -> str:
    return ", ".join(line.left) or "nothing"


def tables(rows: Tables, operator: DemoOperator | None, width: int, *, now: str = "") -> Group:
    """What the terminal shows: with polyarch, below it without, the operator, and what is being done now."""
    parts: list[RenderableType] = []
    if WITH in rows:
        parts.append(_with(rows[WITH], narrow=width < WIDE))
    if WITHOUT in rows:
        parts.append(_without(rows[WITHOUT]))
    if operator is not None:
        parts.append(_operator(operator))
    if now:
        parts.append(Text(f"\n{now} …", style="dim"))
    return Group(*parts)


def _operator(line: DemoOperator) -> Table:
    table = Table(title="\nthe operator", title_justify="left", box=None, pad_edge=False)
    for heading in ("INSTALLED", "MADE BY IT", "AVAILABLE AFTER", "UNINSTALLED IN", "LEFT"):
        table.add_column(heading)
    gone = line.uninstall_seconds is not None
    table.add_row(
        f"{line.installed} objects",
        f"{line.made} objects",
        f"{line.install_seconds:.1f} s",
        f"{line.uninstall_seconds:.1f} s" if gone else "…",
        Text(_left(line), style="red" if line.left else "green") if gone else "…",
    )
    return table


def _with(rows: tuple[DemoRow, ...], *, narrow: bool) -> Table:
    """On a narrow terminal the images' platforms and the first two times are left out: `-o json` has them."""
    table = Table(title="with polyarch", title_justify="left", box=None, pad_edge=False)
    for heading in ("POD", "PATH", "CONSTRAINT", "NODE", "STATE") if narrow else _WIDE_HEADINGS:
        table.add_column(heading)
    for heading in ("RUNNING", "REQUESTS") if narrow else ("ADMISSION", "BOUND", "RUNNING", "REQUESTS"):
        table.add_column(heading, justify="right")
    for workload, row in zip(WORKLOADS, rows, strict=True):
        constraint = ", ".join(row.architectures) or row.reason
        times = [row.times.running] if narrow else [row.times.admission, row.times.bound, row.times.running]
        cells = [f"{milliseconds:.0f} ms" if milliseconds is not None else "" for milliseconds in times]
        images = [] if narrow else [_images(workload)]
        table.add_row(row.name, *images, row.path, constraint, row.node, _state(row), *cells, str(row.requests))
    return table


def _without(rows: tuple[DemoRow, ...]) -> Table:
    table = Table(title="\nthe same pods without polyarch", title_justify="left", box=None, pad_edge=False)
    for heading in ("POD", "IMAGES RUN ON", "NODE", "STATE"):
        table.add_column(heading)
    for workload, row in zip(WORKLOADS, rows, strict=True):
        table.add_row(row.name, _images(workload), row.node, _state(row))
    return table


def _cells(compared: DemoCells) -> Table:
    title = f"{compared.pods} pods with CPUs of their own, on {compared.nodes} nodes with NUMA cells"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    several = (compared.stock, compared.cells)
    for each in several:
        table.add_column(each.scheduler.upper(), justify="right")
    rows: dict[str, list[str | Text]] = {
        "running": [str(each.running) for each in several],
        "refused by their kubelet": [
            Text(str(each.refused), style="red" if each.refused else "green") for each in several
        ],
        "waiting for room": [str(each.waiting) for each in several],
    }
    for name, values in rows.items():
        table.add_row(name, *values)
    return table


def _images(workload: DemoWorkload) -> str:
    return " ∩ ".join(_architectures(image) for image in workload.images)


def _architectures(image: str) -> str:
    found = dict.fromkeys(Platform.parse(text).architecture for text in platforms(image))
    return ",".join(found) if len(found) < 4 else f"{len(found)} architectures"


def _state(row: DemoRow) -> Text:
    if row.problem:
        return Text(row.problem, style="red")
    return Text(row.phase, style="green" if row.phase == "Running" else "yellow")


def points(summary: str, width: int) -> str:
    """A summary as a list; the further lines of a point begin below its first word."""
    wrapper = textwrap.TextWrapper(
        width, initial_indent="• ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, summary.split("; ")))


def _print_end(console: Console, sandbox: Sandbox, shown: DemoResult) -> None:
    console.print()
    if shown.demo.cells is not None:
        console.print(_cells(shown.demo.cells))
        console.print()
    console.print(points(shown.demo.summary, console.width), markup=False, soft_wrap=True)
    if shown.failed:
        console.print(f"These could run and did not: {', '.join(shown.failed)}", style="red", markup=False)
    console.print(f"\n{after_demo(sandbox.folder, name=sandbox.name)}", markup=False, soft_wrap=True, end="")
