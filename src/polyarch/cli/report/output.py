"""The formats of a report: text for a terminal, Markdown, CSV, JSON, YAML, and the HTML page of ``reports.page``.

Each is made of the document alone.
"""

import csv
import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from polyarch.cli.output.documents import document_text
from polyarch.cli.output.tables import Row, StyledText, bar, folded, legend, table
from polyarch.cli.output.terminal import printable, styled, terminal_width
from polyarch.manifests.output.csv import guarded
from polyarch.manifests.output.markdown import escaped
from polyarch.reports.document import (
    Blocker,
    Change,
    FeatureSection,
    Group,
    NamedPods,
    Reason,
    Report,
    TargetSums,
    TargetVerdict,
    Verdict,
    Weight,
    WorkloadRow,
)
from polyarch.reports.report import full_name
from polyarch.reports.verdicts import MOVABLE
from polyarch.reports.wording import NOT_COMPARED, amount, amount_words, counted, excludes, few, lacks, percent, saved


def rendered(report: Report, form: str, *, colour: bool = False) -> str:
    """The text of a form."""
    match form:
        case "text":
            return report_text(report, TextStyle(colour, terminal_width() if colour else None))
        case "csv":
            return report_csv(report)
        case "markdown":
            return report_markdown(report)
        case "html":
            from polyarch.reports.page import html_page

            return html_page(report)
        case _:
            return document_text(msgspec.to_builtins(report), form)


# -- text


MAX_BLOCKERS: Final = 10
MAX_CURVE_POINTS: Final = 10
BAR: Final = 16
ROOM_FOR_ONE: Final = 140
"""Columns of a terminal on which shares and numbers of workloads are one table."""
LEGEND: Final = legend("runs there", "could run there", "could not")
STYLES: Final = {Verdict.CONSTRAINED: "yellow", Verdict.IMAGE: "red", Verdict.UNKNOWN: "cyan"}


class TextStyle(NamedTuple):
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


PLAIN: Final = TextStyle()


def report_text(report: Report, look: TextStyle = PLAIN) -> str:
    """Blocks, each with a heading; what there is nothing to say about is left out."""
    return "\n".join(block for block in _blocks(report, look) if block)


def _blocks(report: Report, look: TextStyle) -> Iterator[str]:
    yield styled(printable(heading(report)), "bold", colour=look.colour) + "\n" + _incomplete(report, look)
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


def _incomplete(report: Report, look: TextStyle) -> str:
    said = "Interrupted: images that were not asked for yet count as unknown."
    return "" if report.complete else styled(said, "yellow", colour=look.colour) + "\n"


def _targets(report: Report, look: TextStyle) -> str:
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
    said = f"{weight(report, report.weight)} requested by {counted(len(report.workloads), 'workload')}"
    drawn = styled(LEGEND, "dim", colour=look.colour) + "\n" if look.colour else ""
    if look.width is None or look.width >= ROOM_FOR_ONE:
        return (
            f"{said}; the last six columns count workloads\n" + look.table((*shares, *counts), map(Row, rows)) + drawn
        )
    split = len(shares)
    return f"{said}\n{look.table(shares, (Row(row[:split]) for row in rows))}{drawn}\n" + look.table(
        ("WORKLOADS", *counts), (Row((row[0], *row[split:])) for row in rows)
    )


def _share(sums: TargetSums, share: float | None, look: TextStyle) -> str | StyledText:
    """A share of the weight; on a terminal with a bar of what runs there already and what could besides."""
    text = percent(share)
    if not look.colour or share is None:
        return text
    runs = min(sums.runs_share or 0.0, share)
    drawn = bar(runs, share - runs, width=BAR, style="green", partly_style="green", colour=look.colour)
    return StyledText(f"{drawn.shown} {text}", drawn.width + 1 + len(text))


def _about(sums: TargetSums) -> Iterator[str]:
    if sums.blocking_daemon_sets:
        names = few(sums.blocking_daemon_sets, 5)
        yield f"{sums.target}: DaemonSets without which no node of it is ready: {names}"
    if sums.saving is not None:
        yield f"{sums.target}: {saved(sums.saving)}"


