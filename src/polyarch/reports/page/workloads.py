"""Workloads: one table of all of them, and a page for each namespace that says about each what is in its way.

A namespace's page is a section that is seen when the address points to it (``report.html#namespace-web``). The style
sheet does that: it works without script, in a link that somebody sends, and on paper.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from urllib.parse import quote

from polyarch.reports.document import Answer, Group, Reason, Report, Verdict, WorkloadRow
from polyarch.reports.page.markup import Content, Markup, join, tag
from polyarch.reports.page.tables import Choice, Column, cell, controls, head, items, load, number, row, table
from polyarch.reports.wording import amount_words, counted, memory, percent

ANSWERED = tuple(verdict.value for verdict in Verdict if verdict is not Verdict.EXCLUDED)


def anchor(namespace: str) -> str:
    """The id of a namespace's page; a namespace in a file may be called anything, but never holds a colon here."""
    return f"namespace-{quote(namespace, safe='', errors='replace')}"


def namespace_link(namespace: str) -> Markup:
    return tag("a", namespace or "(none)", href=f"#{anchor(namespace)}")


def all_workloads(report: Report) -> Markup:
    """Every workload with its verdicts, and in short what is in the way."""
    teams = any(workload.team for workload in report.workloads)
    columns = [
        Column("Workload"),
        Column("Namespace"),
        *([Column("Team")] if teams else []),
        Column("Cores", number=True),
        Column("Replicas", number=True),
        *(Column(target) for target in report.targets),
        Column("In the way"),
    ]
    first = len(columns) - 1 - len(report.targets)
    choices = [Choice(target, first + place, ANSWERED) for place, target in enumerate(report.targets)]

    def one(workload: WorkloadRow) -> Markup:
        return row(
            head(workload.name, " ", tag("small", workload.kind)),
            cell(namespace_link(workload.namespace)),
            *([cell(workload.team)] if teams else []),
            load(workload.weight.cores),
            number(str(workload.weight.replicas)),
            *map(verdict_cell, workload.answers),
            cell(join(dict.fromkeys(_in_short(reason) for reason in _reasons(workload)), tag("br")), class_="words"),
        )

    return table(
        "workloads",
        f"{counted(len(report.workloads), 'workload')}, the heaviest first",
        columns,
        map(one, report.workloads),
        controls=controls("workloads", "a workload, a namespace or an image that is in the way", choices),
    )


def verdict_cell(answer: Answer) -> Markup:
    return cell(answer.verdict.value, class_=answer.verdict.value, order=_RANK[answer.verdict])


_RANK = {verdict: place for place, verdict in enumerate(Verdict)}


def namespace_pages(report: Report) -> Markup:
    """One page for each namespace that has a workload."""
    groups = {group.name: group for group in report.namespaces}
    by_name = sorted(report.workloads, key=lambda workload: workload.namespace)
    return join(
        (
            _page(namespace, list(workloads), groups, report)
            for namespace, workloads in groupby(by_name, key=lambda workload: workload.namespace)
        ),
        "\n",
    )


def _page(namespace: str, workloads: list[WorkloadRow], groups: Mapping[str, Group], report: Report) -> Markup:
    place = anchor(namespace)
    group = groups.get(namespace)
    said = [
        f"{counted(len(workloads), 'workload')}, {amount_words(sum(each.weight.cores for each in workloads), 'cores')}."
    ]
    if group is not None:
        said += [f"{percent(each.ready_share)} could run on {each.target} today." for each in group.targets]
    columns = [
        Column("Workload"),
        Column("Requests", number=True),
        Column("Images"),
        *(Column(target) for target in report.targets),
        Column("In the way"),
    ]
    return tag(
        "section",
        tag("h2", f"Namespace {namespace}" if namespace else "Without a namespace", id=f"{place}:title", tabindex="-1"),
        tag("p", tag("a", "Back to the whole report", href="#top")),
        tag("p", " ".join(said)),
        table(
            f"{place}:workloads",
            f"Workloads of {namespace}" if namespace else "Workloads without a namespace",
            columns,
            map(_in_full, workloads),
        ),
        id=place,
        class_="namespace",
        aria_labelledby=f"{place}:title",
    )


def _in_full(workload: WorkloadRow) -> Markup:
    weight = workload.weight
    requests: list[Content] = [amount_words(weight.cores, "cores"), tag("br"), memory(weight.memory_bytes)]
    if weight.replicas != 1 or weight.pods != 1:
        requests += [tag("br"), f"{counted(weight.replicas, 'replica')}, {counted(weight.pods, 'pod')}"]
    return row(
        head(workload.name, " ", tag("small", join([workload.kind, workload.source or None], ", "))),
        cell(*requests, class_="number", order=weight.cores),
        cell(join(workload.images, tag("br")), class_="words"),
        *map(verdict_cell, workload.answers),
        cell(items(_sentences(workload)), class_="words"),
    )


def _sentences(workload: WorkloadRow) -> Iterable[Content]:
    """Each reason once, with the targets that it is about where these are not all."""
    targets: dict[Reason, list[str]] = {}
    for answer in workload.answers:
        for reason in answer.reasons:
            targets.setdefault(reason, []).append(answer.target)
    for reason, concerned in targets.items():
        about = "" if len(concerned) == len(workload.answers) else f"{', '.join(concerned)}: "
        where = f"{reason.path} {reason.value}".strip()
        yield join([f"{about}{reason.message}", tag("code", where) if where else None], " ")
    for answer in workload.answers:
        if answer.blocks_nodes:
            yield f"Blocks every node of {answer.target}: none is ready without this DaemonSet."
    for drift in workload.drift:
        yield (
            f"{drift.container} runs {drift.running} ({', '.join(drift.running_platforms) or 'no platform'}), the next "
            f"pod {drift.next} ({', '.join(drift.next_platforms) or 'no platform'})."
        )
    yield from workload.problems


def _reasons(workload: WorkloadRow) -> Iterable[Reason]:
    return (reason for answer in workload.answers for reason in answer.reasons)


def _in_short(reason: Reason) -> str:
    return reason.image or f"{reason.path} {reason.value}".strip() or reason.message
