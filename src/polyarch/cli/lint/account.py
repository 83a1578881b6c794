"""What ``polyarch fix`` did and did not: a diff and lines for people, and the document ``polyarch.dev/fix/v1``."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from polyarch.cli.lint.diffs import unified_diff
from polyarch.cli.output.terminal import styled
from polyarch.manifests.finding import Finding
from polyarch.manifests.fix import FixResult, Refusal
from polyarch.manifests.output.json import finding_document
from polyarch.manifests.output.text import counted, incomplete_lines, place_of, plain
from polyarch.manifests.report import Incomplete, Report

SCHEMA_VERSION = "polyarch.dev/fix/v1"

Way = Literal["diff", "write", "yaml", "kustomize"]


@dataclass
class Account:
    """Filled file by file."""

    way: Way
    applied: list[Finding] = field(default_factory=list)
    diffs: dict[str, str] = field(default_factory=dict)
    """Of the files that change."""
    refused: list[Refusal] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    changes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unwritten: dict[str, str] = field(default_factory=dict)
    """Files with fixes that could not be written, and why."""
    patched: int = 0
    """Objects that the component patches."""
    not_emitted: list[str] = field(default_factory=list)

    def take(self, result: FixResult) -> None:
        """Add what was made of one file."""
        self.applied += result.applied
        self.refused += result.refused
        self.remaining += result.remaining
        if result.changed:
            path = result.source.path
            self.diffs[path] = unified_diff(path, result.source.text, result.text)
            self.changes[path] = [
                {"document": number, "operation": kind, "path": place} for number, kind, place in result.changes()
            ]
        if result.unproven is not None:
            self.incomplete.append(Incomplete(result.source.path, "", result.unproven.message))

    def take_unwritten(self, result: FixResult, reason: str) -> None:
        """Add a file that stays as it is, because it could not be written: all its findings remain."""
        self.remaining += result.before
        self.unwritten[result.source.path] = reason
        self.incomplete.append(Incomplete(result.source.path, "", reason))

    def diff(self, *, colour: bool = False) -> str:
        """Of all files; on a terminal in the colours of ``git diff``."""
        text = "".join(self.diffs.values())
        if not colour:
            return text
        return "\n".join(map(_coloured, text.split("\n")))

    def take_unemitted(self, result: FixResult, reason: str) -> None:
        """Add a file whose fixes cannot be printed."""
        self.remaining += result.before
        if result.changed:
            self.not_emitted.append(f"{result.source.path}: {reason}")

    @property
    def is_shown_only(self) -> bool:
        """There are fixes, and they were not applied."""
        return self.way == "diff" and bool(self.diffs)

    def lines(self, report: Report, *, quiet: bool = False) -> list[str]:
        """What somebody should know besides the diff; ``quiet``: what went wrong only."""
        if quiet:
            return [*map(plain, self._writing()), *self._gaps(report.incomplete)]
        refused = sorted(self.refused, key=lambda each: each.finding.order)
        noted = {id(each.finding) for each in refused}
        lines = [f"{place_of(each.finding)}: {each.finding.rule} not fixed: {each.note}" for each in refused]
        failing = [each for each in report.findings if report.fails(each) and id(each) not in noted]
        lines += [f"{place_of(each)}: {each.severity.value} {each.rule} {each.message}" for each in failing]
        lines += [f"not emitted: {reason}" for reason in self.not_emitted]
        lines += self._writing()
        gaps = self._gaps(report.untold([*(each.finding for each in refused), *failing]))
        return [*map(plain, lines), *gaps, f"polyarch: {self._summary(report)}"]

    def _writing(self) -> list[str]:
        """Which files were written, if some could not be."""
        if not self.unwritten:
            return []
        written = [f"written: {path}" for path in self.diffs]
        return [*written, *(f"not written: {path}: {reason}" for path, reason in self.unwritten.items())]

    def _gaps(self, incomplete: Iterable[Incomplete]) -> list[str]:
        return incomplete_lines([each for each in incomplete if each.file not in self.unwritten])

    def _summary(self, report: Report) -> str:
        number, files = len(self.applied), counted(len(self.diffs), "file")
        left = f", {len(report.findings)} remaining" if report.findings else ""
        if self.way == "kustomize":
            return f"the component patches {counted(self.patched, 'object')}{left}"
        if self.is_shown_only:
            return f"{counted(number, 'fixable finding')} in {files}{left}; apply with --write"
        return f"fixed {counted(number, 'finding')} in {files}{left}"

    def document(self, report: Report) -> dict[str, Any]:
        """``polyarch.dev/fix/v1``; keys are never left out, new ones may come."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "mode": self.way,
            "summary": {
                "files": report.summary.files,
                "objects": report.summary.objects,
                "changed": len(self.diffs),
                "fixed": len(self.applied),
                "notFixed": len(self.refused),
                "remaining": len(report.findings),
                "complete": report.summary.complete,
            },
            "files": [{"file": path, "diff": diff, "changes": self.changes[path]} for path, diff in self.diffs.items()],
            "fixed": [finding_document(finding) for finding in self.applied],
            "notFixed": [{"finding": finding_document(each.finding), "reason": each.note} for each in self.refused],
            "remaining": [finding_document(finding) for finding in report.findings],
            "notEmitted": list(self.not_emitted),
            "notWritten": [{"file": path, "reason": reason} for path, reason in self.unwritten.items()],
            "incomplete": [{"file": gap.file, "image": gap.image, "message": gap.message} for gap in report.incomplete],
        }


def _coloured(line: str) -> str:
    style = "bold" if line.startswith(("---", "+++")) else {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")
    return styled(line, style, colour=True)
