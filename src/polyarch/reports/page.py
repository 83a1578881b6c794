"""The report as one HTML file that asks nobody for anything.

Its content security policy allows exactly one style sheet and one script (``page.css``, ``page.js``), by their hashes:
were markup to get through in a name after all, a browser would neither run nor load it. Pure: a report in, a text out.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby, zip_longest
from pathlib import Path
from urllib.parse import quote

from polyarch.reports.document import (
    Blocker,
    Change,
    Comparison,
    FeatureSection,
    Group,
    NamedPods,
    NodeDrift,
    PartRow,
    Reason,
    Report,
    Suggestion,
    TargetSums,
    TargetVerdict,
    Verdict,
    WorkloadRow,
)
from polyarch.reports.page_markup import (
    Column,
    Content,
    FilterColumn,
    Markup,
    bar,
    cell,
    controls,
    curve,
    head,
    items,
    join,
    load,
    number,
    row,
    table,
    tag,
)
from polyarch.reports.wording import (
    MEANINGS,
    NOT_COMPARED,
    NOTHING,
    amount,
    amount_words,
    counted,
    memory,
    percent,
    saved,
)

TITLE = "What runs where, and what could"


def html_page(report: Report) -> str:
    """The whole report as one HTML file, equal for equal reports."""
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    title = f"{TITLE}: {report.source.name}" if report.source.name else TITLE
    top = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("header", tag("h1", TITLE), tag("p", facts(report)), _contents(report)),
        tag("main", _whole(report), namespace_pages(report)),
        tag("footer", tag("p", "Made by ", tag("code", "polyarch report"), f", {report.api_version}.")),
        tag("script", Markup(script)),
        id="top",
    )
    return f"<!DOCTYPE html>\n{tag('html', top, body, lang='en')}\n"


def _whole(report: Report) -> Markup:
    parts: list[Content] = [
        notes(report),
        section("targets", "By target", tiles(report)),
        comparison(report),
        curves(report),
        blockers(report),
        *groups(report),
        nodes(report),
        *features(report),
        node_drift(report),
        section("workloads", "Workloads", all_workloads(report)),
    ]
    return tag("div", join(parts, "\n"), id="whole")


def _contents(report: Report) -> Markup:
    """Links to the sections that there are."""
    places: list[tuple[str, str, object]] = [
        ("images", "Images to fix", [sums for sums in report.sums if len(sums.curve) > 1]),
        ("blockers-title", "Images in the way", report.blockers),
        ("namespaces-title", "Namespaces", report.namespaces),
        ("pools-title", "Node pools", report.pools),
        ("teams-title", "Teams", report.teams),
        ("workloads-title", "Workloads", report.workloads),
    ]
    links = [tag("li", tag("a", words, href=f"#{place}")) for place, words, there in places if there]
    return tag("nav", tag("ul", *links), aria_label="Sections")


@cache
def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def section(name: str, title: str, *content: Content) -> Markup:
    """A part of the page by its id, which its heading names."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, aria_labelledby=f"{name}-title")


# -- the overview: a tile for each target, the curve of its images, nodes, and what to bear in mind --------------------

LISTED_SETS = 5
LISTED = 25
"""Rows of a curve's table; the rest is in the report's other forms."""


def tiles(report: Report) -> Markup:
    words = [part for verdict, meaning in MEANINGS.items() for part in (tag("dt", verdict.value), tag("dd", meaning))]
    return join(
        [
            tag("div", *(_tile(place, sums, report) for place, sums in enumerate(report.sums)), class_="tiles"),
            tag("details", tag("summary", "What the words mean"), tag("dl", *words)),
        ]
    )


def _tile(place: int, sums: TargetSums, report: Report) -> Markup:
    """Without nodes, as of manifests, nothing is said of them and of what runs."""
    basis = report.basis
    counting = [each for each in sums.verdicts if each.verdict is not Verdict.EXCLUDED]
    parts = [(each.verdict, amount(each.weight, basis)) for each in counting]
    words = ", ".join(f"{verdict} {amount_words(of, basis)}" for verdict, of in parts if of)
    lines = [
        tag(
            "tr",
            tag("th", tag("span", each.verdict.value, class_=each.verdict.value), scope="row"),
            cell(counted(each.workloads, "workload"), class_="number"),
            cell(amount_words(amount(each.weight, basis), basis), class_="number"),
        )
        for each in sums.verdicts
        if each.workloads
    ]
    name = f"target-{place}"
    return tag(
        "article",
        tag("h3", sums.target, *([" ", tag("small", counted(sums.nodes, "node"))] if report.nodes else []), id=name),
        tag("p", tag("strong", percent(sums.ready_share)), f" of the requested {basis} could run here today"),
        bar(parts, words) if words else None,
        tag(
            "p",
            f"{percent(sums.runs_share)} runs here now; " if report.nodes else None,
            f"{percent(sums.unconstrained_share)} after lifting constraints.",
        ),
        tag("table", tag("caption", f"Verdicts for {sums.target}", class_="spoken"), tag("tbody", *lines)),
        *_blocked(sums),
        _saving(sums),
        aria_labelledby=name,
    )


