"""What is to be published, and what came of it (BD-170 to BD-179).

Children are named by digest alone: what a tag names may be another image by the time it is read (BD-335).

Pure: no asyncio, no clock.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

Reason = Literal[
    "ArchitectureMismatch",
    "DuplicatePlatform",
    "IndexForbidden",
    "MixedFormats",
    "PushDenied",
    "RegistryInconsistent",
    "RegistryUnreachable",
]
"""Why it was not published, in the words of the conditions. ``IndexForbidden``: an index as asked for cannot be, or
would lack a required architecture (BD-336)."""


class ChildImage(msgspec.Struct, frozen=True, kw_only=True):
    """The image of one architecture, wherever it is."""

    architecture: str
    reference: str
    """``repository@digest``: an image, or an index of which the entry for the architecture is taken (BD-175)."""
    tag: str = ""
    """The tag that it gets where it is copied to another repository; empty: none (BD-080, BD-235)."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One result: these children under these tags of one repository."""

    repository: str
    children: tuple[ChildImage, ...]
    tags: tuple[str, ...] = ()
    """In the order in which they are moved, the execution's first (BD-177). None: by digest only."""
    single: bool = False
    """The one child is the result, and there is no index (BD-179)."""
    annotations: Mapping[str, str] = {}
    attestations: Literal["Drop", "Keep"] = "Drop"
    required: tuple[str, ...] = ()
    """Architectures without which nothing is pushed (BD-336)."""
    digest: str = ""
    """What was planned, by what Jobs said of their images; nothing is pushed if the images' own bytes give another."""


class TagOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a ``tag`` step: the tags to move to a digest that is there already."""

    tags: tuple[str, ...]


class PublishedChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child as its own bytes describe it (BD-173)."""

    architecture: str
    digest: str
    size: int
    media_type: str
    variant: str = ""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """It is published and was read back. ``changed``: something was written."""

    digest: str
    media_type: str
    size: int
    changed: bool
    children: tuple[PublishedChild, ...] = ()


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """It is not published; every tag is as it was, or names a complete result."""

    reason: Reason
    message: str
    code: str = ""
    """The registry client's code, where a registry is at fault (``oci.answer.ERROR_CODES``)."""
    architecture: str = ""
    """The one whose child is at fault."""
    missing: tuple[str, ...] = ()
    """Architectures whose children are gone: they are to be built again (BD-177)."""
    passing: bool = False
    """The same may succeed later (BD-219)."""
    retry_after: float | None = None
    """Seconds that a registry asked to be left alone, where it did."""
