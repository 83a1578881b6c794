"""What a rule says about a place in a file, and what would repair it.

A :class:`Finding` is complete: every output format is a rendering of it and of nothing else. A :class:`Repair` is kept
apart, because it says what to do to the *object* (operations of ``tree``); how the text changes is the editor's matter.

Pure: imports msgspec and ``tree``.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from polyarch.manifests.operations import TreeOperation


class Severity(StrEnum):
    """How bad a finding is; compare with :attr:`rank` (higher is worse)."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return {"info": 0, "warning": 1, "error": 2}[self.value]


class Span(msgspec.Struct, frozen=True, gc=False):
    """A region of a file. Offsets count code points from 0 (a byte-order mark is not counted), lines and columns
    count from 1 (MF-042); the end is exclusive.
    """

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Which Kubernetes object; empty texts where the manifest says nothing."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace and self.name else self.name
        return f"{self.kind or 'object'} {name}" if name else f"unnamed {self.kind or 'object'}"


NO_OBJECT = ObjectReference()


class PlatformSets(msgspec.Struct, frozen=True, gc=False):
    """The sets a finding is about, each sorted and printed as ``os/architecture``."""

    admitted: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong at one place (MF-020, MF-043)."""

    rule: str
    severity: Severity
    message: str
    """One sentence that can stand alone (MF-023)."""
    hint: str = ""
    """The next action."""
    file: str
    span: Span
    sub: str = ""
    object: ObjectReference = NO_OBJECT
    path: str = ""
    """JSON pointer in the document."""
    document: int = 0
    """Number of the document in its file, from 0."""
    images: tuple[str, ...] = ()
    platforms: PlatformSets = PlatformSets()
    fixable: bool = False
    fingerprint: str = ""
    origin: str = ""
    """Where the text was made, when it says so: a chart's template, a kustomization's base (MF-013)."""
    upstream: str = ""
    """The number of the upstream validator's check (MF-075), if it has this one."""
    suppressed: str | None = None
    """The reason somebody gave for not wanting to see it; None: it counts."""

    @property
    def order(self) -> tuple[str, int, int, str, str, str]:
        """Sort by this (MF-041)."""
        return self.file, self.span.line, self.span.column, self.rule, self.sub, self.path


class Repair(msgspec.Struct, frozen=True):
    """What would make a finding go away; ``document`` is the number of the document to change.

    Without operations it is a refusal: ``note`` says why nothing can be done by a program.
    """

    operations: tuple[TreeOperation, ...]
    note: str = ""
    document: int = 0


def fingerprint(
    rule: str,
    sub: str,
    *,
    subject: ObjectReference,
    file: str,
    document: int,
    named_path: str,
    images: Iterable[str] = (),
) -> str:
    """What stays the same about a finding while lines move (MF-033): 16 hexadecimal digits.

    ``named_path`` is the pointer with list indexes replaced by names
    (:func:`polyarch.manifests.scan.nodes.named_pointer`).
    """
    place = (subject.kind, subject.namespace, subject.name) if subject.name else (file, str(document))
    parts = (rule, sub, *place, named_path, *sorted(images))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
