"""A report beside a former one: what became ready, what got worse, what came and went (RP-024). Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from polyarch.reports.document import Change, Comparison, Report, ShareChange, Verdict, WorkloadRow

_ORDER = tuple(Verdict)


class _Seen(NamedTuple):
    verdict: Verdict
    cores: float


def compare(report: Report, former: Report) -> Comparison:
    """Only for targets that both ask about; workloads are the same by namespace, kind and name."""
    old, new = _answers(former), _answers(report)
    both = [target for target in report.targets if target in former.targets]
    pairs = [(target, name) for target, name in sorted({*old, *new}) if target in both]
    changed = [
        _change(pair, old.get(pair), new.get(pair)) for pair in pairs if _verdict(old, pair) != _verdict(new, pair)
    ]
    stayed = [each for each in changed if each.before and each.after]
    return Comparison(
        former=former.source.taken_at,
        shares=tuple(ShareChange(target, _share(former, target), _share(report, target)) for target in both),
        better=_sorted(each for each in stayed if _rank(each.after) < _rank(each.before)),
        worse=_sorted(each for each in stayed if _rank(each.after) > _rank(each.before)),
        appeared=_sorted(each for each in changed if not each.before),
        disappeared=_sorted(each for each in changed if not each.after),
    )


def _answers(report: Report) -> dict[tuple[str, str], _Seen]:
    return {
        (answer.target, full_name(row)): _Seen(answer.verdict, row.weight.cores)
        for row in report.workloads
        for answer in row.answers
    }


def full_name(row: WorkloadRow) -> str:
    """``NAMESPACE/KIND/NAME``."""
    return f"{row.namespace}/{row.kind}/{row.name}"


def _verdict(seen: Mapping[tuple[str, str], _Seen], pair: tuple[str, str]) -> str:
    found = seen.get(pair)
    return found.verdict.value if found is not None else ""


def _change(pair: tuple[str, str], before: _Seen | None, after: _Seen | None) -> Change:
    target, name = pair
    there = after or before
    return Change(
        target,
        name,
        before.verdict.value if before is not None else "",
        after.verdict.value if after is not None else "",
        there.cores if there is not None else 0.0,
    )


def _share(report: Report, target: str) -> float | None:
    return next((each.ready_share for each in report.sums if each.target == target), None)


def _rank(verdict: str) -> int:
    return _ORDER.index(Verdict(verdict))


def _sorted(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda each: (each.target, -each.cores, each.workload)))
