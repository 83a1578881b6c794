"""CSV as RFC 4180 has it, with a header row, for spreadsheets and scripts (MF-045)."""

import csv
import io

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


def render(report: Report) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(HEADER)
    for finding in report.findings:
        platforms = finding.platforms
        writer.writerow(
            (
                finding.file,
                finding.span.line,
                finding.span.column,
                finding.severity.value,
                finding.rule,
                finding.sub,
                finding.message,
                finding.hint,
                finding.object.kind,
                finding.object.namespace,
                finding.object.name,
                finding.path,
                " ".join(finding.images),
                " ".join(platforms.admitted),
                " ".join(platforms.supported),
                " ".join(platforms.excess),
                " ".join(platforms.missing),
                "true" if finding.fixable else "false",
                finding.fingerprint,
                finding.origin,
            )
        )
    return stream.getvalue()
