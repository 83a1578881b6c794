"""A finding: what a rule reports at a place in a file, and the repair that removes it; and the description of a rule.

A :class:`Finding` is complete: every output format renders it and nothing else. A :class:`Repair` is separate,
because it is a list of operations on the *object*; the editor turns them into changes of the text.

Pure: imports msgspec and ``operations``.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from polyarch.manifests.operations import TreeOperation


class Severity(StrEnum):
    """Severity of a finding; compare by :attr:`rank` (higher is worse)."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return {"info": 0, "warning": 1, "error": 2}[self.value]


class Span(msgspec.Struct, frozen=True, gc=False):
    """A region of a file. Offsets count code points from 0 (a byte-order mark is not counted), lines and columns
    count from 1; the end is exclusive.
    """

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A Kubernetes object; empty strings for what the manifest does not set."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace and self.name else self.name
        return f"{self.kind or 'object'} {name}" if name else f"unnamed {self.kind or 'object'}"


NO_OBJECT = ObjectReference()


class PlatformSets(msgspec.Struct, frozen=True, gc=False):
    """The platform sets of a finding, each sorted and printed as ``os/architecture``."""

    admitted: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()
    excess: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong at one place."""

    rule: str
    severity: Severity
    message: str
    """One sentence that can stand alone."""
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
    """Source of the text, if it names one: a chart's template, a kustomization's base."""
    upstream: str = ""
    """Number of the same check in the upstream validator, if there is one."""
    suppressed: str | None = None
    """The reason of its suppression; None: it counts."""

    @property
    def order(self) -> tuple[str, int, int, str, str, str]:
        """Sort by this."""
        return self.file, self.span.line, self.span.column, self.rule, self.sub, self.path


class Repair(msgspec.Struct, frozen=True):
    """Operations that remove a finding; ``document`` is the number of the document to change.

    Without operations it is a refusal: ``note`` says why there is no automatic fix.
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
    """Identity of a finding that survives moved lines: 16 hexadecimal digits.

    ``named_path`` is the pointer with list indexes replaced by names
    (:func:`polyarch.manifests.scan.nodes.named_pointer`).
    """
    place = (subject.kind, subject.namespace, subject.name) if subject.name else (file, str(document))
    parts = (rule, sub, *place, named_path, *sorted(images))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Its texts are sentences for people who see it for the first time.

    A rule is a constant named by its id, beside the function that checks it. Ids are a contract with users: they are
    never reused or renumbered. MA4xx is reserved for live clusters.
    """

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
    """Number of the corresponding check in operator-sdk's validator."""
