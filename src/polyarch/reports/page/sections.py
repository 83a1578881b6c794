"""The sections between overview and workloads: blockers, groups, what other features say, changes since a report."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from polyarch.reports.document import (
    Blocker,
    Change,
    Comparison,
    Group,
    NamedPods,
    NodeDrift,
    Part,
    PartRow,
    Report,
    Suggestion,
)
from polyarch.reports.page.markup import Content, Markup, join, tag
from polyarch.reports.page.tables import Choice, Column, cell, controls, head, items, load, number, row, table
from polyarch.reports.page.workloads import namespace_link
from polyarch.reports.wording import NOT_COMPARED, NOTHING, amount, counted, percent

NAMED = 5
"""Workloads that are named beside an image; more are counted."""


def section(name: str, title: str, *content: Content) -> Markup:
    """A part of the page by its id, which its heading names."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, aria_labelledby=f"{name}-title")


def blockers(report: Report) -> Markup | None:
    """Images, the heaviest first, each with what it keeps back and the way out."""
    if not report.blockers:
        return None
    basis = report.basis
    columns = [
        Column("Image"),
        Column("Lacks"),
        Column("Is built for"),
        Column(f"{basis} it alone keeps back".capitalize(), number=True),
        Column("Together with others", number=True),
        Column("Workloads"),
        Column("Way out"),
    ]

    def one(blocker: Blocker) -> Markup:
        return row(
            head(blocker.image),
            cell(blocker.target),
            cell(", ".join(blocker.platforms) or NOTHING),
            load(amount(blocker.alone, basis)),
            load(amount(blocker.together, basis)),
            cell(_named(blocker.workloads), class_="words"),
            cell(join(_way_out(blocker.suggestion), " "), class_="words"),
        )

    targets = list(dict.fromkeys(blocker.target for blocker in report.blockers))
    choices = [Choice("Lacks", 1, targets)] if len(targets) > 1 else []
    return section(
        "blockers",
        "Images in the way",
        table(
            "blockers",
            f"{counted(len(report.blockers), 'image')}, the heaviest first",
            columns,
            map(one, report.blockers),
            controls=controls("blockers", "an image or a workload", choices),
        ),
    )


def _way_out(suggestion: Suggestion) -> Iterable[Content]:
    if suggestion.reference:
        yield tag("code", suggestion.reference)
    yield suggestion.message


def _named(names: Sequence[str]) -> Markup:
    more = len(names) - NAMED
    return join([*names[:NAMED], f"and {more} more" if more > 0 else None], tag("br"))


def groups(report: Report) -> list[Markup]:
    """Namespaces, node pools and teams, each with its shares."""
    with_pages = {workload.namespace for workload in report.workloads}
    named = [
        ("namespaces", "Namespaces", "Namespace", report.namespaces),
        ("pools", "Node pools", f"{report.pool_label or 'Pool'}", report.pools),
        ("teams", "Teams", f"{report.team_label or 'Team'}", report.teams),
    ]

    def name_of(place: str, group: Group) -> Content:
        if place == "namespaces" and group.name in with_pages:
            return namespace_link(group.name)
        return group.name or "(none)"

    return [
        section(
            place,
            title,
            table(
                place,
                counted(len(found), head_word.lower() if place == "namespaces" else "group"),
                [Column(head_word), *_group_columns(report)],
                [_group_row(name_of(place, group), group, report) for group in found],
                controls=controls(place, f"in {title.lower()}") if len(found) > NAMED else None,
            ),
        )
        for place, title, head_word, found in named
        if found
    ]


def _group_columns(report: Report) -> list[Column]:
    shares = [Column(f"{target}: {what}", number=True) for target in report.targets for what in ("runs", "could run")]
    return [Column("Workloads", number=True), Column(report.basis.capitalize(), number=True), *shares]


def _group_row(name: Content, group: Group, report: Report) -> Markup:
    shares = [
        number(percent(share), -1 if share is None else share)
        for each in group.targets
        for share in (each.runs_share, each.ready_share)
    ]
    return row(head(name), number(str(group.workloads)), load(amount(group.weight, report.basis)), *shares)


def features(report: Report) -> list[Markup]:
    """What placement, taints, NUMA and builds say about this cluster; nothing about those that are not there."""
    found = []
    if placement := report.placement:
        found.append(
            section(
                "placement",
                "What placement decided",
                _facts("placement-reasons", "Pods by the reason of their decision", placement.reasons),
                _facts("placement-notable", "Pods to look at", placement.notable),
            )
        )
    parts: list[tuple[str, str, Part | None]] = [
        ("taints", "Taints", report.taints),
        ("numa", "NUMA", report.numa),
        ("builds", "Builds", report.builds),
    ]
    found += [section(name, title, _facts(name, title, part.rows)) for name, title, part in parts if part]
    return found


def _facts(name: str, caption: str, rows: Iterable[NamedPods | PartRow]) -> Markup | None:
    listed = [
        row(head(each.what), number(str(each.count)), cell(_few(each.names, each.count)), cell(each.message))
        for each in rows
    ]
    columns = [Column("What"), Column("How many", number=True), Column("Which"), Column("")]
    return table(name, caption, columns, listed) if listed else None


def _few(names: Sequence[str], count: int) -> Markup:
    more = count - len(names)
    return join([*names, f"and {more} more" if more > 0 and names else None], tag("br"))


def node_drift(report: Report) -> Markup | None:
    """Pods that could not run again on the node that they run on."""
    if report.node_drift is None:
        return None
    lead = "Pods that run now, and that their node could not run once they restart: before a drain, mend these."
    if not report.node_drift:
        return section("drift", "Before a drain", tag("p", "Every pod could restart on its node."))

    def one(drift: NodeDrift) -> Markup:
        pods = (f"{pod}: {reason}" for pod, reason in zip_longest(drift.pods, drift.reasons, fillvalue=""))
        return row(head(drift.node), cell(drift.platform), number(str(len(drift.pods))), cell(items(pods)))

    columns = [Column("Node"), Column("Platform"), Column("Pods", number=True), Column("Which, and why")]
    rows = map(one, report.node_drift)
    return section("drift", "Before a drain", tag("p", lead), table("drift", "Pods by node", columns, rows))


def comparison(report: Report) -> Markup | None:
    """What became better and what got worse since a former report."""
    former = report.comparison
    if former is None:
        return None
    shares = [
        row(head(each.target), number(percent(each.before)), number(percent(each.after))) for each in former.shares
    ]
    columns = [Column("Target"), Column("Could run then", number=True), Column("Now", number=True)]
    return section(
        "comparison",
        f"Since the report of {former.former}" if former.former else "Since the former report",
        table("comparison-shares", "Shares then and now", columns, shares) if shares else tag("p", f"{NOT_COMPARED}."),
        *_changes(former),
    )


def _changes(former: Comparison) -> Iterable[Markup]:
    columns = [
        Column("Workload"),
        Column("Target"),
        Column("Before"),
        Column("After"),
        Column("Cores", number=True),
    ]
    named = [("better", former.better), ("worse", former.worse), ("new", former.appeared), ("gone", former.disappeared)]

    def one(change: Change) -> Markup:
        return row(
            head(change.workload),
            cell(change.target),
            cell(change.before or NOTHING, class_=change.before or None),
            cell(change.after or NOTHING, class_=change.after or None),
            load(change.cores),
        )

    for word, changes in named:
        if changes:
            caption = f"{counted(len(changes), 'workload')} {'is' if len(changes) == 1 else 'are'} {word}"
            yield table(f"comparison-{word}", caption, columns, map(one, changes))
