"""A report for a ConfigMap: its sums and its heaviest blockers, in a size that the API server takes.

Whoever may name an image or a node decides how long the names in a report are, so nothing here relies on what is usual:
lists are cut until the text fits, and it says what was cut. Its time is when this content was first found: it is
written anew only when something else in it changes. Pure.
"""

from typing import Final

import msgspec

from polyarch.reports.document import (
    Basis,
    Blocker,
    FeatureSection,
    NodeKind,
    PlacementPart,
    Report,
    Source,
    Suggestion,
    TargetSums,
    Weight,
)

SCHEMA: Final = "polyarch.dev/report-summary/v1"
LARGEST: Final = 256 * 1024
"""Bytes of the text; a ConfigMap takes 1 MiB."""
MAX_BLOCKERS: Final = 50
MAX_WORKLOADS: Final = 10
"""Names of workloads with each blocker."""
_CUTS: Final = (MAX_BLOCKERS, 20, 5, 1, 0)
"""How long lists may be, until the text fits."""


class SummaryBlocker(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """An image that keeps workloads from a target, with the first of their names."""

    target: str
    image: str
    platforms: tuple[str, ...]
    alone: Weight
    together: Weight
    workloads: tuple[str, ...]
    workload_count: int
    suggestion: Suggestion


class Summary(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """What the ConfigMap holds; the members are those of the report."""

    api_version: str = SCHEMA
    kind: str = "ReportSummary"
    complete: bool
    source: Source
    targets: tuple[str, ...]
    basis: Basis
    weight: Weight
    sums: tuple[TargetSums, ...]
    nodes: tuple[NodeKind, ...]
    placement: PlacementPart | None = None
    taints: FeatureSection | None = None
    blockers: tuple[SummaryBlocker, ...]
    blocker_count: int
    """Of the report; the heaviest of them are listed."""
    notes: tuple[str, ...]


def summary_of(report: Report) -> Summary:
    """With lists as long as :data:`LARGEST` allows."""
    summaries = (_cut(report, most) for most in _CUTS)
    return next((each for each in summaries if len(text_of(each).encode()) <= LARGEST), _bare(report))


def text_of(summary: Summary) -> str:
    """As it is written: one member a line, so that ``kubectl get -o yaml`` can be read."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n"


def says_the_same(stored: str, summary: Summary) -> bool:
    """Whether a stored text holds this summary, at whatever time it was found."""
    try:
        former = msgspec.json.decode(stored.encode(), type=Summary)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return _timeless(former) == _timeless(summary)


def _timeless(summary: Summary) -> Summary:
    return msgspec.structs.replace(summary, source=msgspec.structs.replace(summary.source, taken_at=""))


def _cut(report: Report, most: int) -> Summary:
    heaviest = sorted(
        report.blockers,
        key=lambda each: (
            -each.alone.cores,
            -each.together.cores,
            -each.alone.replicas,
            -each.together.replicas,
            each.target,
            each.image,
        ),
    )
    chosen = {id(each) for each in heaviest[:most]}
    notes = (*report.notes[:most], *(("lists are cut to fit into a ConfigMap",) if most < MAX_BLOCKERS else ()))
    return Summary(
        complete=report.complete,
        source=report.source,
        targets=report.targets,
        basis=report.basis,
        weight=report.weight,
        sums=tuple(_cut_sums(each, most) for each in report.sums),
        nodes=report.nodes[:most],
        placement=report.placement if most else None,
        taints=report.taints if most else None,
        blockers=tuple(_blocker(each, min(most, MAX_WORKLOADS)) for each in report.blockers if id(each) in chosen),
        blocker_count=len(report.blockers),
        notes=notes,
    )


def _cut_sums(sums: TargetSums, most: int) -> TargetSums:
    """``most`` is the number of images that are fixed at the last point of the curve."""
    return msgspec.structs.replace(
        sums, curve=sums.curve[: most + 1], blocking_daemon_sets=sums.blocking_daemon_sets[:most]
    )


def _blocker(blocker: Blocker, most: int) -> SummaryBlocker:
    return SummaryBlocker(
        target=blocker.target,
        image=blocker.image,
        platforms=blocker.platforms,
        alone=blocker.alone,
        together=blocker.together,
        workloads=blocker.workloads[:most],
        workload_count=len(blocker.workloads),
        suggestion=blocker.suggestion,
    )


def _bare(report: Report) -> Summary:
    """Of a cluster whose nodes alone name more platforms than fit."""
    return Summary(
        complete=report.complete,
        source=report.source,
        targets=(),
        basis=report.basis,
        weight=report.weight,
        sums=(),
        nodes=(),
        blockers=(),
        blocker_count=len(report.blockers),
        notes=("the sums do not fit into a ConfigMap: the nodes name too many platforms",),
    )
