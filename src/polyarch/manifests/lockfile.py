"""Lock file: digest and platforms of each tag, so that a lost platform is noticed later.

YAML, sorted by canonical reference. It has the format of a platforms file, so ``--platforms-file polyarch.lock``
replays the recorded answers without a registry. Only ``--update-lock`` writes it.

Pure.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn

import msgspec
from yaml.nodes import MappingNode, Node

from polyarch.manifests.rules.options import LockEntry
from polyarch.manifests.scan.nodes import (
    Document,
    SyntaxProblem,
    compose,
    duplicate_keys,
    elements,
    entries,
    get,
    is_null,
    text_of,
)
from polyarch.manifests.scan.sets import ImageInspection
from polyarch.manifests.scan.text import SourceText
from polyarch.oci.inspection import Status
from polyarch.oci.reference import InvalidReference, check_digest, parse
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform

HEADER = "# What the tags showed. Written by polyarch lint --update-lock; do not edit.\n"
ANEW = "delete it, then write it with --update-lock"


class InvalidLock(ValueError):  # noqa: N818 - reads as a noun
    """An invalid lock file: file, line, column, what is wrong."""


class Difference(msgspec.Struct, frozen=True):
    """What an update of the lock file changes, by canonical reference."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    lost: Mapping[str, tuple[str, ...]]
    """The platforms that a changed reference lost."""


def read(source: SourceText) -> dict[str, LockEntry]:
    """Raises :class:`InvalidLock`."""
    try:
        documents = compose(source)
    except SyntaxProblem as problem:
        raise InvalidLock(f"{source.path}:{problem.line}:{problem.column}: {problem.problem}; {ANEW}") from None
    if not documents or is_null(documents[0].root):
        return {}
    return _Reader(documents[0]).read()


def write(locked: Mapping[str, LockEntry]) -> str:
    """The text of the file; the same entries give the same text."""
    lines = [HEADER, "images:\n" if locked else "images: {}\n"]
    for reference in sorted(locked):
        entry = locked[reference]
        lines += [f"  {_quoted(reference)}:\n", f"    digest: {entry.digest}\n"]
        platforms = sorted(map(str, entry.platforms))
        lines.append("    platforms:\n" if platforms else "    platforms: []\n")
        lines += [f"    - {platform}\n" for platform in platforms]
    return "".join(lines)


def update(old: Mapping[str, LockEntry], answers: Iterable[ImageInspection]) -> dict[str, LockEntry]:
    """The new entries: every image that a run resolved by tag. An image that could not be resolved keeps its entry; one
    that no file names any more loses it.
    """
    found = {}
    for answer in answers:
        if answer.reference is None or answer.reference.digest is not None:
            continue
        canonical, inspection = answer.reference.canonical, answer.inspection
        if inspection is not None and inspection.status is Status.RESOLVED and inspection.digest:
            found[canonical] = LockEntry(inspection.digest, tuple(sorted(inspection.node_platforms)))
        elif canonical in old:
            found[canonical] = old[canonical]
    return found


def without_digest(answers: Iterable[ImageInspection]) -> tuple[str, ...]:
    """Images by tag with known platforms but no digest, as in a platforms file written by hand."""
    return tuple(
        answer.text
        for answer in answers
        if answer.reference is not None
        and answer.reference.digest is None
        and answer.inspection is not None
        and answer.inspection.status is Status.RESOLVED
        and not answer.inspection.digest
    )


def difference(old: Mapping[str, LockEntry], new: Mapping[str, LockEntry]) -> Difference:
    """Compares two lock files."""
    changed = tuple(name for name in sorted(old.keys() & new.keys()) if old[name] != new[name])
    gone = {name: sorted(set(old[name].platforms) - set(new[name].platforms)) for name in changed}
    return Difference(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=changed,
        lost={name: tuple(map(str, platforms)) for name, platforms in gone.items() if platforms},
    )


def _quoted(reference: str) -> str:
    # A reference is plain YAML as it stands: it begins with a letter or digit and its colons have no space behind.
    return f'"{reference}"' if reference.startswith("[") else reference


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document

    def fail(self, node: Node, problem: str) -> NoReturn:
        source = self.document.source
        line, column = source.place(self.document.start(node))
        raise InvalidLock(f"{source.path}:{line}:{column}: {problem}; {ANEW}")

    def read(self) -> dict[str, LockEntry]:
        root = self.document.root
        images = get(root, "images")
        if not isinstance(root, MappingNode) or images is None:
            self.fail(root, "a lock file must have its entries under images")
        if is_null(images):
            return {}
        if not isinstance(images, MappingNode):
            self.fail(images, "images must be a mapping of references to entries")
        for key, repeated in duplicate_keys(images):
            self.fail(repeated, f"{key} is duplicated")
        found = {}
        for key, key_node, entry in entries(images):
            try:
                reference = parse(key)
            except InvalidReference as error:
                self.fail(key_node, str(error))
            found[reference.canonical] = self.entry(key, entry)
        return found

    def entry(self, key: str, node: Node) -> LockEntry:
        digest = text_of(get(node, "digest")) or ""
        problem = check_digest(digest)
        if problem:
            self.fail(node, f"{key}: digest: {problem}")
        platforms: list[NodePlatform] = []
        for element in elements(get(node, "platforms")):
            try:
                platforms.append(Platform.parse(text_of(element) or "").node)
            except InvalidPlatform as error:
                self.fail(element, f"{key}: {error}")
        return LockEntry(digest, tuple(sorted(platforms)))