def _blockers(report: Report, look: TextStyle) -> str:
    rows: list[Row] = []
    for target in report.targets:
        found = [each for each in report.blockers if each.target == target]
        for each in found[:MAX_BLOCKERS]:
            alone, together = holds(report, each)
            rows.append(Row((target, each.image, alone, together, few(each.workloads, 2), each.suggestion.message)))
        if len(found) > MAX_BLOCKERS:
            rows.append(Row((target, f"{len(found) - MAX_BLOCKERS} more images", "", "", "", "")))
    header = ("TARGET", "IMAGE IN THE WAY", "ALONE", "WITH OTHERS", "WORKLOADS", "WAY OUT")
    return look.table(header, rows) if rows else ""


def _curve(report: Report, sums: TargetSums, look: TextStyle) -> str:
    if len(sums.curve) < 2:
        return ""
    rows = [
        Row((str(point.images), _share(sums, point.share, look), point.image or "(constraints lifted)"))
        for point in sums.curve[: MAX_CURVE_POINTS + 1]
    ]
    return look.table((f"{sums.target.upper()}: IMAGES FIXED", "COULD RUN", "THE LAST OF THEM"), rows)


def _workloads(report: Report, look: TextStyle) -> str:
    rows = [
        Row(_cells(report, row, answer, targets), STYLES.get(answer.verdict, ""))
        for row in report.workloads
        for answer, targets in joined(row.answers)
    ]
    header = ("WORKLOAD", "WEIGHT", "RUNS ON", "TARGET", "VERDICT", "WHY")
    return look.table(header, rows) if rows else ""


def _cells(report: Report, row: WorkloadRow, answer: TargetVerdict, targets: Sequence[str]) -> Sequence[str]:
    """Every line says which workload it is about, so that lines can be searched for."""
    return (
        full_name(row),
        weight(report, row.weight),
        ", ".join(row.runs_on),
        ", ".join(targets),
        answer.verdict.value,
        "; ".join(part for part in (why(answer.reasons, targets), *row.problems) if part),
    )


def _drift(report: Report, look: TextStyle) -> str:
    rows = [
        Row((full_name(row), each.container, each.running, _list(each.running_platforms), _list(each.next_platforms)))
        for row in report.workloads
        for each in row.drift
    ]
    header = ("DRIFT", "CONTAINER", "RUNS", "WITH", "THE NEXT POD HAS")
    return look.table(header, rows) if rows else ""


def _list(platforms: Iterable[str]) -> str:
    return ", ".join(platforms) or "nothing"


def _groups(title: str, groups: Sequence[Group], report: Report, look: TextStyle) -> str:
    if not groups:
        return ""
    header = (title, "WORKLOADS", "WEIGHT", *(f"{target.upper()} COULD RUN" for target in report.targets))
    rows = [
        Row(
            (
                each.name or "(none)",
                str(each.workloads),
                weight(report, each.weight),
                *(percent(share.ready_share) for share in each.targets),
            )
        )
        for each in groups
    ]
    return look.table(header, rows)


def _parts(report: Report, look: TextStyle) -> Iterator[str]:
    if report.placement is not None:
        yield _named("PLACEMENT", (*report.placement.reasons, *report.placement.notable), look)
    parts: tuple[tuple[str, FeatureSection | None], ...] = (
        ("NUMA", report.numa),
        ("TAINTS", report.taints),
        ("BUILDS", report.builds),
    )
    for title, part in parts:
        if part is not None:
            rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in part.rows]
            yield look.table((title, "COUNT", "FIRST", "WHAT IT IS"), rows)


def _named(title: str, pods: Sequence[NamedPods], look: TextStyle) -> str:
    rows = [Row((each.what, str(each.count), ", ".join(each.names), each.message)) for each in pods]
    return look.table((title, "PODS", "FIRST", "WHAT IT IS"), rows) if rows else ""


def _node_drift(report: Report, look: TextStyle) -> str:
    if report.node_drift is None:
        return ""
    rows = [Row((each.node, each.platform, why)) for each in report.node_drift for why in each.reasons]
    if not rows:
        return f"{NO_DRIFT}\n"
    return look.table(("NODE", "PLATFORM", "WHAT WOULD NOT START AGAIN"), rows)


def _comparison(report: Report, look: TextStyle) -> Iterator[str]:
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


