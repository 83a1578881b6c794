"""The description of a rule: id, severity, meaning and fix (MF-020, MF-021).

Each module that checks a rule has its :class:`Rule` as the constant ``RULE`` beside the check; ``catalogue`` collects
them. Ids are a contract with users: they are never reused or renumbered. MA4xx is reserved for live clusters.

Pure.
"""

import msgspec

from polyarch.manifests.finding import Severity


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Its texts are sentences for people who see it for the first time."""

    id: str
    severity: Severity
    """Default severity; the meaning says when it differs."""
    title: str
    meaning: str
    fix: str = ""
    """What ``polyarch fix`` does; empty if there is no fix."""
    flag: str = ""
    """The flag that the fix needs, if any."""
    subs: tuple[str, ...] = ()
    """The values that ``sub`` can have, where they are fixed."""
    default: bool = True
    """Runs without being configured or included."""
    upstream: str = ""
    """Number of the corresponding check in operator-sdk's validator (MF-075)."""
