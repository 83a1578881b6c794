"""Baseline file: known findings that do not fail a run.

JSON, sorted, one entry per line, so that a changed finding is a changed line. An entry matches by fingerprint and, as
long as its file exists, by file: development and production files often hold objects of the same name. The file of an
entry that no longer exists may have been renamed, so such an entry matches in any file. Rule and object are there for
readers.

Pure.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from polyarch.manifests.finding import Finding, Span
from polyarch.manifests.rules import documents

SCHEMA_VERSION = "polyarch.dev/baseline/v1"
REASON = "in the baseline"
NEVER_WRITTEN = frozenset({documents.MA903.id, documents.MA904.id})
"""Rules about the run itself."""


class InvalidBaseline(ValueError):  # noqa: N818 - reads as a noun
    """A baseline that cannot be used: file and reason."""


Place = Callable[[str], str | None]
"""Normalizes a path, so that two spellings of a file are equal; None for a file that no longer exists."""


def as_written(path: str) -> str | None:
    return path


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """One finding to ignore."""

    file: str
    rule: str
    object: str
    fingerprint: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    schema_version: str
    findings: tuple[Entry, ...]


@dataclass(frozen=True)
class Baseline:
    """The entries of a baseline file, and its text for their positions."""

    path: str
    entries: tuple[Entry, ...]
    text: str = ""
    place: Place = field(default=as_written, compare=False)

    @classmethod
    def read(cls, path: str, data: bytes, *, place: Place = as_written) -> "Baseline":
        """Raises :class:`InvalidBaseline`."""
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidBaseline(f"{path}: {error}; write it with --write-baseline") from None
        if stored.schema_version != SCHEMA_VERSION:
            raise InvalidBaseline(
                f"{path}: schemaVersion is {stored.schema_version!r}, expected {SCHEMA_VERSION!r}; "
                "write it again with --write-baseline"
            )
        return cls(path, stored.findings, data.decode(), place)

    @classmethod
    def of(cls, path: str, findings: Iterable[Finding]) -> "Baseline":
        """A baseline with these findings, each fingerprint once per file."""
        entries = {
            Entry(finding.file, finding.rule, str(finding.object), finding.fingerprint)
            for finding in findings
            if finding.fingerprint and finding.rule not in NEVER_WRITTEN
        }
        return cls(path, tuple(sorted(entries)))

    def encode(self) -> bytes:
        """The text of the file."""
        lines = [json.dumps(msgspec.to_builtins(entry), ensure_ascii=False) for entry in self.entries]
        inner = ",\n".join(f"    {line}" for line in lines)
        body = f"[\n{inner}\n  ]" if lines else "[]"
        return f'{{\n  "schemaVersion": "{SCHEMA_VERSION}",\n  "findings": {body}\n}}\n'.encode()

    def mark(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, those of the baseline marked as suppressed. Suppressed ones keep their reason."""
        return [
            msgspec.structs.replace(finding, suppressed=REASON)
            if finding.suppressed is None and self._known & self._names(finding)
            else finding
            for finding in findings
        ]

    def unmatched(self, findings: Iterable[Finding], *, judged: Callable[[Entry], bool]) -> list[Finding]:
        """An MA903 for each entry without a finding, where ``judged`` says that this run could have found it."""
        there = {name for finding in findings for name in self._names(finding)}
        lines = self.text.splitlines()
        return [
            self._unused(entry, lines) for entry in self.entries if self._name(entry) not in there and judged(entry)
        ]

    @cached_property
    def _known(self) -> frozenset[tuple[str, str | None]]:
        return frozenset(map(self._name, self.entries))

    def _name(self, entry: Entry) -> tuple[str, str | None]:
        return entry.fingerprint, self.place(entry.file)

    def _names(self, finding: Finding) -> frozenset[tuple[str, str | None]]:
        """The entries that match a finding: of its own file, or of a file that no longer exists."""
        return frozenset(((finding.fingerprint, self.place(finding.file)), (finding.fingerprint, None)))

    def _unused(self, entry: Entry, lines: list[str]) -> Finding:
        file = json.dumps(entry.file, ensure_ascii=False)
        own = (at for at, line in enumerate(lines, start=1) if entry.fingerprint in line and file in line)
        number = next(own, 1)
        column = (lines[number - 1].find(entry.fingerprint) if lines else 0) + 1
        width = len(entry.fingerprint)
        return documents.unmatched(
            f"the baseline's {entry.rule} of {entry.object} in {entry.file} no longer exists",
            "remove the entry, or write the baseline again with --write-baseline",
            file=self.path,
            span=Span(0, 0, number, max(column, 1), number, max(column, 1) + width),
            mark=entry.fingerprint,
        )
