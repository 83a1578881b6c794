"""Model of a soak test: what was true at which time, and so which pods are correct. Pure; times are monotonic."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.placement.decision import read_record

WINDOW, ABSENT_WINDOW, GRACE = 60.0, 30.0, 60.0
"""Seconds: the policy's retry window, its maximum for images that do not exist, and a margin for a busy machine."""
TAG_TTL = 600.0
LAG = 15.0
"""Seconds for which a changed policy or preference may still be used: a broken watch has to reconnect first."""
Values = tuple[str, ...] | None
"""Architectures; None: no limit."""


@dataclass
class History:
    """The values of something over time. During a change, and after one with unknown outcome, two values are valid."""

    entries: list[tuple[Any, float, float]] = field(default_factory=list)

    def begin(self, value: Any, at: float) -> None:
        self.entries.append((value, at, float("inf")))

    def done(self, at: float) -> None:
        """From now on only the last value is valid."""
        *earlier, last = self.entries
        self.entries = [(value, since, min(until, at)) for value, since, until in earlier] + [last]

    def during(self, begin: float, end: float) -> set[Any]:
        return {value for value, since, until in self.entries if since <= end and until >= begin}


@dataclass
class Born:
    """One pod of the soak test."""

    kind: str
    images: tuple[str, ...]
    at: float
    dies_at: float
    gated_at: float | None = None
    released_at: float | None = None
    """By placement."""
    tolerated_at: float | None = None
    """Taints do not hold it, either."""
    pod: Pod | None = None

    @property
    def window(self) -> float:
        return (ABSENT_WINDOW if self.kind == "missing" else WINDOW) + GRACE


@dataclass
class SoakWorld:
    """Everything that determines how a pod may be placed."""

    images: dict[str, History] = field(default_factory=dict)
    digests: dict[str, Values] = field(default_factory=dict)
    policy: History = field(default_factory=History)
    preferences: History = field(default_factory=History)
    blind: list[tuple[float, float]] = field(default_factory=list)
    """Intervals in which the API server may not have reached a webhook, so that ``failurePolicy: Ignore`` applied."""

    def expected(self, born: Born, *, stale: bool) -> set[Values]:
        """The architecture sets that the pod may be limited to; None in it: not limited."""
        end = born.released_at if born.released_at is not None else born.at
        begin = born.at - (1.0 if born.kind == "always" and not stale else TAG_TTL + WINDOW)
        possible: set[Values] = set()
        for values in itertools.product(*(self.images[image].during(begin, end) for image in born.images)):
            if None in values:
                possible |= self.policy.during(born.at - LAG, end)
            else:
                possible.add(tuple(sorted(set.intersection(*map(set, values)))))
        return possible

    def judge(self, name: str, born: Born) -> str:
        """The problem of a released pod; empty if it is correct."""
        pod = born.pod
        assert pod is not None
        said = read_record(pod.metadata.annotations)
        found = architectures(pod)
        what = f"{name} ({born.kind}, {', '.join(born.images)})"
        if names.SCHEDULING_GATE_LABEL not in (pod.metadata.labels or {}):
            if any(since <= born.at <= until for since, until in self.blind):
                return ""
            return f"{what}: the webhook did not see it, though it was up"
        expected = self.expected(born, stale=said is not None and said.stale is True)
        if found not in expected:
            return f"{what}: limited to {found}, expected one of {expected}; {said}"
        for note in said.images.values() if said is not None and len(born.images) == 1 else ():
            if self.digests.get(str(note), found) != found:
                return f"{what}: limited to {found}, but {note} supports {self.digests[str(note)]}"
        preferred = set(said.preferred) if said is not None else set()
        allowed = self.preferences.during(born.at - LAG, born.released_at or born.at)
        if not any(preferred <= set(each) for each in allowed):
            return f"{what}: prefers {preferred}, expected of {allowed}"
        return ""


def is_let_through(pod: Pod) -> bool:
    """The webhook saw the pod, and neither placed it nor held it for a controller: none had renewed its Lease (PL-107).
    All images of a soak are eligible."""
    return (pod.metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL) == names.NOT_SET


def architectures(pod: Pod) -> Values:
    """Values of our expression in the first required term."""
    terms = (pod.required.node_selector_terms if pod.required else None) or ()
    for expression in (terms[0].match_expressions or ()) if terms else ():
        if expression.key == names.ARCH_KEY:
            return tuple(sorted(expression.values or ()))
    return None
