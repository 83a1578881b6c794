"""What a rule is to people: its id, how bad it is, what it means and what repairs it (MF-020, MF-021).

Each module that checks a rule has its :class:`Rule` as the constant ``RULE`` beside the check; ``catalogue`` collects
them. Ids are the contract with users: they are never reused or renumbered, and MA4xx belongs to live clusters.

Pure.
"""

import msgspec

from polyarch.manifests.finding import Severity


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Texts are sentences for people who meet it for the first time."""

    id: str
    severity: Severity
    """By default; the meaning says when it differs."""
    title: str
    meaning: str
    fix: str = ""
    """What ``polyarch fix`` does; empty: nothing."""
    flag: str = ""
    """The flag without which it does not."""
    subs: tuple[str, ...] = ()
    """The values that ``sub`` can have, where they are fixed."""
    default: bool = True
    """Runs without being configured or included."""
    upstream: str = ""
    """The number of the check of operator-sdk's validator that this one stands for (MF-075)."""
