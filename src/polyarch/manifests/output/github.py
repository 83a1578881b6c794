"""Workflow commands of GitHub Actions: annotations beside the lines of a pull request."""

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.output.text import plain
from polyarch.manifests.report import Incomplete, Report

LINE_END = "%0A"
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report) -> str:
    lines = [_line(finding) for finding in report.findings]
    lines += [_gap(gap) for gap in report.incomplete]
    return "".join(f"{line}\n" for line in lines)


def _line(finding: Finding) -> str:
    span = finding.span
    properties = (
        f"file={_property(finding.file)},line={span.line},col={span.column},endLine={span.end_line},"
        f"title={_property(finding.rule)}"
    )
    lines = [each for each in (finding.message, finding.hint) if each]
    return f"::{_COMMANDS[finding.severity]} {properties}::{LINE_END.join(map(_data, lines))}"


def _gap(gap: Incomplete) -> str:
    properties = f"file={_property(gap.file)},title=incomplete" if gap.file else "title=incomplete"
    return f"::error {properties}::{_data(gap.message)}"


def _data(text: str) -> str:
    return plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