# -- Markdown, for an issue or a merge request: what decides, and not every workload


MAX_ROWS: Final = 50


def report_markdown(report: Report) -> str:
    """Headings and tables; a table has at most :data:`MAX_ROWS` rows and says how many more there are."""
    return "\n\n".join(_markdown_blocks(report)) + "\n"


def _markdown_blocks(report: Report) -> Iterator[str]:
    yield f"# What can run where\n\n{escaped(heading(report))}"
    if not report.complete:
        yield "**Interrupted**: images that were not asked for yet count as unknown."
    if report.workloads:
        yield "\n".join(f"* {escaped(summary(report, sums))}" for sums in report.sums)
    header = ("Target", *(each.value for each in Verdict))
    yield _table(header, ((sums.target, *(str(each.workloads) for each in sums.verdicts)) for sums in report.sums))
    for sums in report.sums:
        if sums.saving is not None:
            yield escaped(f"{sums.target}: {saved(sums.saving)}")
        if sums.blocking_daemon_sets:
            names = few(sums.blocking_daemon_sets, 5)
            yield escaped(f"{sums.target}: DaemonSets without which no node of it is ready: {names}")
    if report.blockers:
        rows = [
            (each.target, each.image, *holds(report, each), few(each.workloads, 3), each.suggestion.message)
            for each in report.blockers
        ]
        yield "## Images in the way\n\n" + _table(
            ("Target", "Image", "Alone", "With others", "Workloads", "Way out"), rows
        )
    held = [
        (
            full_name(row),
            weight(report, row.weight),
            answer.target,
            answer.verdict.value,
            why(answer.reasons),
        )
        for row in report.workloads
        for answer in row.answers
        if answer.verdict not in MOVABLE
    ]
    if held:
        yield "## Workloads that cannot run there\n\n" + _table(
            ("Workload", "Weight", "Target", "Verdict", "Why"), held
        )
    yield from _markdown_groups("Namespaces", "Namespace", report.namespaces, report)
    yield from _markdown_groups("Node pools", report.pool_label, report.pools, report)
    yield from _markdown_groups("Teams", report.team_label, report.teams, report)
    yield from _markdown_node_drift(report)
    yield from _markdown_comparison(report)
    problems = (f"{full_name(row)}: {problem}" for row in report.workloads for problem in row.problems)
    notes = [f"* {escaped(note)}" for note in (*report.notes, *problems)]
    if notes:
        yield "\n".join(notes)


def _markdown_groups(title: str, what: str, groups: Sequence[Group], report: Report) -> Iterator[str]:
    if groups:
        header = (what, "Workloads", "Weight", *(f"{target} could run" for target in report.targets))
        rows = (
            (
                each.name or "(none)",
                str(each.workloads),
                weight(report, each.weight),
                *(percent(share.ready_share) for share in each.targets),
            )
            for each in groups
        )
        yield f"## {title}\n\n" + _table(tuple(map(escaped, header)), rows)


def _markdown_node_drift(report: Report) -> Iterator[str]:
    if report.node_drift is None:
        return
    rows = [(each.node, each.platform, why) for each in report.node_drift for why in each.reasons]
    told = _table(("Node", "Platform", "What would not start again"), rows) if rows else NO_DRIFT
    yield f"## Before a drain\n\n{told}"


def _markdown_comparison(report: Report) -> Iterator[str]:
    found = report.comparison
    if found is None:
        return
    changes: tuple[tuple[str, Sequence[Change]], ...] = (
        ("better", found.better),
        ("worse", found.worse),
        ("new", found.appeared),
        ("gone", found.disappeared),
    )
    rows = [
        (what, each.workload, each.target, each.before, each.after) for what, several in changes for each in several
    ]
    shares = "\n".join(
        f"* {escaped(each.target)}: {percent(each.before)} then, {percent(each.after)} now" for each in found.shares
    )
    shares = shares or f"* {NOT_COMPARED}"
    title = f"## Since {escaped(found.former or 'the former report')}\n\n{shares}"
    yield f"{title}\n\n{_table(('What', 'Workload', 'Target', 'Before', 'Now'), rows)}" if rows else title


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rows = list(rows)
    lines = [header, ["---"] * len(header), *([escaped(cell) for cell in row] for row in rows[:MAX_ROWS])]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return text if len(rows) <= MAX_ROWS else f"{text}\n\n{len(rows) - MAX_ROWS} more rows are in the other forms."


