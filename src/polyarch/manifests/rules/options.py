"""Options of a lint run: which rules run, their severities, required platforms, and what a fix may change.

Values only; ``configuration`` reads them from ``.polyarch.yaml`` and the command line overrides them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from polyarch.manifests.finding import Severity
from polyarch.platforms import NodePlatform

Unresolved = Literal["auto", "finding", "ignore"]


class Selection(msgspec.Struct, frozen=True):
    """Rules to include in and exclude from the default ones, by id or prefix with ``*``. The longest matching
    pattern wins; of equal ones the exclusion.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def selects(self, rule: str, *, default: bool) -> bool:
        included, excluded = _fit(rule, self.include), _fit(rule, self.exclude)
        if included < 0 and excluded < 0:
            return default
        return included > excluded


def _fit(rule: str, patterns: tuple[str, ...]) -> int:
    """Length of the longest matching pattern, plus one for a full id; -1 if none matches."""
    fits = [-1]
    for pattern in patterns:
        if pattern == rule:
            fits.append(len(rule) + 1)
        elif pattern.endswith("*") and rule.startswith(pattern[:-1]):
            fits.append(len(pattern) - 1)
    return max(fits)


class Taints(msgspec.Struct, frozen=True):
    """Architecture taints of the cluster: every node of an architecture has ``key=architecture:effect``."""

    key: str
    effect: str = "NoSchedule"
    architectures: tuple[str, ...] = ()
    """Empty: all."""


TAINT_PRESETS: Mapping[str, str] = {
    "archaware": "supported-arch",
    "gke": "kubernetes.io/arch",
    "openshift": "multi-arch.openshift.io/arch",
}
"""Preset → key of the taint."""


class LockEntry(msgspec.Struct, frozen=True):
    """The lock file's entry for a reference."""

    digest: str
    platforms: tuple[NodePlatform, ...]


class FixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair may change; the flags of ``polyarch fix``."""

    widen: bool = False
    replace: bool = False
    remove_labels: bool = False
    prefer: bool = False
    """Add the preferences of :attr:`LintOptions.prefer`."""
    limit_to_universe: bool = False
    assume: tuple[NodePlatform, ...] = ()
    """Assumed platforms of each image without an answer."""


class LintOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that rules depend on besides the file and the answers."""

    platforms: tuple[NodePlatform, ...] = ()
    """The explicit universe; empty: the usual one."""
    require: tuple[NodePlatform, ...] = ()
    prefer: Mapping[str, int] = {}
    """Architecture → weight (MA112)."""
    taints: Taints | None = None
    lock: Mapping[str, LockEntry] | None = None
    """By canonical reference; None without a lock file."""
    selection: Selection = Selection()
    severities: Mapping[str, Severity] = {}
    """By rule id or pattern; the longest match wins."""
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
