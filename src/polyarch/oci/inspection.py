"""Result types: the platforms of one image, the errors, and what several images have in common.

An :class:`Inspection` never raises for a faulty image; it carries the error. Callers switch on ``status``
alone: ``resolved`` constrains, ``neutral`` does not, ``unknown`` and ``error`` mean that the platforms are not known.
The table of error codes assigns each code the class that decides how it is handled.

Pure: imports msgspec, ``platforms`` and ``reference`` only."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from types import MappingProxyType
from typing import Literal

import msgspec

from polyarch.oci.reference import Reference
from polyarch.platforms import NodePlatform, Platform, PlatformSet, node_platforms, shared_platforms

ErrorClass = Literal["absent", "auth", "limit", "transient", "content", "configuration"]
Kind = Literal["index", "image", "artifact", "schema1", ""]

ERROR_CODES: Mapping[str, ErrorClass] = MappingProxyType(
    {
        "not-found": "absent",
        "unauthorized": "auth",
        "denied": "auth",
        "credential-helper": "auth",
        "rate-limited": "limit",
        "tenant-limit": "limit",
        "timeout": "transient",
        "network": "transient",
        "server-error": "transient",
        "not-a-registry": "transient",
        "digest-mismatch": "transient",
        "malformed": "content",
        "ambiguous-manifest": "content",
        "unsupported-media-type": "content",
        "unsupported-encoding": "content",
        "too-large": "content",
        "too-complex": "content",
        "tls": "configuration",
        "unknown-host": "configuration",
        "refused-address": "configuration",
        "refused-redirect": "configuration",
        "blocked": "configuration",
        "immutable-tag": "configuration",
        "quota": "configuration",
        "body-too-large": "configuration",
        "no-repository": "configuration",
        "policy-rejected": "configuration",
        "offline-miss": "configuration",
        "layout": "configuration",
    }
)
"""Every code an error can have, and its class."""


WASM = "wasm"
"""Why an image of WebAssembly is neutral: it runs wherever its RuntimeClass has a shim."""
TENANT_LIMIT = "tenant-limit"
"""The code of a failure that one tenant met for all that it asks at a time: no other tenant would have met it."""


class Status(StrEnum):
    """The outcome of an inspection. The values are strings, so ``status == "resolved"`` holds too."""

    RESOLVED = "resolved"
    """The platforms are known; the list may be empty."""
    NEUTRAL = "neutral"
    """No platform constraint: plain data such as an artifact or an operator bundle."""
    UNKNOWN = "unknown"
    """Reachable, but the content states no platform."""
    ERROR = "error"
    """No answer."""


def error_class_of(code: str) -> ErrorClass:
    """The class of an error code; ValueError for a code that does not exist."""
    try:
        return ERROR_CODES[code]
    except KeyError:
        raise ValueError(f"{code!r} is not an error code; expected one of {', '.join(ERROR_CODES)}") from None


class InspectionError(msgspec.Struct, frozen=True, gc=False):
    """Why there is no answer. ``retry_after`` is in seconds; ``attempts`` has one line per source tried."""

    code: str
    error_class: ErrorClass
    message: str
    status: int | None = None
    retry_after: float | None = None
    host: str = ""
    attempts: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, code: str, message: str, *, status: int | None = None, retry_after: float | None = None, host: str = ""
    ) -> "InspectionError":
        """An error with the class that belongs to its code."""
        return cls(code, error_class_of(code), message, status, retry_after, host)


class SkippedEntry(msgspec.Struct, frozen=True, gc=False):
    """An index entry that is not a runnable image, and why."""

    digest: str
    reason: str


class InspectionWarning(msgspec.Struct, frozen=True, gc=False):
    """A finding that did not prevent the image from being read."""

    code: str
    message: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One runnable manifest. ``stated`` is the platform as its author wrote it, where that differs."""

    platform: Platform
    digest: str
    size: int | None = None
    stated: str = ""


class SourceUsed(msgspec.Struct, frozen=True, gc=False):
    """The source that answered."""

    host: str
    mirror: bool = False
    insecure: bool = False


class Inspection(msgspec.Struct, frozen=True, gc=False):
    """The answer for one reference. ``entries`` are in the registry's order, unique by platform."""

    reference: Reference
    status: Status
    kind: Kind = ""
    digest: str = ""
    media_type: str = ""
    entries: tuple[Entry, ...] = ()
    skipped: tuple[SkippedEntry, ...] = ()
    warnings: tuple[InspectionWarning, ...] = ()
    error: InspectionError | None = None
    neutral_reason: str = ""
    source: SourceUsed | None = None
    cached: bool = False
    requests: int = 0
    checked_at: float | None = None
    """Monotonic time at which a registry last confirmed the tag; None if it does not age (by digest, offline)."""
    stale: bool = False
    """The last good reading, used although the check of its tag failed."""
    last_good: "Inspection | None" = None
    """With an error of class transient or limit: the last reading of this tag for this credential."""
    last_good_age: float | None = None
    public: bool = False
    """The registry served it to anonymous access."""

    @property
    def platforms(self) -> tuple[Platform, ...]:
        return tuple(entry.platform for entry in self.entries)

    @property
    def node_platforms(self) -> tuple[NodePlatform, ...]:
        return node_platforms(self._chosen_from)

    @property
    def pulled_platforms(self) -> tuple[NodePlatform, ...]:
        """The platforms whose nodes take the image without being told to: what anybody means who requires one."""
        return node_platforms(each for each in self._chosen_from if each.is_usual)

    @property
    def _chosen_from(self) -> tuple[Platform, ...]:
        """What a runtime chooses from by its node: of an index its entries; a manifest alone is pulled as it is."""
        return self.platforms if self.kind == "index" else tuple(each.plain for each in self.platforms)

    @property
    def constrains(self) -> bool:
        """Whether the platforms are known and restrict placement; true for an empty list too."""
        return self.status is Status.RESOLVED


class CommonPlatforms(msgspec.Struct, frozen=True, gc=False):
    """What several images have in common."""

    exact: bool
    """No answer is missing."""
    platforms: PlatformSet
    inexact: tuple[str, ...] = ()
    """Canonical references of the images whose platforms are not known."""
    conflict: tuple[str, ...] = ()
    """Without a common platform: a minimal set of images that have none; without any one of them there is one."""


def common_platforms(inspections: Iterable[Inspection]) -> CommonPlatforms:
    """The intersection of the node platforms of the resolved answers."""
    answers = list(inspections)
    inexact = [answer.reference.canonical for answer in answers if answer.status in (Status.UNKNOWN, Status.ERROR)]
    sets = dict.fromkeys(
        (answer.reference.canonical, PlatformSet.of(answer.node_platforms)) for answer in answers if answer.constrains
    )
    platforms = shared_platforms(each for _, each in sets)
    return CommonPlatforms(
        exact=not inexact,
        platforms=platforms,
        inexact=tuple(dict.fromkeys(inexact)),
        conflict=() if platforms else _conflict(list(sets)),
    )


def _conflict(sets: Sequence[tuple[str, PlatformSet]]) -> tuple[str, ...]:
    # One image without a platform, or two without a common one, explain nearly every case; look for them first.
    for few in (1, 2):
        for candidates in combinations(sets, few):
            if not shared_platforms(platforms for _, platforms in candidates):
                return tuple(name for name, _ in candidates)
    remaining = list(sets)
    for candidate in list(remaining):
        without = [other for other in remaining if other is not candidate]
        if not shared_platforms(platforms for _, platforms in without):
            remaining = without
    return tuple(name for name, _ in remaining)
