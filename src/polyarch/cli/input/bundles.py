"""A bundle's directory and a subscription's file, read whole before anything in them is judged."""

from pathlib import Path

from polyarch.cli.errors import CouldNotComplete, UsageError
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
from polyarch.manifests.scan.nodes import value
from polyarch.manifests.scan.scanning import Scan, scan
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