def _blocked(sums: TargetSums) -> list[Content]:
    if not sums.blocking_daemon_sets:
        return []
    sets = sums.blocking_daemon_sets
    lead = f"No node of {sums.target} is ready without {counted(len(sets), 'DaemonSet')} that cannot run there:"
    more = len(sets) - LISTED_SETS
    return [tag("p", lead, class_="warning"), items([*sets[:LISTED_SETS], *([f"and {more} more"] if more > 0 else [])])]


def _saving(sums: TargetSums) -> Markup | None:
    if sums.saving is None:
        return None
    words = saved(sums.saving)
    return tag("p", f"{words[:1].upper()}{words[1:]}.")


def curves(report: Report) -> Markup | None:
    """For each target that an image is in the way of: how many images to fix for how much."""
    found = [_curve(place, sums) for place, sums in enumerate(report.sums) if len(sums.curve) > 1]
    if not found:
        return None
    title = tag("h2", "How many images to fix for how much", id="images")
    return tag("section", title, *found, aria_labelledby="images")


def _curve(place: int, sums: TargetSums) -> Markup:
    points = sums.curve[: LISTED + 1]
    left = len(sums.curve) - len(points)
    rows = [
        row(
            number(str(point.images)),
            head(point.image or NOTHING),
            load(point.cores),
            number(percent(point.share)),
        )
        for point in points
    ]
    name = f"curve-{place}"
    columns = [Column("Images", True), Column("Fixed besides"), Column("Cores", True), Column("Share", True)]
    return tag(
        "figure",
        tag("figcaption", tag("strong", sums.target), f": {_told(sums)}"),
        curve(sums),
        tag(
            "details",
            tag("summary", f"The numbers for {sums.target}"),
            table(
                name,
                f"What could run on {sums.target} once constraints are lifted and so many images are fixed",
                columns,
                rows,
            ),
            tag("p", f"{left} more are in the report as JSON.") if left else None,
        ),
    )


def _told(sums: TargetSums) -> str:
    """The first point from which on more images bring little, in words: nine tenths of what all of them bring."""
    first, last = sums.curve[0].share, sums.curve[-1].share
    enough = next((each for each in sums.curve if each.share - first >= 0.9 * (last - first)), sums.curve[-1])
    lead = f"{percent(first)} could run once constraints are lifted and no image is fixed"
    if enough is sums.curve[-1]:
        return f"{lead}, {percent(last)} with {counted(enough.images, 'image')} fixed."
    many = counted(enough.images, "image")
    return f"{lead}, {percent(enough.share)} with {many} fixed, {percent(last)} with all {sums.curve[-1].images}."


def nodes(report: Report) -> Markup | None:
    if not report.nodes:
        return None
    rows = [
        row(
            head(each.platform),
            number(str(each.nodes)),
            load(each.cores),
            load(each.requested_cores),
            number(str(each.pods)),
        )
        for each in report.nodes
    ]
    columns = [
        Column("Platform"),
        Column("Nodes", True),
        Column("Allocatable cores", True),
        Column("Requested cores", True),
        Column("Pods", True),
    ]
    return section("nodes", "Nodes", table("nodes", "Nodes by platform", columns, rows))


def notes(report: Report) -> Markup | None:
    """What is to be known before any number is believed."""
    found: list[Content] = []
    if not report.complete:
        found.append("This report is not complete: it was interrupted before all images were asked for.")
    found += report.notes
    return tag("aside", tag("h2", "To be known"), items(found), class_="notes") if found else None


def facts(report: Report) -> Markup:
    """Whose report it is, and of when."""
    source = report.source
    what = {"cluster": "Cluster", "files": "Files"}[source.kind]
    parts = [
        f"{what} {source.name}".strip(),
        f"as of {source.taken_at}" if source.taken_at else None,
        f"{counted(len(report.workloads), 'workload')}",
        amount_words(amount(report.weight, report.basis), report.basis),
    ]
    return join(parts, " · ")


# -- blockers, groups, what other features say, and changes since a former report --------------------------------------

NAMED = 5
"""Workloads that are named beside an image; more are counted."""


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
    choices = [FilterColumn("Lacks", 1, targets)] if len(targets) > 1 else []
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
    parts: list[tuple[str, str, FeatureSection | None]] = [
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


# -- workloads: one table of all of them, and a page for each namespace ------------------------------------------------
# A namespace's page is a section that is seen when the address points to it (report.html#namespace-web). The style
# sheet does that: it works without script, in a link that somebody sends, and on paper.

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
    choices = [FilterColumn(target, first + place, ANSWERED) for place, target in enumerate(report.targets)]

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


def verdict_cell(answer: TargetVerdict) -> Markup:
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
