"""Why a key is another one than before: its document compared member by member (BD-302).

Documents hold whole Containerfiles, so executions keep an *outline* of theirs instead: a short hash of every member,
and of every entry of those that are mappings. It says what changed without saying what it was.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from polyarch.builds.keys import canonical

OUTLINES_FILE = "outlines.json"
"""The key of the ConfigMap with an execution's children (BD-049) that holds the outlines: architecture → outline."""
_DIGITS = 8
_MAPPINGS = ("args", "bases", "labels", "secrets", "context", "machine")
_SEPARATOR = "/"
_WORDS = {
    "arch": "architecture",
    "args": "build argument",
    "bases": "base image",
    "labels": "label",
    "secrets": "secret",
    "machine/osImage": "OS image",
    "machine/extensionsImage": "extensions image",
    "machine/kernelType": "kernel type",
    "machine/extensions": "extensions",
    "machine/kernelArguments": "kernel arguments",
    "machine/trust": "trust bundle",
    "machine/entitlements": "entitlements",
    "v": "version of the key",
}

Outline = Mapping[str, str]
Change = Literal["added", "removed", "changed"]


class Difference(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One member that is not as before."""

    member: str
    """``containerfile``, or ``args/MODE`` for an entry."""
    change: Change

    def __str__(self) -> str:
        group, separator, entry = self.member.partition(_SEPARATOR)
        named = _WORDS.get(self.member)
        if named is None and separator and group != "context":
            named = f"{_WORDS.get(group, group)} {entry}"
        return f"{named or _WORDS.get(group, group)} {self.change}"


def outline(document: Mapping[str, Any]) -> dict[str, str]:
    """Member → short hash, the entries of mappings one by one."""
    found: dict[str, str] = {}
    for name, value in document.items():
        if name in _MAPPINGS and isinstance(value, Mapping):
            found |= {f"{name}{_SEPARATOR}{entry}": _hashed(inner) for entry, inner in value.items()}
        else:
            found[name] = _hashed(value)
    return dict(sorted(found.items()))


def differences(before: Outline, after: Outline) -> tuple[Difference, ...]:
    """What is not the same, by member; nothing for equal keys."""
    found: list[Difference] = []
    for member in sorted({*before, *after}):
        if before.get(member) == after.get(member):
            continue
        change: Change = "added" if member not in before else "removed" if member not in after else "changed"
        found.append(Difference(member=member, change=change))
    return tuple(found)


def sentence(found: Iterable[Difference], *, most: int = 4) -> str:
    """``containerfile changed, build argument MODE added``; further ones are counted."""
    texts = list(dict.fromkeys(str(each) for each in found))
    more = [f"{len(texts) - most} more"] if len(texts) > most else []
    return ", ".join(texts[:most] + more)


def _hashed(value: Any) -> str:
    return canonical.digest(value)[:_DIGITS]
