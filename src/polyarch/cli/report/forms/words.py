"""Sentences that text and Markdown have in common."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

from polyarch.reports.document import Answer, Blocker, Reason, Report, TargetSums, Weight
from polyarch.reports.wording import amount, amount_words, counted, excludes, lacks, percent

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


def joined(answers: Iterable[Answer]) -> list[tuple[Answer, list[str]]]:
    """One of the answers that differ in nothing but the target, with all of these targets."""
    found: dict[Hashable, tuple[Answer, list[str]]] = {}
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
