"""``polyarch numa top``, once or until somebody has seen enough."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.cli.numa.sources.mode_flags import AS_USUAL
from polyarch.cli.numa.sources.seen import only, see
from polyarch.cli.numa.top.columns import columns
from polyarch.cli.numa.top.documents import document
from polyarch.cli.numa.top.lines import USUAL_RESOURCES, NodeLines, Sort, lines, totals
from polyarch.cli.numa.top.picture import picture
from polyarch.cli.options.outputs import STDOUT, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import is_terminal, styled
from polyarch.numa.snapshot import Snapshot

COMMAND: Final = "numa top"
PAUSE: Final = 2.0
"""Seconds between two looks; more where a look takes longer than a third of that."""
CLEAR: Final = "\x1b[H\x1b[2J"


class Asked(NamedTuple):
    """What the command line asks for."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    sort: Sort
    watch: bool
    check: bool
    where: SourceOptions


def run_top(asked: Asked, wanted: Sequence[Output], *, messages: Messages) -> int:
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


def _once(asked: Asked, wanted: Sequence[Output], messages: Messages) -> int:
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


def _findings(found: Sequence[NodeLines], *, colour: bool) -> str:
    told = [(each.node.name, sentence) for each in found for sentence in each.findings]
    if not told:
        return "\nNo findings.\n"
    return "\n" + "".join(f"{styled(name, 'yellow', colour=colour)}: {sentence}\n" for name, sentence in told)
