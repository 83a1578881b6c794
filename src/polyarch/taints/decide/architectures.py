"""The set A of a pod: the architectures whose nodes can run it (TN-031, TN-033).

What images have in common, the pod's operating system, its own constraints and the foreign architectures that nodes run
are judged by ``polyarch.pods``, as lint does. This module adds what the configuration says: the managed architectures,
the neutral ones, and fallbacks. Images without an answer are left out, so the others already restrict A. Pure.
"""

from collections.abc import Iterable
from functools import reduce
from operator import and_

import msgspec

from polyarch.platforms import PlatformSet
from polyarch.pods.constraints import NodeConstraints
from polyarch.pods.finding import Finding, Verdict
from polyarch.pods.reach import reach
from polyarch.taints.api.settings import USUAL_ARCHITECTURES, TaintSettings


class Architectures(msgspec.Struct, frozen=True, gc=False):
    """What is known of a pod's architectures."""

    possible: frozenset[str]
    """Architectures of the nodes that could run it, managed ones or not."""
    managed: frozenset[str]
    """A: those of them that are managed."""
    direct: frozenset[str]
    """Those of A that need no node that runs foreign programs (``spec.compatibility``)."""
    is_open: bool
    """No answer restricts the pod yet, so an image without an answer may still allow any architecture."""


def architectures_of(
    findings: Iterable[Finding],
    constraints: NodeConstraints,
    settings: TaintSettings,
    *,
    system: str,
    existing: frozenset[str],
    limit: frozenset[str] | None = None,
) -> Architectures:
    """A, as far as the answers are known.

    ``existing``: architectures of the cluster's nodes. ``limit``: the architectures that a fallback assumes (TN-046);
    they take the place of the neutral ones, and A is a part of them.
    """
    sets = [PlatformSet.of(each.platforms) for each in findings if each.verdict is Verdict.CONSTRAINS]
    common = reduce(and_, sets, PlatformSet.EVERYTHING)
    assumed = limit if limit is not None else neutral(settings, existing)
    direct = reach(common, system=system, admits=constraints.admits, neutral=assumed)
    possible = direct
    if settings.compatibility:
        possible = reach(
            common,
            system=system,
            admits=constraints.admits,
            neutral=assumed,
            compatibility=settings.compatibility,
        )
    if limit is not None:
        direct, possible = direct & limit, possible & limit
    managed = settings.managed
    return Architectures(possible, possible & managed, direct & managed, common.is_everything)


def neutral(settings: TaintSettings, existing: frozenset[str]) -> frozenset[str]:
    """The architectures of a pod whose images fit any platform: the given ones, else the usual and the existing."""
    return settings.given or USUAL_ARCHITECTURES | existing
