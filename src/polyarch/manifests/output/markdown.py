"""Markdown for comments on pull requests: one table for each file.

Texts come from manifests, and so from whoever opens a pull request: none of them may become markup, mention somebody,
or become a link.
"""

import re
from itertools import groupby
from typing import Final

from polyarch.manifests.finding import Finding
from polyarch.manifests.output.text import plain, summary_line
from polyarch.manifests.report import Report

_MARKS: Final = re.compile(r"([\\`*_<>\[\]|~#@!&]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What could begin markup; also the point and the colon of what pages make links of, ``www.…`` and ``https://…``."""


def render(report: Report) -> str:
    parts = [f"**polyarch lint**: {escaped(summary_line(report.summary))}"]
    for file, findings in groupby(report.findings, key=lambda finding: finding.file):
        rows = ["| line | severity | rule | finding |", "|---|---|---|---|", *map(_row, findings)]
        parts.append(f"### {escaped(file)}\n\n" + "\n".join(rows))
    if report.incomplete:
        rows = [f"| {escaped(gap.file or gap.image)} | {escaped(gap.message)} |" for gap in report.incomplete]
        parts.append("### Not completed\n\n| what | why |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _row(finding: Finding) -> str:
    text = f"{escaped(finding.message)}<br>{escaped(finding.hint)}" if finding.hint else escaped(finding.message)
    return f"| {finding.span.line} | {finding.severity.value} | {finding.rule} | {text} |"


def escaped(text: str) -> str:
    """The text on one line, as it reads."""
    return _MARKS.sub(r"\\\1", " ".join(plain(text).split()))
