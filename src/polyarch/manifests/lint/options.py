"""What a run of the rules is told: which rules, how bad, what to require, and what a fix may do.

Values only; ``configuration`` reads them from ``.polyarch.yaml`` and the command line sets them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from polyarch.manifests.finding import Severity
from polyarch.platforms import NodePlatform

Unresolved = Literal["auto", "finding", "ignore"]


class Selection(msgspec.Struct, frozen=True):
    """Rules by id or by the beginning of an id and ``*`` (MF-030): what is left out, and what is added to the rules
    that run anyway. Of two patterns that fit, the longer one counts; of equal ones the exclusion.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def selects(self, rule: str, *, default: bool) -> bool:
        included, excluded = _fit(rule, self.include), _fit(rule, self.exclude)
        if included < 0 and excluded < 0:
            return default
        return included > excluded


def _fit(rule: str, patterns: tuple[str, ...]) -> int:
    """Length of the longest pattern that fits, an id counting most; -1 if none does."""
    fits = [-1]
    for pattern in patterns:
        if pattern == rule:
            fits.append(len(rule) + 1)
        elif pattern.endswith("*") and rule.startswith(pattern[:-1]):
            fits.append(len(pattern) - 1)
    return max(fits)


class Taints(msgspec.Struct, frozen=True):
    """Architecture taints of the cluster (TN-010): every node of an architecture has ``key=architecture:effect``."""

    key: str
    effect: str = "NoSchedule"
    architectures: tuple[str, ...] = ()
    """Empty: all."""


TAINT_PRESETS: Mapping[str, str] = {
    "archaware": "supported-arch",
    "gke": "kubernetes.io/arch",
    "openshift": "multi-arch.openshift.io/arch",
}
"""Preset → key of the taint (TN-011)."""


class Locked(msgspec.Struct, frozen=True):
    """What the lock file says of a reference (MF-034)."""

    digest: str
    platforms: tuple[NodePlatform, ...]


class FixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair may do (MF-050); the flags of ``polyarch fix``."""

    widen: bool = False
    replace: bool = False
    remove_labels: bool = False
    prefer: bool = False
    """Add the preferences of :attr:`LintOptions.prefer`."""
    limit_to_universe: bool = False
    assume: tuple[NodePlatform, ...] = ()
    """Stand in for each image without an answer."""


class LintOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the rules depend on besides the file and the answers."""

    platforms: tuple[NodePlatform, ...] = ()
    """The explicit universe (MF-002); empty: the usual one."""
    require: tuple[NodePlatform, ...] = ()
    prefer: Mapping[str, int] = {}
    """Architecture → weight (MA112)."""
    taints: Taints | None = None
    lock: Mapping[str, Locked] | None = None
    """By canonical reference; None: no lock file is given."""
    selection: Selection = Selection()
    severities: Mapping[str, Severity] = {}
    """By rule id or pattern; the longest that fits counts."""
    strict: bool = False
    unresolved: Unresolved = "auto"
    labelled: tuple[str, ...] = ()
    """Architectures that a ClusterServiceVersion of the tree labels (MA302)."""
    fixes: FixOptions = FixOptions()

    def severity(self, rule: str, default: Severity) -> Severity:
        """A rule's severity after ``--severity`` and ``--strict``."""
        fit = max((_fit(rule, (pattern,)), pattern) for pattern in self.severities) if self.severities else (-1, "")
        if fit[0] >= 0:
            return self.severities[fit[1]]
        if self.strict and rule == "MA001":
            return Severity.ERROR
        return default
