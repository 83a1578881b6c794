"""What an image has for one architecture: its child, or why there is none (BD-059, BD-063)."""

from collections.abc import Iterable, Mapping
from typing import Final

from polyarch.oci.answer import Entry, Inspection, Status
from polyarch.platforms import Platform

LINUX: Final = "linux"
_ARM_ORDER: Final = ("v7", "v6", "v5")
"""What an arm node of the default variant can run, the best first."""


def child_of(answer: Inspection, architecture: str) -> str | None:
    """The digest of what linux/``architecture`` pulls, None if there is nothing for it.

    Empty if it is there and its digest is not known. Content that has no platform at all, such as an artifact, fits
    every architecture.
    """
    if answer.status is Status.NEUTRAL:
        return answer.digest
    if answer.status is not Status.RESOLVED:
        return None
    entry = _best(answer.entries, architecture)
    if entry is None:
        return None
    return entry.digest or ("" if answer.kind == "index" else answer.digest)


def children_of(answer: Inspection) -> Mapping[str, str]:
    """The child of every linux architecture that the image has, with the digests that are known."""
    names = sorted({each.platform.architecture for each in answer.entries if each.platform.os == LINUX})
    found = {name: child_of(answer, name) for name in names}
    return {name: digest for name, digest in found.items() if digest}


def platforms_of(answer: Inspection) -> str:
    """The platforms that there are, for a message."""
    return ", ".join(sorted({str(each) for each in answer.platforms})) or "no platform"


def _best(entries: Iterable[Entry], architecture: str) -> Entry | None:
    """The entry of the default variant, else the best that its nodes can run, else the lowest: never by position."""
    fitting = [each for each in entries if (each.platform.os, each.platform.architecture) == (LINUX, architecture)]
    return min(fitting, key=lambda each: (_rank(each.platform), each.digest), default=None)


def _rank(platform: Platform) -> tuple[int, str]:
    if platform.variant == Platform.of(LINUX, platform.architecture).variant:
        return 0, ""
    if platform.architecture == "arm" and platform.variant in _ARM_ORDER:
        return 1 + _ARM_ORDER.index(platform.variant), ""
    return 1 + len(_ARM_ORDER), platform.variant
