"""The report for people at a terminal: sums, what is in the way, workloads (RP-020)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from polyarch.cli.output.bars import Drawn, bar, legend
from polyarch.cli.output.folding import folded
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.cli.report.forms import words
from polyarch.reports.document import Answer, Change, Group, NamedPods, Part, Report, TargetSums, Verdict, WorkloadRow
from polyarch.reports.report import full_name
from polyarch.reports.wording import NOT_COMPARED, counted, few, percent, saved

MOST_BLOCKERS: Final = 10
MOST_CURVE: Final = 10
BAR: Final = 16
ROOM_FOR_ONE: Final = 140
"""Columns of a terminal on which shares and numbers of workloads are one table."""
LEGEND: Final = legend("runs there", "could run there", "could not")
STYLES: Final = {Verdict.CONSTRAINED: "yellow", Verdict.IMAGE: "red", Verdict.UNKNOWN: "cyan"}


class Look(NamedTuple):
    """How it is shown."""

    colour: bool = False
    width: int | None = None
    """Of the terminal; None: it is for no terminal, and a row is a line."""

    def table(self, header: Sequence[str], rows: Iterable[Row]) -> str:
        return table(header, rows, colour=self.colour, width=self.width)

    def lines(self, texts: Iterable[str]) -> str:
        shown = map(printable, texts)
        lines = shown if self.width is None else (line for text in shown for line in folded(text, self.width))
        return "".join(f"{line}\n" for line in lines)


PLAIN: Final = Look()


def report_text(report: Report, look: Look = PLAIN) -> str:
    """Blocks, each with a heading; what there is nothing to say about is left out."""
    return "\n".join(block for block in _blocks(report, look) if block)


def _blocks(report: Report, look: Look) -> Iterator[str]:
    yield styled(printable(words.heading(report)), "bold", colour=look.colour) + "\n" + _incomplete(report, look)
    yield _targets(report, look)
    for sums in report.sums:
        yield look.lines(_about(sums))
    yield _blockers(report, look)
    yield from (_curve(report, sums, look) for sums in report.sums)
    yield _workloads(report, look)
    yield _drift(report, look)
    yield _groups("NAMESPACE", report.namespaces, report, look)
    yield _groups(f"POOL ({report.pool_label})", report.pools, report, look)
    yield _groups(f"TEAM ({report.team_label})", report.teams, report, look)
    yield from _parts(report, look)
    yield _node_drift(report, look)
    yield from _comparison(report, look)
    yield look.lines(report.notes)


def _incomplete(report: Report, look: Look) -> str:
    said = "Interrupted: images that were not asked for yet count as unknown."
    return "" if report.complete else styled(said, "yellow", colour=look.colour) + "\n"


def _targets(report: Report, look: Look) -> str:
    has_nodes = bool(report.nodes)
    shares = ("TARGET", *(("NODES", "RUN THERE") if has_nodes else ()), "COULD RUN", "UNCONSTRAINED")
    counts = tuple(each.value.upper() for each in Verdict)
    rows = [
        (
            sums.target,
            *((str(sums.nodes), percent(sums.runs_share)) if has_nodes else ()),
            _share(sums, sums.ready_share, look),
            percent(sums.unconstrained_share),
            *(str(each.workloads) for each in sums.verdicts),
        )
        for sums in report.sums
    ]
    said = f"{words.weight(report, report.weight)} requested by {counted(len(report.workloads), 'workload')}"
    drawn = styled(LEGEND, "dim", colour=look.colour) + "\n" if look.colour else ""
    if look.width is None or look.width >= ROOM_FOR_ONE:
        return (
            f"{said}; the last six columns count workloads\n" + look.table((*shares, *counts), map(Row, rows)) + drawn
        )
    split = len(shares)
    return f"{said}\n{look.table(shares, (Row(row[:split]) for row in rows))}{drawn}\n" + look.table(
        ("WORKLOADS", *counts), (Row((row[0], *row[split:])) for row in rows)
    )


def _share(sums: TargetSums, share: float | None, look: Look) -> str | Drawn:
    """A share of the weight; on a terminal with a bar of what runs there already and what could besides."""
    text = percent(share)
    if not look.colour or share is None:
        return text
    runs = min(sums.runs_share or 0.0, share)
    drawn = bar(runs, share - runs, width=BAR, style="green", partly_style="green", colour=look.colour)
    return Drawn(f"{drawn.shown} {text}", drawn.width + 1 + len(text))


def _about(sums: TargetSums) -> Iterator[str]:
    if sums.blocking_daemon_sets:
        names = few(sums.blocking_daemon_sets, 5)
        yield f"{sums.target}: DaemonSets without which no node of it is ready: {names}"
    if sums.saving is not None:
        yield f"{sums.target}: {saved(sums.saving)}"


def _blockers(report: Report, look: Look) -> str:
    rows: list[Row] = []
    for target in report.targets:
        found = [each for each in report.blockers if each.target == target]
        for each in found[:MOST_BLOCKERS]:
            alone, together = words.holds(report, each)
            rows.append(Row((target, each.image, alone, together, few(each.workloads, 2), each.suggestion.message)))
        if len(found) > MOST_BLOCKERS:
            rows.append(Row((target, f"{len(found) - MOST_BLOCKERS} more images", "", "", "", "")))
    header = ("TARGET", "IMAGE IN THE WAY", "ALONE", "WITH OTHERS", "WORKLOADS", "WAY OUT")
    return look.table(header, rows) if rows else ""


def _curve(report: Report, sums: TargetSums, look: Look) -> str:
    if len(sums.curve) < 2:
        return ""
    rows = [
        Row((str(point.images), _share(sums, point.share, look), point.image or "(constraints lifted)"))
        for point in sums.curve[: MOST_CURVE + 1]
    ]
    return look.table((f"{sums.target.upper()}: IMAGES FIXED", "COULD RUN", "THE LAST OF THEM"), rows)


def _workloads(report: Report, look: Look) -> str:
    rows = [
        Row(_cells(report, row, answer, targets), STYLES.get(answer.verdict, ""))
        for row in report.workloads
        for answer, targets in words.joined(row.answers)
    ]
    header = ("WORKLOAD", "WEIGHT", "RUNS ON", "TARGET", "VERDICT", "WHY")
    return look.table(header, rows) if rows else ""


def _cells(report: Report, row: WorkloadRow, answer: Answer, targets: Sequence[str]) -> Sequence[str]:
    """Every line says which workload it is about, so that lines can be searched for."""
    return (
        full_name(row),
        words.weight(report, row.weight),
        ", ".join(row.runs_on),
        ", ".join(targets),
        answer.verdict.value,
        "; ".join(part for part in (words.why(answer.reasons, targets), *row.problems) if part),
    )


def _drift(report: Report, look: Look) -> str:
    rows = [
        Row((full_name(row), each.container, each.running, _list(each.running_platforms), _list(each.next_platforms)))
        for row in report.workloads
        for each in row.drift
    ]
    header = ("DRIFT", "CONTAINER", "RUNS", "WITH", "THE NEXT POD HAS")
    return look.table(header, rows) if rows else ""


def _list(platforms: Iterable[str]) -> str:
    return ", ".join(platforms) or "nothing"


def _groups(title: str, groups: Sequence[Group], report: Report, look: Look) -> str:
    if not groups:
        return ""
    header = (title, "WORKLOADS", "WEIGHT", *(f"{target.upper()} COULD RUN" for target in report.targets))
    rows = [
        Row(
            (
                each.name or "(none)",
                str(each.workloads),
                words.weight(report, each.weight),
                *(percent(share.ready_share) for share in each.targets),
            )
        )
        for each in groups
    ]
    return look.table(header, rows)


def _parts(report: Report, look: Look) -> Iterator[str]:
    if report.placement is not None:
        yield _named("PLACEMENT", (*report.placement.reasons, *report.placement.notable), look)
    parts: tuple[tuple[str, Part | None], ...] = (
        ("NUMA", report.numa),
        ("TAINTS", report.taints),
        ("BUILDS", report.builds),
    )
    for title, part in parts:
        if part is not None:
            rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in part.rows]
            yield look.table((title, "COUNT", "FIRST", "WHAT IT IS"), rows)


def _named(title: str, pods: Sequence[NamedPods], look: Look) -> str:
    rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in pods]
    return look.table((title, "PODS", "FIRST", "WHAT IT IS"), rows) if rows else ""


def _node_drift(report: Report, look: Look) -> str:
    if report.node_drift is None:
        return ""
    rows = [Row((each.node, each.platform, why)) for each in report.node_drift for why in each.reasons]
    if not rows:
        return f"{words.NO_DRIFT}\n"
    return look.table(("NODE", "PLATFORM", "WHAT WOULD NOT START AGAIN"), rows)


def _comparison(report: Report, look: Look) -> Iterator[str]:
    found = report.comparison
    if found is None:
        return
    shares = [
        f"{each.target}: {percent(each.before)} could run then, {percent(each.after)} now" for each in found.shares
    ]
    if not shares:
        shares = [NOT_COMPARED]
    yield look.lines((f"Since {found.former or 'the former report'}:", *shares))
    titles: tuple[tuple[str, Sequence[Change]], ...] = (
        ("BETTER", found.better),
        ("WORSE", found.worse),
        ("NEW", found.appeared),
        ("GONE", found.disappeared),
    )
    for title, changes in titles:
        rows = [Row((each.workload, each.target, each.before, each.after)) for each in changes]
        if rows:
            yield look.table((title, "TARGET", "BEFORE", "NOW"), rows)
