"""What placement has made of the pods: from their own records and what can be seen of them (RP-015). Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from polyarch.placement.decide.decision import Reason
from polyarch.reports.document import NamedPods, PlacementPart
from polyarch.reports.facts.cluster import Facts
from polyarch.reports.facts.readings import Answers
from polyarch.reports.judging.drift import misplaced
from polyarch.reports.judging.verdicts import Judged

MOST_NAMES: Final = 5
DAY: Final = timedelta(days=1)


def outcome_of(judged: Sequence[Judged], facts: Facts, answers: Answers) -> PlacementPart | None:
    """None if placement is neither configured nor has ever decided about one of these pods."""
    by_reason: dict[str, list[str]] = {}
    held, unplaced = [], []
    for each in judged:
        for pod in each.workload.pods:
            name = f"{each.workload.namespace}/{pod.name}"
            if pod.reason:
                by_reason.setdefault(pod.reason, []).append(name)
            elif not pod.node and not pod.is_gated and not each.is_excluded and not each.workload.is_daemon_set:
                unplaced.append(name)
            if pod.is_gated:
                held.append(name)
    if facts.cppc is None and not by_reason and not held:
        return None
    notable = (
        ("Held", held, "pods wait for their images behind the scheduling gate"),
        ("Fallback", by_reason.get(Reason.FALLBACK_SET, ()), "placed by the fallback: an image gave no answer"),
        (
            "ReleasedUnconstrained",
            by_reason.get(Reason.RELEASED_UNCONSTRAINED, ()),
            "released without a constraint: an image gave no answer",
        ),
        ("Unplaced", unplaced if facts.cppc is not None else (), "wait for a node, and placement has not seen them"),
        ("Misplaced", [name for name, _ in misplaced(judged, facts, answers)], "are on nodes that cannot run them"),
        ("ExecFormatErrors", _recent(facts), "could not start a program of another architecture in the last day"),
    )
    return PlacementPart(
        reasons=tuple(_named(reason, by_reason[reason]) for reason in sorted(by_reason)),
        notable=tuple(_named(what, names, message) for what, names, message in notable if names),
    )


def _recent(facts: Facts) -> list[str]:
    """The pods of the last day before the facts were read."""
    taken = _time(facts.source.taken_at)
    return [
        each.pod
        for each in facts.exec_format_errors
        if taken is None or (created := _time(each.created)) is None or taken - created <= DAY
    ]


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _named(what: str, names: Iterable[str], message: str = "") -> NamedPods:
    found = sorted(set(names))
    return NamedPods(what, len(found), tuple(found[:MOST_NAMES]), message)
