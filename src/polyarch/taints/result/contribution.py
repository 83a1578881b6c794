"""What each part of the role says for the one status of ArchitectureTaints (TN-014).

Parts do not write: each gives a :class:`Contribution`, and ``status`` writes what :func:`composed` makes of all. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.objects import Condition, Status

READY: Final = "Ready"
NODES_TAINTED: Final = "NodesTainted"
DAEMON_SETS_COVERED: Final = "DaemonSetsCovered"
SAFE_TO_TAINT: Final = "SafeToTaint"
AFFINITY_COVERED: Final = "AffinityCovered"
DEGRADED: Final = "Degraded"
ORDER: Final = (READY, NODES_TAINTED, DAEMON_SETS_COVERED, SAFE_TO_TAINT, AFFINITY_COVERED, DEGRADED)
AS_EXPECTED: Final = "AsExpected"
MESSAGE: Final = 32_768
"""Longest message of a condition (meta/v1)."""


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Something that somebody should know of: a CamelCase reason and a sentence without its full stop."""

    reason: str
    message: str


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """One part's share. ``fields`` are members of ``status`` as JSON; no two parts give the same one."""

    fields: Mapping[str, Any] = {}
    conditions: tuple[Condition, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Each makes ``Degraded`` true."""
    unready: tuple[Problem, ...] = ()
    """Each makes ``Ready`` false."""


def composed(contributions: Iterable[Contribution]) -> tuple[dict[str, Any], tuple[Condition, ...]]:
    """The fields of the status, and all conditions in their order. Raises ValueError if two parts give the same."""
    several = list(contributions)
    fields: dict[str, Any] = {}
    conditions: dict[str, Condition] = {}
    for each in several:
        for name, value in each.fields.items():
            if name in fields:
                raise ValueError(f"two parts give the field {name!r} of the status")
            fields[name] = value
        for found in each.conditions:
            if found.type in conditions:
                raise ValueError(f"two parts give the condition {found.type}")
            conditions[found.type] = found
    unready = [problem for each in several for problem in each.unready]
    problems = [problem for each in several for problem in each.problems]
    conditions[READY] = _of(READY, unready, when="False", otherwise="True")
    conditions[DEGRADED] = _of(DEGRADED, problems, when="True", otherwise="False")
    places = {name: place for place, name in enumerate(ORDER)}
    return fields, tuple(sorted(conditions.values(), key=lambda each: places.get(each.type, len(ORDER))))


def _of(type: str, problems: list[Problem], *, when: Status, otherwise: Status) -> Condition:
    """The condition that all problems of one sort make together; the first one gives the reason."""
    if not problems:
        return Condition(type, otherwise, AS_EXPECTED)
    messages = dict.fromkeys(problem.message for problem in problems)
    return Condition(type, when, problems[0].reason, "; ".join(messages)[:MESSAGE])