# -- CSV (RFC 4180): one row a workload and target


HEADER = (
    *("namespace", "kind", "name", "team", "target", "verdict", "cores", "memoryBytes", "replicas", "pods"),
    *("podsOnTarget", "runsOn", "images", "blockedBy", "reasons", "drift", "problems", "source"),
)


def report_csv(report: Report) -> str:
    """With a header row."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(HEADER)
    writer.writerows(_row(row, answer) for row in report.workloads for answer in row.answers)
    return stream.getvalue()


def _row(row: WorkloadRow, answer: TargetVerdict) -> list[str]:
    texts = (row.namespace, row.kind, row.name, row.team, answer.target, answer.verdict.value)
    numbers = (row.weight.cores, row.weight.memory_bytes, row.weight.replicas, row.weight.pods, answer.pods)
    cells = (
        " ".join(row.runs_on),
        " ".join(row.images),
        " ".join(each.image for each in answer.reasons if each.image),
        "; ".join(each.message for each in answer.reasons),
        "; ".join(f"{each.container}: {each.running}" for each in row.drift),
        "; ".join(row.problems),
        row.source,
    )
    exact = (f"{number:.15g}" if isinstance(number, float) else str(number) for number in numbers)
    return [*map(guarded, texts), *exact, *map(guarded, cells)]


# -- sentences that text and Markdown have in common


NO_DRIFT: Final = "Every pod could start again on its node."
_OF_A_TARGET: Final[Mapping[str, Callable[[Reason, str], str]]] = {
    "ImageLacksTarget": lambda reason, targets: lacks(reason.image, reason.value, targets),
    "RequiredAffinity": lambda reason, targets: excludes(targets, reason.value),
}
"""Reasons whose sentence names the target, and how to name several."""


def weight(report: Report, given: Weight) -> str:
    """In what shares are of."""
    return amount_words(amount(given, report.basis), report.basis)


def why(reasons: Sequence[Reason], targets: Sequence[str] = ()) -> str:
    """The sentences; of a field also where it stands. What holds for several targets is said of all of them."""
    said = ((_of_all(each, targets) if len(targets) > 1 else each.message, each.path) for each in reasons)
    return "; ".join(f"{message} ({path})" if path else message for message, path in said)


def joined(answers: Iterable[TargetVerdict]) -> list[tuple[TargetVerdict, list[str]]]:
    """One of the answers that differ in nothing but the target, with all of these targets."""
    found: dict[Hashable, tuple[TargetVerdict, list[str]]] = {}
    for each in answers:
        found.setdefault((each.verdict, tuple(map(_alike, each.reasons))), (each, []))[1].append(each.target)
    return list(found.values())


def _alike(reason: Reason) -> Hashable:
    return (reason.code, "" if reason.code in _OF_A_TARGET else reason.message, reason.path, reason.value, reason.image)


def _of_all(reason: Reason, targets: Sequence[str]) -> str:
    if reason.code not in _OF_A_TARGET:
        return reason.message
    return _OF_A_TARGET[reason.code](reason, " or ".join(targets))


def heading(report: Report) -> str:
    """What the report is of."""
    source = report.source
    when = f" at {source.taken_at}" if source.taken_at else ""
    name = f" {source.name}" if source.name else ""
    return f"{'Cluster' if source.kind == 'cluster' else 'Manifests'}{name}{when}"


def summary(report: Report, sums: TargetSums) -> str:
    """One target in one sentence. Without nodes, as of manifests, nothing is said of them and of what runs."""
    runs = f"{percent(sums.runs_share)} runs there, " if report.nodes else ""
    nodes = f", {counted(sums.nodes, 'node')}" if report.nodes else ""
    return (
        f"{sums.target}: {runs}{percent(sums.ready_share)} could today, "
        f"{percent(sums.unconstrained_share)} after lifting constraints{nodes}"
    )


def holds(report: Report, blocker: Blocker) -> tuple[str, str]:
    """What an image holds back alone, and together with others."""
    return weight(report, blocker.alone), weight(report, blocker.together)
