"""``python -m bench [SCENARIO…] [--record]``: print the figures; exit 1 if one exceeds its budget or recorded value."""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import structlog
from rich.console import Console
from rich.table import Table

from bench import (
    authors,
    cell_scheduling,
    exporter,
    filter_calls,
    nodes,
    one_build,
    outage,
    placement,
    plugin,
    report,
    resting_builds,
    runtime,
    start,
)
from bench.measure import Figure

RECORDED = Path(__file__).with_name("recorded.json")
REGRESS = 1.2
NOISE = 0.02
"""Differences below this are ignored."""


def verdict(figure: Figure, recorded: dict[str, float]) -> tuple[str, bool]:
    """The text of the result column, and whether the figure fails the run."""
    known = recorded.get(figure.name)
    if figure.compared and known is not None and figure.value > max(known * REGRESS, known + NOISE):
        return f"[red]regress: was {known:.3g}[/red]", True
    if figure.limit is None:
        return "", False
    if figure.kept:
        return "[green]kept[/green]", False
    return "[yellow]not reached[/yellow]" if not figure.compared else "[red]over budget[/red]", figure.compared


def show(figures: list[Figure], recorded: dict[str, float]) -> bool:
    """Print the table; return whether any figure fails."""
    table = Table(box=None, header_style="bold")
    for title in ("figure", "value", "unit", "budget", "of", "", "note"):
        table.add_column(title, justify="right" if title in ("value", "budget") else "left", overflow="fold")
    failed = False
    for figure in figures:
        word, fails = verdict(figure, recorded)
        failed |= fails
        limit = "" if figure.limit is None else f"{'≤' if figure.at_most else '≥'} {figure.limit:g}"
        table.add_row(figure.name, f"{figure.value:.4g}", figure.unit, limit, figure.source, word, figure.note)
    Console(width=160 if not sys.stdout.isatty() else None, highlight=False).print(table)
    return failed


def main() -> int:
    alone = runtime.SCENARIOS | authors.SCENARIOS | exporter.SCENARIOS | nodes.SCENARIOS | outage.SCENARIOS
    alone |= cell_scheduling.SCENARIOS | filter_calls.SCENARIOS | plugin.SCENARIOS
    alone |= resting_builds.SCENARIOS | one_build.SCENARIOS | report.SCENARIOS | start.SCENARIOS
    scenarios = [*alone, *placement.SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(scenarios)}; default all")
    parser.add_argument("--record", action="store_true", help="write the compared figures for later runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(scenarios):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(scenarios)}")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    wanted = arguments.scenario or scenarios
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    recorded: dict[str, float] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    figures = [figure for name in wanted if name in alone for figure in alone[name](say)]
    if on_cluster := [name for name in wanted if name in placement.SCENARIOS]:
        figures += asyncio.run(placement.run(on_cluster, say))
    failed = show(figures, recorded)
    if arguments.record:
        recorded |= {figure.name: round(figure.value, 4) for figure in figures if figure.compared}
        RECORDED.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
