"""What a run of ``polyarch lint`` is measured against and leaves behind: baseline and lock file (MF-033, MF-034)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyarch.cli.input.files import write_file
from polyarch.cli.lint.examination import Linted
from polyarch.cli.lint.settings import Settings, existing_file, read_baseline
from polyarch.cli.output.messages import Messages
from polyarch.manifests import lockfile
from polyarch.manifests.baseline import Baseline, Entry
from polyarch.manifests.finding import Finding
from polyarch.manifests.output.text import counted
from polyarch.manifests.report import Report
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.engine import selected


@dataclass(frozen=True)
class Keeping:
    """What to compare with, and what to write."""

    baseline: Baseline | None = None
    write_baseline: str | None = None
    update_lock: bool = False

    @classmethod
    def of(cls, baseline: str | None, write_baseline: str | None, *, update_lock: bool) -> "Keeping":
        """Raises ``UsageError`` for a baseline that cannot be used."""
        known = read_baseline(baseline) if baseline is not None else None
        return cls(known, write_baseline, update_lock)


def judged(
    linted: Linted, settings: Settings, keeping: Keeping, *, messages: Messages, show_suppressed: bool = False
) -> Report:
    """The report of a run, after files were written that it was asked to write."""
    if keeping.update_lock:
        _update_lock(linted, settings, messages)
    findings = _against_baseline(linted, settings, keeping, messages)
    return Report.of(
        findings,
        files=linted.files,
        images=linted.images,
        incomplete=linted.incomplete,
        fail_on=settings.fail_on,
        show_suppressed=show_suppressed,
    )


def _against_baseline(linted: Linted, settings: Settings, keeping: Keeping, messages: Messages) -> Sequence[Finding]:
    findings: Sequence[Finding] = linted.findings
    if keeping.write_baseline is not None:
        # What is in the new baseline is passed over from this run on, so that one command begins a clean slate.
        new = Baseline.of(keeping.write_baseline, [each for each in findings if each.suppressed is None])
        write_file(keeping.write_baseline, new.encode())
        findings = new.mark(findings)
        messages.note(f"wrote {counted(len(new.entries), 'finding')} to {keeping.write_baseline}")
    elif keeping.baseline is not None:
        files = {None, *(existing_file(each.file) for each in linted.files)}

        def could_be_found(entry: Entry) -> bool:
            there = existing_file(entry.file) in files
            return there and entry.rule in RULES and selected(settings.options, entry.rule)

        unmatched = keeping.baseline.unmatched(findings, judged=could_be_found)
        findings = keeping.baseline.mark(findings)
        if selected(settings.options, "MA903"):
            findings = [*findings, *unmatched]
    return findings


def _update_lock(linted: Linted, settings: Settings, messages: Messages) -> None:
    if settings.lock_path is None:
        return
    new = lockfile.update(settings.locked, linted.answers)
    difference = lockfile.difference(settings.locked, new)
    text = lockfile.write(new).encode()
    if not Path(settings.lock_path).exists() or new != settings.locked:
        write_file(settings.lock_path, text)
    added, changed, removed = (len(each) for each in (difference.added, difference.changed, difference.removed))
    messages.note(f"{settings.lock_path}: {added} added, {changed} changed, {removed} removed")
    if without := lockfile.without_digest(linted.answers):
        messages.note(f"{counted(len(without), 'image')} not locked, no digest known: {', '.join(without)}")
    for name, platforms in difference.lost.items():
        messages.note(f"{name} no longer has {', '.join(platforms)}")
