"""A run of the rules over files: read, scan, resolve what nobody knows yet, lint, in as many processes as wanted.

A file is examined alone and its tree is dropped, so that memory does not grow with the number of files (MF-090). A file
with images nobody knows yet is put off until all of them have been asked for at once.
"""

import multiprocessing
import os
import posixpath
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.files import STDIN, find_files, is_source, read_file
from polyarch.cli.lint_options import ImageOptions
from polyarch.cli.lint_settings import Settings
from polyarch.cli.resolve import Images
from polyarch.manifests.finding import Finding
from polyarch.manifests.kustomizations import FILE_NAMES, NO_KUSTOMIZATIONS, Kustomizations, image_entries
from polyarch.manifests.lint.engine import lint, selected
from polyarch.manifests.lint.wanted import wanted
from polyarch.manifests.nodes import SyntaxProblem, compose
from polyarch.manifests.report import (
    ExaminedFile,
    ImageAnswer,
    Incomplete,
    image_answers,
    incomplete_images,
)
from polyarch.manifests.scan import Scan, scan, worth_reading
from polyarch.manifests.sets import Answer
from polyarch.manifests.suppression import suppressed
from polyarch.manifests.text import SourceText, UnreadableText

T = TypeVar("T")

FILES_PER_PROCESS = 200
"""Fewer are done sooner than another process starts."""
SOURCE_RULES = ("MA301", "MA302", "MA303")


class Examined(msgspec.Struct, frozen=True, gc=False):
    """What one file gave. With ``missing`` it has to be examined again when these images are known."""

    file: ExaminedFile
    findings: tuple[Finding, ...] = ()
    images: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""
    """Why it could not be read."""


@dataclass(frozen=True)
class Linted:
    """What all files gave, before a baseline and formats."""

    findings: list[Finding]
    files: list[ExaminedFile]
    images: list[ImageAnswer]
    incomplete: list[Incomplete]
    answers: list[Answer]


@dataclass(frozen=True)
class Run:
    """What is the same for every file of a run."""

    settings: Settings
    images: Images
    kustomizations: Kustomizations
    roots: tuple[Path, ...]
    files: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]

    @classmethod
    def over(cls, paths: Sequence[str], settings: Settings, options: ImageOptions) -> "Run":
        """Find the files; raises ``UsageError`` for a path that does not exist."""
        sources = any(selected(settings.options, rule) for rule in SOURCE_RULES)
        given = find_files(paths, ignore=settings.ignore_paths, sources=sources)
        indexes = selected(settings.options, "MA004") or selected(settings.options, "MA207")
        images = Images(options, file=settings.platforms_file, indexes=indexes)
        return cls(settings, images, _kustomizations(given.files), given.roots, given.files, given.unreadable)

    def scan(self, path: str) -> Scan | None:
        """The file; None if it is of no interest to any rule. Raises OSError, UnreadableText."""
        data = read_file(path)
        if not worth_reading(data):
            return None
        return scan(SourceText.of(path, data), kustomizations=self.kustomizations)

    def examine(self, path: str) -> Examined:
        """Everything there is to say about one file."""
        if is_source(path):
            return Examined(ExaminedFile(path))
        try:
            found = self.scan(path)
        except OSError as error:
            return Examined(ExaminedFile(path), problem=error.strerror or str(error))
        except UnreadableText as error:
            return Examined(ExaminedFile(path), problem=f"{error.problem}; save it as UTF-8")
        if found is None:
            return Examined(ExaminedFile(path))
        options = self.settings.options
        texts = wanted(found, options)
        objects = tuple(each.reference for each in found.objects)
        file = ExaminedFile(path, objects, len(found.pod_specs))
        missing = self.images.missing(texts)
        if missing:
            return Examined(file, images=texts, missing=missing)
        problems = lint(found, self.images.answers, options)
        marked = suppressed(found, problems, selected=lambda rule: selected(options, rule))
        return Examined(file, tuple(problem.finding for problem in marked), texts)


def lint_files(run: Run, *, jobs: int | None = None) -> Linted:
    """Examine all files of a run; the result does not depend on ``jobs``."""
    examined = over_files(run.examine, run.files, jobs=jobs)
    pending = [each for each in examined if each.missing]
    if pending:
        run.images.resolve(text for each in pending for text in each.images)
        again = over_files(run.examine, [each.file.file for each in pending], jobs=jobs)
        renewed = {each.file.file: each for each in again}
        examined = [renewed.get(each.file.file, each) for each in examined]
    texts = sorted({text for each in examined for text in each.images})
    run.images.missing(texts)
    answers = [run.images.answers.of(text) for text in texts]
    images = image_answers(answers)
    incomplete = [Incomplete(each.file.file, "", each.problem) for each in examined if each.problem]
    incomplete += [Incomplete(path, "", problem) for path, problem in run.unreadable]
    if run.settings.options.unresolved == "auto":
        incomplete += incomplete_images(images)
    return Linted(
        findings=[finding for each in examined for finding in each.findings],
        files=[each.file for each in examined],
        images=images,
        incomplete=incomplete,
        answers=answers,
    )


def over_files(work: Callable[[str], T], files: Sequence[str], *, jobs: int | None) -> list[T]:
    """``work`` on every file, in the order given; in several processes if there are many files (MF-090)."""
    processes = min(jobs if jobs is not None else (os.cpu_count() or 1), len(files) // FILES_PER_PROCESS)
    if processes < 2 or STDIN in files:
        return [work(path) for path in files]
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


def _share(work: Callable[[str], Any], files: Sequence[str], sending: Connection) -> None:
    """In a process of its own: the work on some of the files, or the error that ended it."""
    try:
        results: Any = [work(path) for path in files]
    except Exception as error:  # noqa: BLE001 - raised again in the process that waits for it
        results = error
    sending.send(results)
    sending.close()


def _received(receiving: Connection) -> list[Any]:
    try:
        results = receiving.recv()
    except EOFError:
        raise CouldNotComplete("a process of this run ended early, perhaps for lack of memory; try --jobs 1") from None
    if isinstance(results, Exception):
        raise results
    found: list[Any] = results
    return found


def _kustomizations(files: Iterable[str]) -> Kustomizations:
    found = {}
    for path in files:
        if Path(path).name not in FILE_NAMES:
            continue
        try:
            source = SourceText.of(path, read_file(path))
            entries = image_entries(compose(source)) if "images" in source.text else ()
        except (OSError, UnreadableText, SyntaxProblem):
            continue  # the run itself reads the file, and says so
        found[posixpath.dirname(path)] = entries
    return Kustomizations(found) if found else NO_KUSTOMIZATIONS
