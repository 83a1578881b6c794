"""Bundles, subscriptions and kustomizations, read whole before the first finding is made."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.files import InputFiles, folders_upward, read_file
from polyarch.manifests import olm
from polyarch.manifests.bundle import (
    ANNOTATIONS,
    Bundle,
    BundleNotValid,
    BundleTree,
    candidates,
    load,
    manifests_directory,
)
from polyarch.manifests.rules.catalogue import DOCUMENT_RULES
from polyarch.manifests.scan.nodes import SyntaxProblem, compose, value
from polyarch.manifests.scan.paths import is_skipped_directory
from polyarch.manifests.scan.scanning import FILE_NAMES, Kustomization, Kustomizations, Scan, read_kustomization, scan
from polyarch.manifests.scan.text import SourceText, UnreadableText


def read_bundle(directory: str) -> Bundle:
    """The bundle in a directory. ``UsageError`` if there is no directory, ``BundleNotValid`` if there is no bundle."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"{directory}: no such directory; expected an operator bundle")
    annotations = root / ANNOTATIONS
    files = {ANNOTATIONS: _read(root, annotations)} if annotations.is_file() else {}
    named = candidates(BundleTree(directory, files))
    folders = frozenset(each for each in named if (root / each).is_dir())
    chosen = manifests_directory(BundleTree(directory, files, folders))
    below: set[str] = set()
    for entry in sorted((root / chosen).iterdir()):
        path = f"{chosen}/{entry.name}" if chosen else entry.name
        if entry.is_dir():
            below.add(path)
        elif not entry.name.startswith("."):
            files[path] = _read(root, entry)
        else:
            files[path] = b""
    return load(BundleTree(directory, files, folders | below))


def _read(root: Path, path: Path) -> bytes:
    if not path.resolve().is_relative_to(root.resolve()):
        raise BundleNotValid(f"{path} is a link out of the bundle; put the file itself there")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CouldNotComplete(f"{path}: {error.strerror}") from None


def read_subscription(path: str) -> Scan:
    """The file of ``--subscription``; ``UsageError`` if nothing in it configures an operator."""
    try:
        found = scan(SourceText.of(path, Path(path).read_bytes()))
    except OSError as error:
        raise UsageError(f"--subscription {path}: {error.strerror}") from None
    except UnreadableText as problem:
        raise UsageError(f"--subscription {problem}") from None
    for rule in DOCUMENT_RULES:
        for finding in rule.check(found):
            raise UsageError(f"--subscription {path}:{finding.span.line}:{finding.span.column}: {finding.message}")
    configured = [subject for subject in found.objects if olm.config_path(subject.kind) is not None]
    if not configured:
        raise UsageError(f"--subscription {path}: no Subscription or ClusterExtension in it")
    for subject in configured:
        try:
            olm.apply_config({}, olm.config_of(value(subject.node)))
        except olm.InvalidConfig as problem:
            raise UsageError(f"--subscription {path}: {subject.reference}: {problem}") from None
    return found


# -- kustomizations


MOST_FOLDERS = 5_000
"""Folders of a repository that are searched for kustomizations which name a file as a patch."""


def read_kustomizations(given: InputFiles) -> Kustomizations:
    """Those among the files and above what is named; one that cannot be read says nothing.

    Of one above a directory, or elsewhere in the repository of a file that is named by itself, only the patches count:
    its ``images`` are applied within the given paths.
    """
    files = (Path(path) for path in given.files if path not in given.streams)
    found = dict(_read_kustomizations(_place(path) for path in files if path.name in FILE_NAMES))
    above = {each for path in given.named if not path.is_dir() for each in folders_upward(_place(path).parent)}
    for folder, kustomization in _read_kustomizations(_beside(above)):
        found.setdefault(folder, kustomization)
    beside = {root for path in given.named if not path.is_dir() for root in _repositories(_place(path).parent)}
    for folder, kustomization in _read_kustomizations(each for root in sorted(beside) for each in _below(root)):
        found.setdefault(folder, msgspec.structs.replace(kustomization, images=()))
    above = {each for path in given.named if path.is_dir() for each in folders_upward(_place(path))[1:]}
    for folder, kustomization in _read_kustomizations(_beside(above)):
        found.setdefault(folder, msgspec.structs.replace(kustomization, images=()))
    return Kustomizations(found, here=Path.cwd().as_posix())


def _repositories(folder: Path) -> Iterator[Path]:
    """Where the kustomizations are that may name a file of the folder as a patch: its repository, or where we are."""
    top, here = folders_upward(folder)[-1], Path.cwd()
    if (top / ".git").exists():
        yield top
    elif folder.is_relative_to(here) and here != Path(here.anchor):
        yield here


def _below(root: Path) -> Iterator[Path]:
    """The kustomizations below a folder, of its first :data:`MOST_FOLDERS` folders."""
    for number, (directory, names, files) in enumerate(os.walk(root)):
        if number >= MOST_FOLDERS:
            return
        names[:] = sorted(name for name in names if not is_skipped_directory(name))
        yield from (Path(directory) / name for name in sorted(FILE_NAMES.intersection(files)))


def _place(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _beside(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (folder / name for name in sorted(FILE_NAMES) if (folder / name).is_file())


def _read_kustomizations(paths: Iterable[Path]) -> Iterator[tuple[str, Kustomization]]:
    for path in paths:
        try:
            source = SourceText.of(path.as_posix(), read_file(str(path)))
            yield path.parent.as_posix(), read_kustomization(compose(source))
        except (OSError, UnreadableText, SyntaxProblem):
            continue  # who lints the file itself is told
