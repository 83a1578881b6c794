"""Markdown for comments on pull requests: one table for each file (MF-045)."""

import re
from itertools import groupby

from polyarch.manifests.finding import Finding
from polyarch.manifests.output.text import summary_line
from polyarch.manifests.report import Report

_MARKS = re.compile(r"([\\`*_<>\[\]|])")


def render(report: Report) -> str:
    parts = [f"**polyarch lint**: {_escaped(summary_line(report.summary))}"]
    for file, findings in groupby(report.findings, key=lambda finding: finding.file):
        rows = ["| line | severity | rule | finding |", "|---|---|---|---|", *map(_row, findings)]
        parts.append(f"### {_escaped(file)}\n\n" + "\n".join(rows))
    if report.incomplete:
        rows = [f"| {_escaped(gap.file or gap.image)} | {_escaped(gap.message)} |" for gap in report.incomplete]
        parts.append("### Not completed\n\n| what | why |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _row(finding: Finding) -> str:
    text = f"{_escaped(finding.message)}<br>{_escaped(finding.hint)}" if finding.hint else _escaped(finding.message)
    return f"| {finding.span.line} | {finding.severity.value} | {finding.rule} | {text} |"


def _escaped(text: str) -> str:
    return _MARKS.sub(r"\\\1", " ".join(text.split()))
