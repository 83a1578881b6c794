"""The custom resource ArchitectureTaints: its types, and how its status is put together. Pure.

Decoding is tolerant: ``crd`` has the schema, ``settings`` says what the values mean. The parts of the role do not write
the status themselves: each gives a :class:`StatusPart`, and ``status`` writes what :func:`composed` makes of all.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.objects import Condition, ObjectMeta, Status
from polyarch.taints.names import GROUP

ARCHITECTURE_TAINTS: Final = Resource(GROUP, "v1alpha1", "architecturetaints", "ArchitectureTaints", namespaced=False)


class ArchitectureStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.architectures[]``: the nodes of one architecture."""

    name: str = ""
    nodes: int = 0
    tainted: int = 0
    waiting: int = 0
    reason: str = ""


class NodesStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.nodes``."""

    managed: int = 0
    tainted: int = 0
    skipped: int = 0
    unknown: int = 0
    summary: str = ""
    """For the column: how many carry a taint, and how many are to carry one: ``2/2`` if primary nodes carry none."""


class PodsStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.pods``."""

    gated: int = 0
    unknown: int = 0
    blocked: int = 0


class BlockedTemplate(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.blockedTemplates[]``."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    architectures: list[str] | None = None
    reason: str = ""


class StatusCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """meta/v1 Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class ArchitectureTaintsStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    observed_generation: int = 0
    key: str = ""
    """K, for the column: a preset's key is not in the spec."""
    architectures: list[ArchitectureStatus] | None = None
    nodes: NodesStatus = NodesStatus()
    pods: PodsStatus = PodsStatus()
    blocked_templates: list[BlockedTemplate] | None = None
    blocked_templates_total: int = 0
    conditions: list[StatusCondition] | None = None


class ArchitectureTaints(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The configuration of taints for the cluster; a singleton named ``cluster``.

    ``spec`` stays JSON: the fields are declared in ``settings``, each once.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: ArchitectureTaintsStatus = ArchitectureTaintsStatus()


# -- the status, from the contributions of the role's parts ------------------------------------------------------------

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


class StatusPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part's share. ``fields`` are members of ``status`` as JSON; no two parts give the same one."""

    fields: Mapping[str, Any] = {}
    conditions: tuple[Condition, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Each makes ``Degraded`` true."""
    unready: tuple[Problem, ...] = ()
    """Each makes ``Ready`` false."""


def composed(contributions: Iterable[StatusPart]) -> tuple[dict[str, Any], tuple[Condition, ...]]:
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
