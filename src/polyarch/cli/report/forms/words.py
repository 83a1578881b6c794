"""Sentences that text and Markdown have in common."""

from collections.abc import Sequence

from polyarch.reports.document import Blocker, Reason, Report, TargetSums, Weight
from polyarch.reports.wording import amount, amount_words, counted, percent


def weight(report: Report, given: Weight) -> str:
    """In what shares are of."""
    return amount_words(amount(given, report.basis), report.basis)


def why(reasons: Sequence[Reason]) -> str:
    """The sentences; of a field also where it stands."""
    return "; ".join(f"{each.message} ({each.path})" if each.path else each.message for each in reasons)


def heading(report: Report) -> str:
    """What the report is of."""
    source = report.source
    when = f" at {source.taken_at}" if source.taken_at else ""
    return f"{'Cluster' if source.kind == 'cluster' else 'Manifests'} {source.name}{when}"


def summary(report: Report, sums: TargetSums) -> str:
    """One target in one sentence."""
    nodes = f", {counted(sums.nodes, 'node')}" if report.source.kind == "cluster" else ""
    return (
        f"{sums.target}: {percent(sums.runs_share)} runs there, {percent(sums.ready_share)} could today, "
        f"{percent(sums.unconstrained_share)} after lifting constraints{nodes}"
    )


def holds(report: Report, blocker: Blocker) -> tuple[str, str]:
    """What an image holds back alone, and together with others."""
    return weight(report, blocker.alone), weight(report, blocker.together)
