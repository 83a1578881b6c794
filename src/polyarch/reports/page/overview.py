"""What one wants to know first: a tile for each target, the curve of its images, and what to bear in mind."""

from polyarch.reports.document import Report, TargetSums, Verdict
from polyarch.reports.page.drawings import bar, curve
from polyarch.reports.page.markup import Content, Markup, join, tag
from polyarch.reports.page.tables import Column, cell, head, items, load, number, row, table
from polyarch.reports.wording import MEANINGS, NOTHING, amount, amount_words, counted, percent, saved

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
            table(name, f"What could run on {sums.target} with so many images fixed", columns, rows),
            tag("p", f"{left} more are in the report as JSON.") if left else None,
        ),
    )


def _told(sums: TargetSums) -> str:
    """The first point from which on more images bring little, in words: nine tenths of what all of them bring."""
    first, last = sums.curve[0].share, sums.curve[-1].share
    enough = next((each for each in sums.curve if each.share - first >= 0.9 * (last - first)), sums.curve[-1])
    lead = f"{percent(first)} could run with no image fixed"
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
    return tag(
        "section",
        tag("h2", "Nodes", id="nodes-title"),
        table("nodes", "Nodes by platform", columns, rows),
        aria_labelledby="nodes-title",
    )


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
