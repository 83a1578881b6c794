"""The work of ``polyarch fix``: files in, diffs, files or patches out, and an account of what was and was not done."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.files import STDIN, is_special, write_file
from polyarch.cli.lint.diffs import unified_diff
from polyarch.cli.lint.examination import Run, is_judged, resolved
from polyarch.cli.lint.settings import Settings, parse_platforms, parse_weights, read_baseline, settle, split
from polyarch.cli.options.manifests import ImageOptions, RuleOptions
from polyarch.manifests.baseline import Baseline
from polyarch.manifests.configuration import check_pattern
from polyarch.manifests.finding import Finding
from polyarch.manifests.lint.engine import ObjectCheck, Problem
from polyarch.manifests.lint.options import FixOptions
from polyarch.manifests.output.text import counted, incomplete_line, place_of, plain
from polyarch.manifests.repair.emit import Component
from polyarch.manifests.repair.fix import fix
from polyarch.manifests.repair.fix_result import FixRequest, FixResult, Refusal
from polyarch.manifests.report import Incomplete, Report
from polyarch.manifests.scan.text import SourceText, UnreadableText

Way = Literal["diff", "write", "yaml", "kustomize"]


@dataclass(frozen=True, kw_only=True)
class Asked:
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


@dataclass
class _Account:
    """What was done, and what was not."""

    applied: int = 0
    changed: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    patched: int = 0
    """Objects that the component changes."""
    not_emitted: list[str] = field(default_factory=list)


def run_fix(asked: Asked, rules: RuleOptions, options: ImageOptions) -> int:
    """Repair what the paths mean; returns the exit code (MF-050)."""
    if asked.way == "write":
        for path in asked.paths:
            if path != "-" and is_special(path):
                raise UsageError(f"{path}: is no regular file and cannot be written; leave out --write")
    settings, request, baseline = _settled(asked, rules, options)
    run = Run.over(asked.paths, settings, options)
    looked = resolved(run)
    run = looked.run
    request = msgspec.structs.replace(request, options=run.settings.options)
    delivery = _Delivery(asked.way, run)
    account = _Account(incomplete=list(looked.incomplete))
    for path in run.files:
        try:
            data = run.read(path)
            if path != STDIN and asked.way != "yaml" and not is_judged(path, data):
                continue
            result = _fixed(run, path, data, request, baseline)
            delivery.take(result, data)
            if asked.way != "write":
                result = result.with_places_before()
        except (OSError, UnreadableText, CouldNotComplete) as error:
            account.incomplete.append(Incomplete(path, "", _reason(error)))
            continue
        account.applied += len(result.applied)
        account.changed += [path] if result.changed else []
        account.refused += result.refused
        account.remaining += result.remaining
        if result.unproven is not None:
            account.incomplete.append(Incomplete(path, "", result.unproven.message))
    account.not_emitted = delivery.end()
    account.patched = len(delivery.component.patches)
    report = Report.of(
        account.remaining,
        files=looked.files,
        images=looked.images,
        incomplete=account.incomplete,
        fail_on=settings.fail_on,
    )
    if not report.summary.objects and report.summary.complete:
        print("polyarch: no Kubernetes object was found in what is named", file=sys.stderr)
    else:
        _tell(account, report, asked.way)
    shown = asked.way == "diff" and bool(account.changed)
    return report.exit_code or int(shown or bool(account.not_emitted))


def _settled(asked: Asked, rules: RuleOptions, options: ImageOptions) -> tuple[Settings, FixRequest, Baseline | None]:
    only = tuple(split(asked.only))
    for pattern in only:
        problem = check_pattern(pattern)
        if problem:
            raise UsageError(f"--only: {problem}")
    weights = parse_weights("--prefer", asked.prefer)
    fixes = FixOptions(
        widen=asked.widen,
        replace=asked.replace,
        remove_labels=asked.remove_labels,
        prefer=bool(weights),
        limit_to_universe=asked.limit_to_universe,
        assume=parse_platforms("--assume", asked.assume),
    )
    settings = settle(rules, options, lock=asked.lock, fixes=fixes)
    if weights:
        settings = replace(settings, options=msgspec.structs.replace(settings.options, prefer=weights))
    request = FixRequest(options=settings.options, only=only, uncomment=asked.uncomment)
    if asked.bundle is not None:
        request = msgspec.structs.replace(request, object_checks=_checks_with(asked.bundle))
    return settings, request, read_baseline(asked.baseline) if asked.baseline is not None else None


def _checks_with(directory: str) -> tuple[ObjectCheck, ...]:
    from polyarch.cli.input.bundles import read_bundle
    from polyarch.manifests.bundle.loader import BundleNotValid
    from polyarch.manifests.lint import bundle_run

    try:
        return bundle_run.object_checks(read_bundle(directory))
    except BundleNotValid as problem:
        raise UsageError(f"--bundle {directory}: {problem}") from None


def _fixed(run: Run, path: str, data: bytes, request: FixRequest, baseline: Baseline | None) -> FixResult:
    source = SourceText.of(path, data)
    if not is_judged(path, data):
        return FixResult(source=source, text=source.text)

    def mark(problems: Iterable[Problem]) -> tuple[Problem, ...]:
        if baseline is None:
            return tuple(problems)
        return tuple(replace(each, finding=baseline.mark([each.finding])[0]) for each in problems)

    return fix(source, run.images.answers, request, kustomizations=run.kustomizations, mark=mark)


class _Delivery:
    """Where repaired texts go."""

    def __init__(self, way: Way, run: Run) -> None:
        self.way = way
        self.run = run
        self.component = Component()
        self.first = True
        self.ended = True

    def take(self, result: FixResult, before: bytes) -> None:
        """Raises ``CouldNotComplete`` for a file that cannot be written."""
        path = result.source.path
        if self.way == "kustomize":
            self.component.add(result)
        elif self.way == "yaml":
            self.stream(result)
        elif self.way == "diff":
            _print(unified_diff(path, result.source.text, result.text).encode())
        elif path == STDIN:
            _print(result.source.encode(result.text))
        elif result.changed:
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


def _tell(account: _Account, report: Report, way: Way) -> None:
    """What somebody should know besides the diff, on stderr."""
    noted = {id(refusal.finding) for refusal in account.refused}
    lines = []
    for refusal in sorted(account.refused, key=lambda each: each.finding.order):
        finding = refusal.finding
        lines.append(f"{place_of(finding)}: {finding.rule} not repaired: {refusal.note}")
    lines += [
        f"{place_of(finding)}: {finding.severity.value} {finding.rule} {finding.message}"
        for finding in report.findings
        if report.fails(finding) and id(finding) not in noted
    ]
    lines += [f"not emitted: {reason}" for reason in account.not_emitted]
    lines += map(incomplete_line, report.incomplete)
    repaired, files = counted(account.applied, "finding"), counted(len(account.changed), "file")
    shown = way == "diff" and bool(account.changed)
    if way == "kustomize":
        done = f"the component changes {counted(account.patched, 'object')}"
    else:
        done = f"{repaired} can be repaired in {files}" if shown else f"{repaired} repaired in {files}"
    left = f", {len(report.findings)} left" if report.findings else ""
    lines.append(f"polyarch: {done}{left}{'; --write does it' if shown else ''}")
    print("".join(f"{plain(line)}\n" for line in lines), end="", file=sys.stderr)
