"""The work of ``polyarch lint``: reads and scans files, inspects their images, and applies the rules.

Many files are shared among processes; the result is the same as from one.
"""

import importlib
import os
import posixpath
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.images.resolve import Images
from polyarch.cli.input.files import STDIN, find_files, read_file, write_file
from polyarch.cli.input.manifests import read_kustomizations
from polyarch.cli.lint.settings import Settings, existing_file, read_baseline
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import USUAL, Messages
from polyarch.manifests import lockfile
from polyarch.manifests.baseline import Baseline, Entry
from polyarch.manifests.bundle import promised_architectures
from polyarch.manifests.finding import Finding
from polyarch.manifests.output.text import counted
from polyarch.manifests.report import (
    ExaminedFile,
    ImageAnswer,
    Incomplete,
    Report,
    image_answers,
    incomplete_images,
)
from polyarch.manifests.rules.bundle_run import lint_catalog
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.engine import RepairableFinding, lint, lint_source, selected, wanted
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.rules.sources import base_images
from polyarch.manifests.rules.suppression import suppressed
from polyarch.manifests.scan.scanning import Kustomizations, Scan, scan, worth_reading
from polyarch.manifests.scan.sets import ImageInspection
from polyarch.manifests.scan.text import SourceText, UnreadableText

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_CATALOGUE_SIGN = b"olm."
_CATALOGUE = re.compile(rb"""schema["']?[ \t]*:[ \t]*["']?olm\.(?:package|channel|bundle)\b""")
SOURCE_RULES = ("MA301", "MA302", "MA303")
INDEX_RULES = ("MA004", "MA207", "MA301")


class FileResult(msgspec.Struct, frozen=True, gc=False):
    """What one file gave. With ``missing`` it has to be examined again when these images are known."""

    file: ExaminedFile
    findings: tuple[Finding, ...] = ()
    images: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()
    """Architectures that a bundle in it promises (MA302)."""
    in_catalogue: bool = False
    """Has a part of an OLM catalogue, which is judged as a whole (MA210)."""
    problem: str = ""
    """Why it could not be read."""


@dataclass(frozen=True)
class LintRun:
    """What is the same for every file of a run."""

    settings: Settings
    images: Images
    kustomizations: Kustomizations
    roots: tuple[Path, ...]
    files: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    streams: Mapping[str, bytes] = field(default_factory=dict)
    """The content of what can be read only once."""

    @classmethod
    def over(
        cls,
        paths: Sequence[str],
        settings: Settings,
        options: ImageOptions,
        *,
        messages: Messages = USUAL,
    ) -> "LintRun":
        """Find the files; raises ``UsageError`` for a path that does not exist."""
        sources = any(selected(settings.options, rule) for rule in SOURCE_RULES)
        given = find_files(paths, ignore=settings.ignored, sources=sources)
        indexes = any(selected(settings.options, rule) for rule in INDEX_RULES)
        images = Images(options, file=settings.platforms_file, indexes=indexes, messages=messages)
        streams, unreadable = _read_once(given.streams)
        files = tuple(path for path in given.files if path not in unreadable)
        messages.detail(f"{len(files)} {'file' if len(files) == 1 else 'files'} in {', '.join(paths)}")
        return cls(
            settings,
            images,
            read_kustomizations(given),
            given.roots,
            files,
            (*given.unreadable, *unreadable.items()),
            streams,
        )

    @property
    def options(self) -> LintOptions:
        return self.settings.options

    def labelled(self, architectures: Iterable[str]) -> "LintRun":
        """The same run with the promises of bundles known."""
        options = msgspec.structs.replace(self.options, labelled=tuple(sorted(set(architectures))))
        return replace(self, settings=replace(self.settings, options=options))

    def read(self, path: str) -> bytes:
        """Raises OSError."""
        content = self.streams.get(path)
        return read_file(path) if content is None else content

    def look(self, path: str) -> FileResult:
        """Which images a file names, and which of them nobody knows yet."""
        return self._examine(path, judge=False)

    def examine(self, path: str) -> FileResult:
        """Everything there is to say about a file; only what :meth:`look` says while images are missing."""
        return self._examine(path, judge=True)

    def _examine(self, path: str, *, judge: bool) -> FileResult:
        try:
            return self._examined(path, judge=judge)
        except Exception as error:  # noqa: BLE001 - a bug that one file brings out must not lose the others
            return FileResult(ExaminedFile(path), problem=unexpected(error))

    def _examined(self, path: str, *, judge: bool) -> FileResult:
        try:
            data = self.read(path)
            if not is_judged(path, data):
                return FileResult(ExaminedFile(path))
            source = SourceText.of(path, data)
        except OSError as error:
            return FileResult(ExaminedFile(path), problem=error.strerror or str(error))
        except UnreadableText as error:
            return FileResult(ExaminedFile(path), problem=f"{error.problem}; save it as UTF-8")
        if is_source(path):
            return self._source(source, judge)
        in_catalogue = _CATALOGUE_SIGN in data and bool(_CATALOGUE.search(data))
        return msgspec.structs.replace(self._manifest(source, judge), in_catalogue=in_catalogue)

    def _manifest(self, source: SourceText, judge: bool) -> FileResult:
        found = scan(source, kustomizations=self.kustomizations)
        texts = wanted(found, self.options)
        objects = tuple(each.reference for each in found.objects)
        examined = FileResult(
            ExaminedFile(source.path, objects, len(found.pod_specs)),
            images=texts,
            missing=self.images.missing(texts),
            labelled=promised_architectures(found),
        )
        if examined.missing or not judge:
            return examined
        problems = lint(found, self.images.answers, self.options)
        return msgspec.structs.replace(examined, findings=self._marked(found, problems))

    def _source(self, source: SourceText, judge: bool) -> FileResult:
        texts = base_images(source)
        missing = self.images.missing(texts)
        examined = FileResult(ExaminedFile(source.path), images=texts, missing=missing)
        if missing or not judge:
            return examined
        problems = lint_source(source, self.images.answers, self.options)
        return msgspec.structs.replace(examined, findings=self._marked(Scan(source), problems))

    def _marked(self, found: Scan, problems: Iterable[RepairableFinding]) -> tuple[Finding, ...]:
        marked = suppressed(found, problems, selected=lambda rule: selected(self.options, rule))
        return tuple(problem.finding for problem in marked)

    def catalogue(self, paths: Iterable[str]) -> list[Finding]:
        """What is found in the files of one catalogue together."""
        scans = [scan(SourceText.of(path, self.read(path))) for path in paths]
        problems = lint_catalog(scans, self.options)
        marked: list[RepairableFinding] = []
        for each in scans:
            own = [problem for problem in problems if problem.finding.file == each.source.path]
            marked += suppressed(each, own, selected=lambda _: False)
        return [problem.finding for problem in marked]


