"""CSV (RFC 4180) with a header row, for spreadsheets and scripts.

A cell that a spreadsheet would take for a formula gets an apostrophe, and no character is one that a terminal would
obey: names in manifests are anybody's texts.
"""

import csv
import io

from polyarch.manifests.finding import Finding
from polyarch.manifests.output.json import finding_document
from polyarch.manifests.output.text import plain
from polyarch.manifests.report import Report

HEADER = (
    "file",
    "line",
    "column",
    "severity",
    "rule",
    "sub",
    "message",
    "hint",
    "kind",
    "namespace",
    "name",
    "path",
    "images",
    "admitted",
    "supported",
    "excess",
    "missing",
    "fixable",
    "fingerprint",
    "origin",
)
_FORMULA = ("=", "+", "-", "@")


def render(report: Report) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(HEADER)
    writer.writerows(map(_row, report.findings))
    return stream.getvalue()


def _row(finding: Finding) -> list[str]:
    document = finding_document(finding)
    members = {**document, **document["object"], **document["platforms"]}
    return [_cell(members[name]) for name in HEADER]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return guarded(" ".join(value)) if isinstance(value, tuple) else guarded(str(value))


def guarded(text: str) -> str:
    """The text of a cell."""
    shown = plain(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
