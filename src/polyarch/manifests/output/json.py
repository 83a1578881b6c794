"""JSON document ``polyarch.dev/lint/v1``. Keys are never omitted; new ones may be added."""

from typing import Any

import msgspec

from polyarch.manifests.finding import Finding
from polyarch.manifests.report import ImageAnswer, Report

SCHEMA_VERSION = "polyarch.dev/lint/v1"


def render(report: Report) -> str:
    return msgspec.json.format(msgspec.json.encode(document(report)), indent=2).decode() + "\n"


def document(report: Report) -> dict[str, Any]:
    """The document as values."""
    found: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "summary": msgspec.to_builtins(report.summary),
        "findings": [finding_document(finding) for finding in report.findings],
    }
    if report.show_suppressed:
        found["suppressed"] = [
            {**finding_document(finding), "suppressed": finding.suppressed} for finding in report.suppressed
        ]
    found["images"] = {image.image: _image(image) for image in report.images}
    found["incomplete"] = msgspec.to_builtins(report.incomplete)
    return found


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding, as in every JSON document."""
    span = finding.span
    return {
        "rule": finding.rule,
        "sub": finding.sub,
        "severity": finding.severity.value,
        "message": finding.message,
        "hint": finding.hint,
        "file": finding.file,
        "line": span.line,
        "column": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
        "object": msgspec.to_builtins(finding.object),
        "path": finding.path,
        "images": finding.images,
        "platforms": msgspec.to_builtins(finding.platforms),
        "fixable": finding.fixable,
        "fingerprint": finding.fingerprint,
        "origin": finding.origin,
        "upstream": finding.upstream,
    }


def _image(image: ImageAnswer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "status": image.status,
        "digest": image.digest,
        "platforms": image.platforms,
        "error": None,
    }
    if image.code:
        found["error"] = {"code": image.code, "class": image.error_class, "message": image.message}
    return found
