"""Facts and answers in a file, so that a report can be made where the cluster is not reachable (RP-002, RP-050).

The file is JSON with a schema of its own. A snapshot of another version is refused rather than guessed at, and so is
anything that is no snapshot: a report of half the facts would look like a report. Pure.
"""

from typing import Final

import msgspec

from polyarch.reports.document import SCHEMA as REPORT_SCHEMA
from polyarch.reports.document import Report
from polyarch.reports.facts.cluster import Facts
from polyarch.reports.facts.readings import Answers, Reading

SCHEMA: Final = "polyarch.dev/report-snapshot/v1"


class InvalidFile(ValueError):  # noqa: N818 - what is the case
    """The text is not what it has to be; the message says what was expected and what was found."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one report is made of."""

    schema_version: str = SCHEMA
    facts: Facts
    readings: tuple[Reading, ...] = ()
    complete: bool = True

    @property
    def answers(self) -> Answers:
        return Answers(self.readings)


class _Head(msgspec.Struct):
    schema_version: str = msgspec.field(default="", name="schemaVersion")
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""


def encode(facts: Facts, answers: Answers, *, complete: bool = True) -> bytes:
    """The content of the file: equal facts, equal bytes."""
    snapshot = Snapshot(facts=facts, readings=answers.readings, complete=complete)
    return msgspec.json.encode(snapshot, order="deterministic") + b"\n"


def decode(content: bytes) -> Snapshot:
    """Raises :class:`InvalidFile`."""
    head = _head(content, SCHEMA)
    if head.schema_version != SCHEMA:
        raise InvalidFile(f"expected a snapshot of schema {SCHEMA}, {_found(head)}; make one with --save FILE")
    try:
        snapshot = msgspec.json.decode(content, type=Snapshot)
        _ = snapshot.answers
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidFile(f"expected a snapshot of schema {SCHEMA}, but: {error}; make one with --save FILE") from None
    return snapshot


def decode_report(content: bytes) -> Report:
    """A report that ``-o json`` wrote. Raises :class:`InvalidFile`."""
    head = _head(content, REPORT_SCHEMA)
    if head.api_version != REPORT_SCHEMA:
        raise InvalidFile(f"expected a report of schema {REPORT_SCHEMA}, {_found(head)}; make one with -o json=FILE")
    try:
        return msgspec.json.decode(content, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFile(
            f"expected a report of schema {REPORT_SCHEMA}, but: {error}; make one with -o json=FILE"
        ) from None


def _head(content: bytes, schema: str) -> _Head:
    try:
        return msgspec.json.decode(content, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFile(f"expected JSON of schema {schema}, but: {error}; the file may be cut off") from None


def _found(head: _Head) -> str:
    version = head.schema_version or head.api_version
    return f"found {version}" if version else "found a document without a schema"