@dataclass(frozen=True)
class LintResult:
    """What all files gave, before a baseline and formats."""

    findings: list[Finding]
    files: list[ExaminedFile]
    images: list[ImageAnswer]
    incomplete: list[Incomplete]
    answers: list[ImageInspection]


@dataclass(frozen=True)
class Resolved:
    """A run of which every image has been asked for."""

    run: LintRun
    files: list[ExaminedFile]
    images: list[ImageAnswer]
    incomplete: list[Incomplete]


def unexpected(error: Exception) -> str:
    """A bug as the reason why a file is left out: where in the file, and what to report."""
    place = "".join(f"{note}: " for note in getattr(error, "__notes__", ())[:1])
    frame = traceback.extract_tb(error.__traceback__)[-1]
    words = " ".join(str(error).split())
    said = f"{type(error).__name__}{f': {words[:200]}' if words else ''}"
    return (
        f"{place}a bug in polyarch: {said} ({Path(frame.filename).name}:{frame.lineno}); please report it with the file"
    )


def is_judged(path: str, data: bytes) -> bool:
    """Whether a file is of interest to any rule."""
    return is_source(path) or worth_reading(data)


def lint_files(run: LintRun, *, jobs: int | None = None) -> LintResult:
    """Examine all files of a run; the result does not depend on ``jobs``."""
    sources = [path for path in run.files if is_source(path)]
    manifests = [path for path in run.files if not is_source(path)] if sources else list(run.files)
    examined = _examined(run, manifests, jobs)
    if sources:
        examined += _examined(run.labelled(name for each in examined for name in each.labelled), sources, jobs)
    images, answers, incomplete = _answered(run, examined)
    findings = [finding for each in examined for finding in each.findings]
    for paths in _catalogues(examined):
        try:
            findings += run.catalogue(paths)
        except Exception as error:  # noqa: BLE001 - as for a file
            incomplete.append(Incomplete(paths[0], "", unexpected(error)))
    return LintResult(
        findings=findings,
        files=[each.file for each in examined],
        images=images,
        incomplete=incomplete,
        answers=answers,
    )


def resolved(run: LintRun) -> Resolved:
    """Ask for every image that the files of a run name."""
    looked = [run.look(path) for path in run.files]
    run.images.resolve(text for each in looked if each.missing for text in each.images)
    images, _, incomplete = _answered(run, looked)
    return Resolved(
        run=run.labelled(name for each in looked for name in each.labelled),
        files=[each.file for each in looked],
        images=images,
        incomplete=incomplete,
    )


def _examined(run: LintRun, files: Sequence[str], jobs: int | None) -> list[FileResult]:
    examined = over_files(run.examine, files, jobs=jobs)
    pending = [each for each in examined if each.missing]
    if not pending:
        return examined
    run.images.resolve(text for each in pending for text in each.images)
    again = over_files(run.examine, [each.file.file for each in pending], jobs=jobs)
    renewed = {each.file.file: each for each in again}
    return [renewed.get(each.file.file, each) for each in examined]


