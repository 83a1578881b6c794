"""Finds the ClusterServiceVersion of a bundle among its files (MF-071).

A bundle is a directory with ``metadata/annotations.yaml``, which names the manifests directory. Without that file it
is ``manifests/``, or the directory itself. Everything in the manifests directory is applied to the cluster, so what
cannot be applied (a sub-directory, a hidden file, a second ClusterServiceVersion) makes the bundle invalid.

Pure: :class:`BundleTree` is what the caller has read.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from yaml.nodes import MappingNode

from polyarch.manifests.bundle.service_version import KIND, ServiceVersion
from polyarch.manifests.scan.nodes import SyntaxProblem, compose, get, is_null, text_of
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.scanning import Scan, scan
from polyarch.manifests.scan.text import SourceText, UnreadableText

ANNOTATIONS = "metadata/annotations.yaml"
MANIFESTS_KEY = "operators.operatorframework.io.bundle.manifests.v1"
MEDIA_TYPE_KEY = "operators.operatorframework.io.bundle.mediatype.v1"
MEDIA_TYPE = "registry+v1"


class BundleNotValid(ValueError):  # noqa: N818 - operator-sdk's name of this error
    """The directory is not a bundle; ``missing`` is true if it has no ClusterServiceVersion."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class BundleTree:
    """The files of a directory that a bundle reads.

    ``files`` maps paths relative to ``root``, with ``/``, to contents; ``directories`` are the other paths.
    """

    root: str
    files: Mapping[str, bytes]
    directories: frozenset[str] = frozenset()

    def path(self, relative: str) -> str:
        """The path for findings."""
        return posixpath.join(self.root, relative)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A readable bundle."""

    service_version: ServiceVersion
    scans: tuple[Scan, ...]
    """Its manifests, the ClusterServiceVersion included, sorted by name."""

    @property
    def name(self) -> str:
        """Of the ClusterServiceVersion."""
        return self.service_version.object.name


def load(tree: BundleTree) -> Bundle:
    """The bundle; raises :class:`BundleNotValid`."""
    directory = manifests_directory(tree)
    members = _members(tree, directory)
    scans = [_scan(tree, path) for path in members]
    found = [(each, subject) for each in scans for subject in each.objects if subject.kind == KIND]
    where = tree.path(directory)
    if not found:
        raise BundleNotValid(
            f"no {KIND} in {where}; a bundle has exactly one, generate it with operator-sdk", missing=True
        )
    if len(found) > 1:
        places = ", ".join(_place(subject) for _, subject in found)
        raise BundleNotValid(f"{len(found)} {KIND}s in {where} ({places}); a bundle has exactly one")
    inside, subject = found[0]
    return Bundle(ServiceVersion.of(subject, inside.pod_specs), tuple(scans))


def candidates(tree: BundleTree) -> tuple[str, ...]:
    """The directories that a caller must list before :func:`manifests_directory` can choose; ``tree`` needs only its
    annotations.
    """
    named = _annotations(tree).get(MANIFESTS_KEY)
    return ("manifests", *((posixpath.normpath(named),) if named else ()))


def manifests_directory(tree: BundleTree) -> str:
    """The manifests directory relative to the root; empty for the root itself."""
    annotations = _annotations(tree)
    media_type = annotations.get(MEDIA_TYPE_KEY)
    if media_type is not None and media_type != MEDIA_TYPE:
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MEDIA_TYPE_KEY} is {media_type!r}; expected {MEDIA_TYPE}")
    named = annotations.get(MANIFESTS_KEY)
    if named is None:
        return "manifests" if _is_directory(tree, "manifests") else ""
    directory = posixpath.normpath(named) if named else "."
    directory = "" if directory == "." else directory
    if directory.startswith(("..", "/")):
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MANIFESTS_KEY} is {named!r}, which is outside the bundle")
    if directory and not _is_directory(tree, directory):
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MANIFESTS_KEY} is {named!r}, and there is no such directory")
    return directory


def _annotations(tree: BundleTree) -> dict[str, str]:
    data = tree.files.get(ANNOTATIONS)
    if data is None:
        return {}
    try:
        documents = compose(SourceText.of(tree.path(ANNOTATIONS), data))
    except (UnreadableText, SyntaxProblem) as problem:
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)} is not YAML: {problem}") from None
    node = get(documents[0].root, "annotations") if documents else None
    found = {key: text_of(get(node, key)) for key in (MANIFESTS_KEY, MEDIA_TYPE_KEY)}
    return {key: text for key, text in found.items() if text is not None}


def _is_directory(tree: BundleTree, path: str) -> bool:
    return path in tree.directories or any(each.startswith(f"{path}/") for each in tree.files)


def _members(tree: BundleTree, directory: str) -> list[str]:
    """The files of the directory of the manifests, in the order of their names."""
    found: set[str] = set()
    for path in (*tree.files, *tree.directories):
        relative = posixpath.relpath(path, directory) if directory else path
        if relative.startswith("../") or relative in (".", ".."):
            continue
        first, _, rest = relative.partition("/")
        # If the root is the manifests directory, the metadata in it are not manifests.
        if not directory and first == "metadata":
            continue
        if rest or path in tree.directories:
            raise BundleNotValid(
                f"{tree.path(directory)} has the sub-directory {first}; put all manifests directly into the directory"
            )
        if first.startswith("."):
            raise BundleNotValid(f"{tree.path(directory)} has the hidden file {first}; remove it")
        found.add(path)
    return sorted(found)


def _scan(tree: BundleTree, path: str) -> Scan:
    name = tree.path(path)
    try:
        result = scan(SourceText.of(name, tree.files[path]))
    except UnreadableText as problem:
        raise BundleNotValid(f"{problem}") from None
    if result.template is not None:
        raise BundleNotValid(f"{name} is a template, not YAML")
    try:
        roots = [document.root for document in compose(result.source)]  # including documents that no rule reads
    except SyntaxProblem as problem:
        raise BundleNotValid(f"{name}:{problem.line}:{problem.column}: the file is not YAML: {problem}") from None
    if not any(isinstance(root, MappingNode) for root in roots) or not all(
        isinstance(root, MappingNode) or is_null(root) for root in roots
    ):
        raise BundleNotValid(f"{name} is not YAML with objects in it; keep only manifests in this directory")
    return result


def _place(subject: KubeObject) -> str:
    document = subject.document
    return f"{document.source.path}:{document.span(subject.node).line}"
