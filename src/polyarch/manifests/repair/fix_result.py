"""Request and result of ``fix`` for one file (MF-050).

Positions of remaining findings are those of the new text; :meth:`FixResult.with_places_before` maps them to the old
one.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from polyarch.kube.patches import pointer
from polyarch.manifests.editing.splices import Edit, offset_before
from polyarch.manifests.finding import Finding
from polyarch.manifests.lint.engine import OBJECT_CHECKS, ObjectCheck
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.operations import Rename, TreeOperation, segments
from polyarch.manifests.scan.text import SourceText


class Refusal(msgspec.Struct, frozen=True):
    """A finding that was not fixed, and why."""

    finding: Finding
    note: str


class FixRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``polyarch fix``; ``options.fixes`` says what repairs may change."""

    options: LintOptions = LintOptions()
    only: tuple[str, ...] = ()
    """Rules to repair, by id or pattern; empty: all."""
    uncomment: bool = False
    """Uncomment an affinity instead of writing another one beside it."""
    object_checks: tuple[ObjectCheck, ...] = OBJECT_CHECKS
    """Other checks if the bundle that a subscription installs is known (MF-083)."""


def identity(finding: Finding) -> tuple[str, str, str, int]:
    """The same for a finding before and after other findings are fixed."""
    return finding.rule, finding.sub, finding.path, finding.document


@dataclass(frozen=True, eq=False)
class FixResult:
    """A file after its fixes."""

    source: SourceText
    """As it was."""
    text: str
    applied: tuple[Finding, ...] = ()
    refused: tuple[Refusal, ...] = ()
    remaining: tuple[Finding, ...] = ()
    """Findings of the new text, suppressed ones included."""
    before: tuple[Finding, ...] = ()
    """Findings of the old text, suppressed ones included."""
    operations: dict[int, tuple[TreeOperation, ...]] = field(default_factory=dict)
    """Applied operations in order, by document number."""
    notes: dict[tuple[str, str, str, int], str] = field(default_factory=dict)
    """Why findings of the old text are not fixed, with lines of the old text, by :func:`identity`."""
    added: dict[int, tuple[object, ...]] = field(default_factory=dict)
    """Objects added as documents, by the number of the document before them."""
    rounds: tuple[tuple[Edit, ...], ...] = ()
    """The edits of each round, against the text of the round before; added documents come last."""
    unproven: Finding | None = None
    """MA904: the file was left as it was."""

    @property
    def changed(self) -> bool:
        return self.text != self.source.text

    def changes(self) -> Iterator[tuple[int, str, str]]:
        """Every change of a value in order: number of the document, operation and path as in a JSON Patch."""
        for number, operations in sorted(self.operations.items()):
            for operation in operations:
                match operation:
                    case Rename():
                        yield number, "remove", operation.pointer
                        yield number, "add", pointer(*segments(operation.pointer)[:-1], operation.key)
                    case _:
                        yield number, type(operation).__name__.lower(), operation.pointer

    def with_places_before(self) -> "FixResult":
        """The same result with remaining findings at their positions in the old text (MF-042)."""
        if not self.changed:
            return self
        moved = {id(finding): self._before(finding) for finding in self.remaining}
        return replace(
            self,
            remaining=tuple(moved.values()),
            refused=tuple(
                Refusal(moved[id(each.finding)], self.notes.get(identity(each.finding), each.note))
                for each in self.refused
            ),
        )

    def _before(self, finding: Finding) -> Finding:
        start, end = finding.span.start, finding.span.end
        for edits in reversed(self.rounds):
            start, end = offset_before(start, edits), offset_before(end, edits)
        return msgspec.structs.replace(finding, span=self.source.span(start, max(start, end)))
