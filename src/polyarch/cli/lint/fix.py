"""The work of ``polyarch fix``: reads files, fixes what lint finds, and touches no other character.

Shows a diff unless it is told to write. Standard input becomes standard output, so it can stand in a pipe behind
``helm template`` or be a post-renderer. What could not be fixed is printed on stderr with the reason.
"""

import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.files import STDIN, is_special, write_file
from polyarch.cli.lint.lint import LintRun, is_judged, resolved, unexpected
from polyarch.cli.lint.settings import Settings, parse_platforms, parse_weights, patterns, read_baseline, settle
from polyarch.cli.options.common import STDOUT, Output, emit
from polyarch.cli.options.images import ImageOptions, RuleOptions
from polyarch.cli.output.documents import document_text, unified_diff
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import styled
from polyarch.manifests.baseline import Baseline
from polyarch.manifests.emit import Component
from polyarch.manifests.finding import Finding
from polyarch.manifests.fix import FixRequest, FixResult, UnfixedFinding, fix
from polyarch.manifests.output.json import finding_document
from polyarch.manifests.output.text import counted, incomplete_lines, place_of, plain
from polyarch.manifests.report import Incomplete, Report
from polyarch.manifests.rules.engine import ObjectCheck, RepairableFinding
from polyarch.manifests.rules.options import FixOptions
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.scan.text import SourceText, UnreadableText

Way = Literal["diff", "write", "yaml", "kustomize"]


@dataclass(frozen=True, kw_only=True)
class FixRunOptions:
    """The command line of ``polyarch fix`` without the options that it shares."""

    paths: tuple[str, ...]
    way: Way
    only: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    limit_to_universe: bool = False
    widen: bool = False
    replace: bool = False
    remove_labels: bool = False
    uncomment: bool = False
    bundle: str | None = None
    baseline: str | None = None
    lock: str | None = None


def run_fix(
    asked: FixRunOptions, rules: RuleOptions, options: ImageOptions, outputs: Sequence[Output], *, messages: Messages
) -> int:
    """Fix what the paths mean; returns the exit code."""
    if asked.way == "write":
        for path in asked.paths:
            if path != "-" and is_special(path):
                raise UsageError(f"{path}: not a regular file, cannot be written; run without --write")
    _check_stdout(asked, outputs)
    settings, request, baseline = _settled(asked, rules, options, messages)
    run = LintRun.over(asked.paths, settings, options, messages=messages)
    looked = resolved(run)
    run = looked.run
    request = msgspec.structs.replace(request, options=run.settings.options)
    delivery = _FixOutput(asked.way, run)
    account = FixReport(asked.way, incomplete=list(looked.incomplete))
    planned: list[FixResult] = []
    for path in run.files:
        try:
            data = run.read(path)
            if path != STDIN and asked.way != "yaml" and not is_judged(path, data):
                continue
            result = _fixed(run, path, data, request, baseline)
            if asked.way == "write" and path != STDIN and result.changed:
                planned.append(result)  # no file is written before the work on every file is done
                continue
            if asked.way in ("yaml", "kustomize") and is_source(path):
                account.take_unemitted(result, "a build file is no manifest")
                continue
            delivery.take(result)
        except (OSError, UnreadableText, CouldNotComplete) as error:
            account.incomplete.append(Incomplete(path, "", _reason(error)))
        except Exception as error:  # noqa: BLE001 - a bug that one file brings out must not lose the others
            account.incomplete.append(Incomplete(path, "", unexpected(error)))
        else:
            account.take(result if asked.way == "write" else result.with_places_before())
    with _signals_between_files() as signals:
        for result in planned:
            _write(result, delivery, account, signals)
    account.not_emitted += delivery.end()
    account.patched = len(delivery.component.patches)
    report = Report.of(
        account.remaining,
        files=looked.files,
        images=looked.images,
        incomplete=account.incomplete,
        fail_on=settings.fail_on,
    )
    _tell(account, report, outputs, messages)
    if signals:
        return 128 + signals[0]
    return report.exit_code or int(account.is_shown_only or bool(account.not_emitted))


@contextmanager
def _signals_between_files() -> Iterator[list[int]]:
    """Holds the first signal that would end the process until the file at hand is whole, so that no temporary file is
    left and the account says what was written. A second signal acts at once.
    """
    received: list[int] = []
    former: dict[int, Any] = {}

    def receive(number: int, frame: object) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):  # None: set by what embeds Python
                former[number] = handler
                signal.signal(number, receive)
    try:
        yield received
    finally:
        restore()


@dataclass
class FixReport:
    """Filled file by file."""

    way: Way
    applied: list[Finding] = field(default_factory=list)
    diffs: dict[str, str] = field(default_factory=dict)
    """Of the files that change."""
    refused: list[UnfixedFinding] = field(default_factory=list)
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
            mark = "\ufeff" if result.source.bom else ""
            self.diffs[path] = unified_diff(path, mark + result.source.text, mark + result.text)
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


