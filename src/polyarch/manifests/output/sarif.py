"""SARIF 2.1.0 for code scanning.

A region is that of the offending node, in code points from 1 with an exclusive end, as SARIF counts. The partial
fingerprint is that of the baseline, so a result keeps its identity while lines move. Suppressed findings are included
on request only: code scanning ignores ``suppressions`` and shows them as open (github/codeql-action#1230).
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from polyarch import __version__
from polyarch.manifests.finding import Finding, Rule, Severity
from polyarch.manifests.report import Report
from polyarch.manifests.rules.catalogue import RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RESULTS = 25_000
"""The most results that code hosts accept for one run."""

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    return msgspec.json.format(msgspec.json.encode(document(report)), indent=2).decode() + "\n"


def document(report: Report) -> dict[str, Any]:
    """The log as values."""
    hidden = report.suppressed if report.show_suppressed else ()
    everything = sorted((*report.findings, *hidden), key=lambda finding: finding.order)
    shown = everything[:MAX_RESULTS]
    used = sorted({finding.rule for finding in shown})
    places = {rule: place for place, rule in enumerate(used)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "polyarch",
                        "version": __version__,
                        "rules": [_rule(RULES[rule]) for rule in used],
                    }
                },
                "automationDetails": {"id": "polyarch/lint"},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"SRCROOT": {"description": {"text": "the working directory of the run"}}},
                "invocations": [
                    {
                        "executionSuccessful": report.summary.complete,
                        "toolExecutionNotifications": list(_notifications(report, len(everything))),
                    }
                ],
                "results": [_result(finding, places[finding.rule]) for finding in shown],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    text = " ".join(part for part in (rule.meaning, f"Fix: {rule.fix}" if rule.fix else "") if part)
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.meaning},
        "help": {"text": text, "markdown": f"**{rule.title}**\n\n{rule.meaning}\n\n{rule.fix}".rstrip()},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, place: int) -> dict[str, Any]:
    message = f"{finding.message}. {_sentence(finding.hint)}" if finding.hint else finding.message
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": place,
        "level": _LEVELS[finding.severity],
        "message": {"text": message},
        "locations": [_location(finding)],
        "partialFingerprints": {"polyarch/v1": finding.fingerprint},
    }
    if finding.suppressed is not None:
        kind = "external" if finding.suppressed == "in the baseline" else "inSource"
        result["suppressions"] = [{"kind": kind, "justification": finding.suppressed}]
    return result


def _location(finding: Finding) -> dict[str, Any]:
    span = finding.span
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": artifact(finding.file),
            "region": {
                "startLine": span.line,
                "startColumn": span.column,
                "endLine": span.end_line,
                "endColumn": span.end_column,
            },
        }
    }
    if finding.object.kind:
        location["logicalLocations"] = [
            {"name": finding.object.name, "fullyQualifiedName": f"{finding.object}{finding.path}", "kind": "object"}
        ]
    return location


def artifact(path: str) -> dict[str, str]:
    """A file as a URI: relative to ``SRCROOT``, unless the path leaves the working directory."""
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path), "uriBaseId": "SRCROOT"}


def _notifications(report: Report, results: int) -> Iterable[dict[str, Any]]:
    for gap in report.incomplete:
        notification: dict[str, Any] = {"level": "error", "message": {"text": gap.message}}
        if gap.file:
            notification["locations"] = [{"physicalLocation": {"artifactLocation": artifact(gap.file)}}]
        yield notification
    if results > MAX_RESULTS:
        text = f"{results - MAX_RESULTS} of {results} results are left out: no more than {MAX_RESULTS} are taken"
        yield {"level": "warning", "message": {"text": text}}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
