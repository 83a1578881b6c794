"""The report for people at a terminal: sums, what is in the way, workloads (RP-020)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from polyarch.cli.output.bars import Drawn, bar, legend
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.cli.report.forms import words
from polyarch.reports.comparison import full_name
from polyarch.reports.document import Answer, Change, Group, NamedPods, Part, Report, TargetSums, Verdict, WorkloadRow
from polyarch.reports.wording import counted, few, percent, saved

MOST_BLOCKERS: Final = 10
MOST_CURVE: Final = 10
BAR: Final = 16
LEGEND: Final = legend("runs there", "could run there", "could not")
STYLES: Final = {Verdict.CONSTRAINED: "yellow", Verdict.IMAGE: "red", Verdict.UNKNOWN: "cyan"}


def report_text(report: Report, *, colour: bool = False) -> str:
    """Blocks, each with a heading; what there is nothing to say about is left out."""
    return "\n".join(block for block in _blocks(report, colour) if block)


def _blocks(report: Report, colour: bool) -> Iterator[str]:
    yield styled(printable(words.heading(report)), "bold", colour=colour) + "\n" + _incomplete(report, colour)
    yield _targets(report, colour)
    for sums in report.sums:
        yield _lines(_about(sums))
    yield _blockers(report, colour)
    yield from (_curve(report, sums, colour) for sums in report.sums)
    yield _workloads(report, colour)
    yield _drift(report, colour)
    yield _groups("NAMESPACE", report.namespaces, report, colour)
    yield _groups(f"POOL ({report.pool_label})", report.pools, report, colour)
    yield _groups(f"TEAM ({report.team_label})", report.teams, report, colour)
    yield from _parts(report, colour)
    yield _node_drift(report, colour)
    yield from _comparison(report, colour)
    yield _lines(report.notes)


def _incomplete(report: Report, colour: bool) -> str:
    said = "Interrupted: images that were not asked for yet count as unknown."
    return "" if report.complete else styled(said, "yellow", colour=colour) + "\n"


def _targets(report: Report, colour: bool) -> str:
    header = ("TARGET", "NODES", "RUN THERE", "COULD RUN", "UNCONSTRAINED", *(each.value.upper() for each in Verdict))
    rows = [
        Row(
            (
                sums.target,
                str(sums.nodes),
                percent(sums.runs_share),
                _share(sums, sums.ready_share, colour),
                percent(sums.unconstrained_share),
                *(str(each.workloads) for each in sums.verdicts),
            )
        )
        for sums in report.sums
    ]
    said = f"{words.weight(report, report.weight)} requested by {counted(len(report.workloads), 'workload')}"
    drawn = styled(LEGEND, "dim", colour=colour) + "\n" if colour else ""
    return f"{said}; the last six columns count workloads\n" + table(header, rows, colour=colour) + drawn


def _share(sums: TargetSums, share: float | None, colour: bool) -> str | Drawn:
    """A share of the weight; on a terminal with a bar of what runs there already and what could besides."""
    text = percent(share)
    if not colour or share is None:
        return text
    runs = min(sums.runs_share or 0.0, share)
    drawn = bar(runs, share - runs, width=BAR, style="green", partly_style="green", colour=colour)
    return Drawn(f"{drawn.shown} {text}", drawn.width + 1 + len(text))


def _about(sums: TargetSums) -> Iterator[str]:
    if sums.blocking_daemon_sets:
        names = few(sums.blocking_daemon_sets, 5)
        yield f"{sums.target}: DaemonSets without which no node of it is ready: {names}"
    if sums.saving is not None:
        yield f"{sums.target}: {saved(sums.saving)}"


def _blockers(report: Report, colour: bool) -> str:
    rows: list[Row] = []
    for target in report.targets:
        found = [each for each in report.blockers if each.target == target]
        for each in found[:MOST_BLOCKERS]:
            alone, together = words.holds(report, each)
            rows.append(Row((target, each.image, alone, together, few(each.workloads, 2), each.suggestion.message)))
        if len(found) > MOST_BLOCKERS:
            rows.append(Row((target, f"{len(found) - MOST_BLOCKERS} more images", "", "", "", "")))
    header = ("TARGET", "IMAGE IN THE WAY", "ALONE", "WITH OTHERS", "WORKLOADS", "WAY OUT")
    return table(header, rows, colour=colour) if rows else ""


def _curve(report: Report, sums: TargetSums, colour: bool) -> str:
    if len(sums.curve) < 2:
        return ""
    rows = [
        Row((str(point.images), _share(sums, point.share, colour), point.image or "(constraints lifted)"))
        for point in sums.curve[: MOST_CURVE + 1]
    ]
    return table((f"{sums.target.upper()}: IMAGES FIXED", "COULD RUN", "THE LAST OF THEM"), rows, colour=colour)


def _workloads(report: Report, colour: bool) -> str:
    rows = [
        Row(_cells(report, row, answer, targets), STYLES.get(answer.verdict, ""))
        for row in report.workloads
        for answer, targets in words.joined(row.answers)
    ]
    header = ("WORKLOAD", "WEIGHT", "RUNS ON", "TARGET", "VERDICT", "WHY")
    return table(header, rows, colour=colour) if rows else ""


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


def _drift(report: Report, colour: bool) -> str:
    rows = [
        Row((full_name(row), each.container, each.running, _list(each.running_platforms), _list(each.next_platforms)))
        for row in report.workloads
        for each in row.drift
    ]
    header = ("DRIFT", "CONTAINER", "RUNS", "WITH", "THE NEXT POD HAS")
    return table(header, rows, colour=colour) if rows else ""


def _list(platforms: Iterable[str]) -> str:
    return ", ".join(platforms) or "nothing"


def _groups(title: str, groups: Sequence[Group], report: Report, colour: bool) -> str:
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
    return table(header, rows, colour=colour)


def _parts(report: Report, colour: bool) -> Iterator[str]:
    if report.placement is not None:
        yield _named("PLACEMENT", (*report.placement.reasons, *report.placement.notable), colour)
    parts: tuple[tuple[str, Part | None], ...] = (
        ("NUMA", report.numa),
        ("TAINTS", report.taints),
        ("BUILDS", report.builds),
    )
    for title, part in parts:
        if part is not None:
            rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in part.rows]
            yield table((title, "COUNT", "FIRST", "WHAT IT IS"), rows, colour=colour)


def _named(title: str, pods: Sequence[NamedPods], colour: bool) -> str:
    rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in pods]
    return table((title, "PODS", "FIRST", "WHAT IT IS"), rows, colour=colour) if rows else ""


def _node_drift(report: Report, colour: bool) -> str:
    if report.node_drift is None:
        return ""
    rows = [Row((each.node, each.platform, why)) for each in report.node_drift for why in each.reasons]
    if not rows:
        return "Every pod could start again on its node.\n"
    return table(("NODE", "PLATFORM", "WHAT WOULD NOT START AGAIN"), rows, colour=colour)


def _comparison(report: Report, colour: bool) -> Iterator[str]:
    found = report.comparison
    if found is None:
        return
    shares = [
        f"{each.target}: {percent(each.before)} could run then, {percent(each.after)} now" for each in found.shares
    ]
    yield _lines((f"Since {found.former or 'the former report'}:", *shares))
    titles: tuple[tuple[str, Sequence[Change]], ...] = (
        ("BETTER", found.better),
        ("WORSE", found.worse),
        ("NEW", found.appeared),
        ("GONE", found.disappeared),
    )
    for title, changes in titles:
        rows = [Row((each.workload, each.target, each.before, each.after)) for each in changes]
        if rows:
            yield table((title, "TARGET", "BEFORE", "NOW"), rows, colour=colour)


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{printable(text)}\n" for text in texts)
