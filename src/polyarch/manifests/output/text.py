"""Text for terminals: a line for each finding, its hint below, and a summary line.

Terminals and editors turn ``file:line:column`` into links. Texts come from manifests, so control characters are
replaced.
"""

from collections.abc import Iterable

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.report import Incomplete, Report, Summary

NAMED = 3
"""Images of a line that is about more."""
_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}


def render(report: Report, *, colour: bool = False, summary: bool = True) -> str:
    """The lines; ``colour`` is for terminals only. Without ``summary`` the last one is left out."""
    lines: list[str] = []
    for finding in report.findings:
        lines += _lines(finding, colour=colour)
    if report.show_suppressed:
        for finding in report.suppressed:
            lines += [
                plain(f"{place_of(finding)}: suppressed {finding.rule} {finding.message}"),
                plain(f"  reason: {finding.suppressed}"),
            ]
    lines += incomplete_lines(report.untold(report.findings))
    if summary:
        lines.append(summary_line(report.summary))
    return "".join(f"{line}\n" for line in lines)


def plain(text: str) -> str:
    """The text on one line, without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)


def summary_line(summary: Summary) -> str:
    """``3 errors, 1 warning in 12 objects, 2 suppressed; 1 image unresolved``."""
    counts = [
        counted(number, word)
        for number, word in ((summary.errors, "error"), (summary.warnings, "warning"), (summary.infos, "info"))
        if number
    ]
    line = f"{', '.join(counts) or 'nothing found'} in {counted(summary.objects, 'object')}"
    if summary.suppressed:
        line += f", {summary.suppressed} suppressed"
    if summary.unresolved:
        line += f"; {counted(summary.unresolved, 'image')} unresolved"
    return line


def incomplete_lines(gaps: Iterable[Incomplete]) -> list[str]:
    """``file or image: not completed: why``; many images without an answer for the same reason share a line."""
    several = tuple(gaps)
    lines = [plain(f"{gap.file}: not completed: {gap.message}") for gap in several if gap.file]
    images: dict[str, list[str]] = {}
    for gap in several:
        if not gap.file:
            images.setdefault(gap.why, []).append(gap.image)
    for why, names in images.items():
        rest = len(names) - NAMED
        shown = names if rest <= 0 else [f"{', '.join(names[:NAMED])} and {counted(rest, 'more image')}"]
        lines += [plain(f"{name}: not completed: {why}") for name in shown]
    return lines


def counted(number: int, word: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def place_of(finding: Finding) -> str:
    """``file:line:column``."""
    return f"{finding.file}:{finding.span.line}:{finding.span.column}"


def _lines(finding: Finding, *, colour: bool) -> list[str]:
    place, severity, message = plain(place_of(finding)), str(finding.severity.value), plain(finding.message)
    rule = f"{finding.rule}/{finding.sub}" if finding.rule == "MA205" else finding.rule
    if colour:
        severity = f"\x1b[{_COLOURS[finding.severity]};1m{severity}\x1b[0m"
        place = f"\x1b[1m{place}\x1b[0m"
    lines = [f"{place}: {severity} {rule} {message}"]
    if finding.hint:
        lines.append(f"  {plain(finding.hint)}")
    if finding.origin:
        lines.append(f"  from {plain(finding.origin)}")
    return lines
