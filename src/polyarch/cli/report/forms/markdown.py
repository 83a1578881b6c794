"""The report as Markdown, for an issue or a merge request: what decides, and not every workload (RP-020).

Names, images and reasons are escaped: nothing that comes from a cluster may become markup of the page it is pasted to.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from polyarch.cli.report.forms import words
from polyarch.manifests.output.markdown import escaped
from polyarch.reports.document import Change, Group, Report, Verdict
from polyarch.reports.report import full_name
from polyarch.reports.verdicts import MOVABLE
from polyarch.reports.wording import NOT_COMPARED, few, percent, saved

MOST_ROWS: Final = 50


def report_markdown(report: Report) -> str:
    """Headings and tables; a table has at most :data:`MOST_ROWS` rows and says how many more there are."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# What can run where\n\n{escaped(words.heading(report))}"
    if not report.complete:
        yield "**Interrupted**: images that were not asked for yet count as unknown."
    if report.workloads:
        yield "\n".join(f"* {escaped(words.summary(report, sums))}" for sums in report.sums)
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
            (each.target, each.image, *words.holds(report, each), few(each.workloads, 3), each.suggestion.message)
            for each in report.blockers
        ]
        yield "## Images in the way\n\n" + _table(
            ("Target", "Image", "Alone", "With others", "Workloads", "Way out"), rows
        )
    held = [
        (
            full_name(row),
            words.weight(report, row.weight),
            answer.target,
            answer.verdict.value,
            words.why(answer.reasons),
        )
        for row in report.workloads
        for answer in row.answers
        if answer.verdict not in MOVABLE
    ]
    if held:
        yield "## Workloads that cannot run there\n\n" + _table(
            ("Workload", "Weight", "Target", "Verdict", "Why"), held
        )
    yield from _groups("Namespaces", "Namespace", report.namespaces, report)
    yield from _groups("Node pools", report.pool_label, report.pools, report)
    yield from _groups("Teams", report.team_label, report.teams, report)
    yield from _node_drift(report)
    yield from _comparison(report)
    problems = (f"{full_name(row)}: {problem}" for row in report.workloads for problem in row.problems)
    notes = [f"* {escaped(note)}" for note in (*report.notes, *problems)]
    if notes:
        yield "\n".join(notes)


def _groups(title: str, what: str, groups: Sequence[Group], report: Report) -> Iterator[str]:
    if groups:
        header = (what, "Workloads", "Weight", *(f"{target} could run" for target in report.targets))
        rows = (
            (
                each.name or "(none)",
                str(each.workloads),
                words.weight(report, each.weight),
                *(percent(share.ready_share) for share in each.targets),
            )
            for each in groups
        )
        yield f"## {title}\n\n" + _table(tuple(map(escaped, header)), rows)


def _node_drift(report: Report) -> Iterator[str]:
    if report.node_drift is None:
        return
    rows = [(each.node, each.platform, why) for each in report.node_drift for why in each.reasons]
    told = _table(("Node", "Platform", "What would not start again"), rows) if rows else words.NO_DRIFT
    yield f"## Before a drain\n\n{told}"


def _comparison(report: Report) -> Iterator[str]:
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
    lines = [header, ["---"] * len(header), *([escaped(cell) for cell in row] for row in rows[:MOST_ROWS])]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return text if len(rows) <= MOST_ROWS else f"{text}\n\n{len(rows) - MOST_ROWS} more rows are in the other forms."
