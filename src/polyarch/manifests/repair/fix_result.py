"""What ``fix`` is asked for, and what it says of a file (MF-050).

Places of what remains are those of the new text; who shows the old one asks for the places there.

Pure.
"""

from dataclasses import dataclass, field, replace

import msgspec

from polyarch.manifests.editing.splices import Edit, offset_before
from polyarch.manifests.finding import Finding
from polyarch.manifests.lint.engine import OBJECT_CHECKS, ObjectCheck
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.operations import TreeOperation
from polyarch.manifests.scan.text import SourceText


class Refusal(msgspec.Struct, frozen=True):
    """A finding that stays, and why."""

    finding: Finding
    note: str


class FixRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``polyarch fix`` was asked for; what repairs may do is in ``options.fixes``."""

    options: LintOptions = LintOptions()
    only: tuple[str, ...] = ()
    """Rules to repair, by id or pattern; empty: all."""
    uncomment: bool = False
    """Make a commented affinity count instead of writing another beside it."""
    object_checks: tuple[ObjectCheck, ...] = OBJECT_CHECKS
    """Others than usual where more is known than the files say: the bundle that a subscription installs (MF-083)."""


@dataclass(frozen=True, eq=False)
class FixResult:
    """A file after its repairs."""

    source: SourceText
    """As it was."""
    text: str
    applied: tuple[Finding, ...] = ()
    refused: tuple[Refusal, ...] = ()
    remaining: tuple[Finding, ...] = ()
    """What the rules say of the new text, with what is suppressed."""
    operations: dict[int, tuple[TreeOperation, ...]] = field(default_factory=dict)
    """What was done to each document, one after the other; by the document's number."""
    added: dict[int, tuple[object, ...]] = field(default_factory=dict)
    """Objects written as documents of their own behind a document."""
    rounds: tuple[tuple[Edit, ...], ...] = ()
    """The edits of each round, of the text that the round before made; new documents are the last."""
    unproven: Finding | None = None
    """MA904: the file was left as it was."""

    @property
    def changed(self) -> bool:
        return self.text != self.source.text

    def with_places_before(self) -> "FixResult":
        """The same, with what remains at its places in the text as it was: for those who look at that text (MF-042)."""
        if not self.changed:
            return self
        moved = {id(finding): self._before(finding) for finding in self.remaining}
        return replace(
            self,
            remaining=tuple(moved.values()),
            refused=tuple(Refusal(moved[id(each.finding)], each.note) for each in self.refused),
        )

    def _before(self, finding: Finding) -> Finding:
        start, end = finding.span.start, finding.span.end
        for edits in reversed(self.rounds):
            start, end = offset_before(start, edits), offset_before(end, edits)
        return msgspec.structs.replace(finding, span=self.source.span(start, max(start, end)))