def _write(result: FixResult, delivery: "_FixOutput", account: FixReport, signals: Sequence[int]) -> None:
    if signals:
        account.take_unwritten(result, f"interrupted by {signal.Signals(signals[0]).name}")
        return
    try:
        delivery.take(result)
    except Exception as error:  # noqa: BLE001 - whatever keeps one file from being written, the others are
        path = result.source.path
        known = isinstance(error, OSError | CouldNotComplete)
        reason = _reason(error).removeprefix(f"{path}: ") if known else unexpected(error)
        account.take_unwritten(result, reason)
    else:
        account.take(result)


def _check_stdout(asked: FixRunOptions, outputs: Sequence[Output]) -> None:
    """Two texts on one stdout would be none."""
    streams = asked.way in ("yaml", "kustomize") or (asked.way == "write" and "-" in asked.paths)
    taken = next((each.format for each in outputs if each.format != "text" and each.place == STDOUT), None)
    if streams and taken is not None:
        raise UsageError(f"--output {taken}: stdout has the manifests; give the report a file: -o {taken}=FILE")


def _tell(account: FixReport, report: Report, outputs: Sequence[Output], messages: Messages) -> None:
    """The diff or the document, and on stderr what else there is to know."""

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(account.document(report), form)
        return account.diff(colour=colour) if account.way == "diff" else ""

    emit(outputs, render)
    if not any(each.format == "text" for each in outputs):
        return
    found = report.summary.objects or account.applied or report.findings
    if not found and report.summary.complete:
        messages.note("no fixable objects in the given paths")
    else:
        lines = account.lines(report, quiet=messages.quiet)
        print("".join(f"{line}\n" for line in lines), end="", file=sys.stderr)


def _settled(
    asked: FixRunOptions, rules: RuleOptions, options: ImageOptions, messages: Messages
) -> tuple[Settings, FixRequest, Baseline | None]:
    only = patterns("--only", asked.only)
    weights = parse_weights("--prefer", asked.prefer)
    fixes = FixOptions(
        widen=asked.widen,
        replace=asked.replace,
        remove_labels=asked.remove_labels,
        prefer=bool(weights),
        limit_to_universe=asked.limit_to_universe,
        assume=parse_platforms("--assume", asked.assume),
    )
    settings = settle(rules, options, lock=asked.lock, fixes=fixes, messages=messages)
    if weights:
        settings = replace(settings, options=msgspec.structs.replace(settings.options, prefer=weights))
    request = FixRequest(options=settings.options, only=only, uncomment=asked.uncomment)
    if asked.bundle is not None:
        request = msgspec.structs.replace(request, object_checks=_checks_with(asked.bundle))
    return settings, request, read_baseline(asked.baseline) if asked.baseline is not None else None


def _checks_with(directory: str) -> tuple[ObjectCheck, ...]:
    from polyarch.cli.input.manifests import read_bundle
    from polyarch.manifests.bundle import BundleNotValid
    from polyarch.manifests.rules import bundle_run

    try:
        return bundle_run.object_checks(read_bundle(directory))
    except BundleNotValid as problem:
        raise UsageError(f"--bundle {directory}: {problem}") from None


def _fixed(run: LintRun, path: str, data: bytes, request: FixRequest, baseline: Baseline | None) -> FixResult:
    source = SourceText.of(path, data)
    if not is_judged(path, data):
        return FixResult(source=source, text=source.text)

    def mark(problems: Iterable[RepairableFinding]) -> tuple[RepairableFinding, ...]:
        if baseline is None:
            return tuple(problems)
        return tuple(replace(each, finding=baseline.mark([each.finding])[0]) for each in problems)

    return fix(source, run.images.answers, request, kustomizations=run.kustomizations, mark=mark)


class _FixOutput:
    """Where fixed texts go."""

    def __init__(self, way: Way, run: LintRun) -> None:
        self.way = way
        self.run = run
        self.component = Component()
        self.first = True
        self.ended = True

    def take(self, result: FixResult) -> None:
        """Raises ``CouldNotComplete`` for a file that cannot be written."""
        path = result.source.path
        if self.way == "kustomize":
            self.component.add(result)
        elif self.way == "yaml":
            self.stream(result)
        elif self.way == "write" and path == STDIN:
            _print(result.source.encode(result.text))
        elif self.way == "write" and result.changed:
            before = result.source.encode(result.source.text)
            write_file(path, result.source.encode(result.text), before=before, roots=self.run.roots)

    def stream(self, result: FixResult) -> None:
        """One file after the other, each from a document start on."""
        text = result.text
        if not self.first:
            between = "" if text.startswith("---") else "---\n"
            _print((between if self.ended else f"\n{between}").encode())
        _print(text.encode())
        self.first, self.ended = False, not text or text.endswith("\n")

    def end(self) -> list[str]:
        """What could not be delivered."""
        if self.way != "kustomize":
            return []
        self.component.settle()
        _print(self.component.text().encode())
        return self.component.refused


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableText):
        return f"{error.problem}; save it as UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# -- the report of a run


SCHEMA_VERSION = "polyarch.dev/fix/v1"


def _coloured(line: str) -> str:
    style = "bold" if line.startswith(("---", "+++")) else {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")
    return styled(line, style, colour=True)