def _catalogues(examined: Iterable[FileResult]) -> list[list[str]]:
    """The files of each catalogue: those of one directory."""
    found: dict[str, list[str]] = {}
    for each in examined:
        if each.in_catalogue:
            found.setdefault(posixpath.dirname(each.file.file), []).append(each.file.file)
    return list(found.values())


def _answered(
    run: LintRun, examined: Sequence[FileResult]
) -> tuple[list[ImageAnswer], list[ImageInspection], list[Incomplete]]:
    """The images of a run, and what could not be completed."""
    texts = sorted({text for each in examined for text in each.images})
    run.images.missing(texts)  # in this process too, where others did the work
    answers = [run.images.answers.of(text) for text in texts]
    images = image_answers(answers)
    incomplete = [Incomplete(each.file.file, "", each.problem) for each in examined if each.problem]
    incomplete += [Incomplete(path, "", problem) for path, problem in run.unreadable]
    if run.options.unresolved == "auto":
        incomplete += incomplete_images(images)
    return images, answers, incomplete


def _read_once(paths: Iterable[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """The contents, and of what cannot be read why."""
    contents, problems = {}, {}
    for path in paths:
        try:
            contents[path] = read_file(path)
        except OSError as error:
            problems[path] = error.strerror or str(error)
    return contents, problems


# -- processes


T = TypeVar("T")
FILES_PER_PROCESS = 200
"""Fewer are done sooner than another process starts."""


def over_files(work: Callable[[str], T], files: Sequence[str], *, jobs: int | None) -> list[T]:
    """``work`` on every file, in the order given; in several processes if there are many files."""
    processes = min(jobs if jobs is not None else (os.cpu_count() or 1), len(files) // FILES_PER_PROCESS)
    if processes < 2 or STDIN in files:
        return [work(path) for path in files]
    import multiprocessing  # with what it imports a twentieth of the start of a run that needs none of it

    # A copy of this process has everything that the work needs without being sent it.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    sys.stdout.flush()
    sys.stderr.flush()
    shares = []
    for number in range(processes):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_share, args=(work, files[number::processes], sending), daemon=True)
        process.start()
        sending.close()
        shares.append((process, receiving))
    results: list[Any] = [None] * len(files)
    try:
        for number, (_, receiving) in enumerate(shares):
            results[number::processes] = _received(receiving)
    finally:
        for process, receiving in shares:
            receiving.close()
            process.join(timeout=1)
            if process.is_alive():
                process.terminate()
                process.join()
    return results


def _share(work: Callable[[str], Any], files: Sequence[str], sending: "Connection[Any, Any]") -> None:
    """In a process of its own: the work on some of the files, or the error that ended it."""
    try:
        results: Any = [work(path) for path in files]
    except Exception as error:  # noqa: BLE001 - raised again in the process that waits for it
        results = error
    sending.send(results)
    sending.close()


def _received(receiving: "Connection[Any, Any]") -> list[Any]:
    try:
        results = receiving.recv()
    except EOFError:
        raise CouldNotComplete("a worker process died, perhaps out of memory; try --jobs 1") from None
    if isinstance(results, Exception):
        raise results
    found: list[Any] = results
    return found


# -- baseline and lock file


@dataclass(frozen=True)
class BaselineOptions:
    """What to compare with, and what to write."""

    baseline: Baseline | None = None
    write_baseline: str | None = None
    update_lock: bool = False

    @classmethod
    def of(cls, baseline: str | None, write_baseline: str | None, *, update_lock: bool) -> "BaselineOptions":
        """Raises ``UsageError`` for a baseline that cannot be used."""
        known = read_baseline(baseline) if baseline is not None else None
        return cls(known, write_baseline, update_lock)


def judged(
    linted: LintResult,
    settings: Settings,
    keeping: BaselineOptions,
    *,
    messages: Messages,
    show_suppressed: bool = False,
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


def _against_baseline(
    linted: LintResult, settings: Settings, keeping: BaselineOptions, messages: Messages
) -> Sequence[Finding]:
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


def _update_lock(linted: LintResult, settings: Settings, messages: Messages) -> None:
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


# -- output


def write_reports(report: Report, outputs: Sequence[Output], *, messages: Messages) -> None:
    """All formats; a file appears whole or not at all."""
    emit(outputs, lambda form, colour: rendered(report, form, colour=colour, brief=messages.quiet))


def rendered(report: Report, format: str, *, colour: bool = False, brief: bool = False) -> str:
    """The text of one format; ``brief``: without a summary for people."""
    if format == "text":
        from polyarch.manifests.output import text

        return text.render(report, colour=colour, summary=not brief)
    if format == "yaml":
        from polyarch.manifests.output import json

        return document_text(json.document(report), "yaml")
    rendering = importlib.import_module(f"polyarch.manifests.output.{format}")
    result: str = rendering.render(report)
    return result
