"""Counts who refers to an image, so that only what nobody needs is deleted (BD-231, BD-232).

Executions share images: a child that did not change is in every result since it was built, and two builds may push to
one repository. So the question is never what an execution made, but who else refers to it: any kept execution of
either kind, a published status, a child that is about to be reused, a node that runs or wants it, a pod. What runs
names images in many ways, often at a mirror; a digest that is named there counts in every repository.

Pure: no asyncio, no clock.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from polyarch.builds.facts.facts import Execution
from polyarch.builds.keys import handles
from polyarch.oci.reference import InvalidReference, parse

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_SCHEME = re.compile(r"^[a-z-]+://")


class Claims(msgspec.Struct, frozen=True):
    """Everything that is referred to, by normalised repository (BD-232)."""

    digests: Mapping[str, frozenset[str]] = {}
    tags: Mapping[str, frozenset[str]] = {}
    """Tags that pods name; what they point to is in use."""
    anywhere: frozenset[str] = frozenset()
    """Digests that something running names, at whatever repository."""

    def holds(self, repository: str, digest: str) -> bool:
        return digest in self.anywhere or digest in self.digests.get(repository, frozenset())

    def names(self, repository: str, tags: Iterable[str]) -> bool:
        return not self.tags.get(repository, frozenset()).isdisjoint(tags)


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image to delete. ``tags`` are its own, deleted with it; ``after`` the indexes that hold it (BD-231)."""

    repository: str
    digest: str
    kind: Literal["index", "child"]
    tags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.digest}"


def digests_of(execution: Execution) -> frozenset[str]:
    """The result and all children of an execution, those of its index included."""
    found = {child.digest for child in execution.children}
    found.add(result_digest(execution))
    return frozenset(found - {""})


def result_digest(execution: Execution) -> str:
    """The digest of what it published; of an index that was pushed without being finished, too."""
    if execution.result:
        return execution.result.rpartition("@")[2]
    return execution.index.digest if execution.index is not None else ""


def own_tags(execution: Execution) -> dict[str, str]:
    """The tags that nothing but this execution ever had, with what they name: its result's and its children's (BD-080).

    A child that was reused or adopted keeps the tag of the execution that built it; one too many does no harm.
    """
    found = {
        handles.child_tag(execution.name, child.architecture): child.digest
        for child in execution.children
        if child.digest
    }
    if result := result_digest(execution):
        found[handles.result_tag(execution.name)] = result
    return found


def count(
    executions: Iterable[Execution],
    *,
    published: Iterable[str] = (),
    reused: Iterable[str] = (),
    running: Iterable[str] = (),
) -> Claims:
    """What is referred to.

    ``executions`` are the kept ones, of any namespace and of either kind; ``published`` the references in statuses of
    builds and configs, ``reused`` those of children that a plan is about to use (both ``repository@digest``);
    ``running`` texts of pods and nodes: images, imageIDs, ``currentImage`` and ``desiredImage``.
    """
    digests: dict[str, set[str]] = {}
    tags: dict[str, set[str]] = {}
    anywhere: set[str] = set()
    for execution in executions:
        digests.setdefault(handles.repository(execution.repository), set()).update(digests_of(execution))
    for text in (*published, *reused):
        repository, _, digest = text.rpartition("@")
        digests.setdefault(handles.repository(repository), set()).add(digest)
    for text in running:
        anywhere.update(_DIGEST.findall(text))
        try:
            reference = parse(_SCHEME.sub("", text))
        except InvalidReference:
            continue
        if reference.tag is not None:
            tags.setdefault(reference.name, set()).add(reference.tag)
    return Claims(
        {name: frozenset(found) for name, found in digests.items()},
        {name: frozenset(found) for name, found in tags.items()},
        frozenset(anywhere),
    )


def indexes_of(executions: Iterable[Execution]) -> dict[tuple[str, str], frozenset[str]]:
    """For each index, by repository and digest, its children as the executions recorded them."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for execution in executions:
        result = result_digest(execution)
        children = frozenset(child.digest for child in execution.children) - {"", result}
        if result and children:
            place = (handles.repository(execution.repository), result)
            found[place] = found.get(place, frozenset()) | children
    return found


def unreferenced(
    leaving: Iterable[Execution],
    claims: Claims,
    *,
    known: Iterable[Execution] = (),
) -> tuple[Image, ...]:
    """The images of the ``leaving`` executions that nobody refers to: indexes first, then children (BD-231).

    ``known`` are all executions that still exist, leaving or not: an index that is in use keeps its children, whoever
    recorded them.
    """
    going = tuple(leaving)
    every = (*going, *known)
    indexes = indexes_of(every)
    held: dict[str, set[str]] = {}
    for (repository, digest), children in indexes.items():
        if claims.holds(repository, digest):
            held.setdefault(repository, set()).update(children)
    tags: dict[tuple[str, str], set[str]] = {}
    for execution in every:
        for tag, digest in own_tags(execution).items():
            tags.setdefault((handles.repository(execution.repository), digest), set()).add(tag)
        repository = handles.repository(execution.repository)
        if claims.names(repository, own_tags(execution)):
            held.setdefault(repository, set()).update(digests_of(execution))
    found: dict[tuple[str, str], Image] = {}
    for execution in going:
        repository = handles.repository(execution.repository)
        for digest in sorted(digests_of(execution)):
            if claims.holds(repository, digest) or digest in held.get(repository, ()):
                continue
            found[repository, digest] = Image(
                repository=repository,
                digest=digest,
                kind="index" if (repository, digest) in indexes else "child",
                tags=tuple(sorted(tags.get((repository, digest), ()))),
                after=tuple(sorted(_holders(indexes, repository, digest))),
            )
    return tuple(sorted(found.values(), key=lambda image: (image.kind != "index", image.repository, image.digest)))


def _holders(indexes: Mapping[tuple[str, str], frozenset[str]], repository: str, digest: str) -> Iterable[str]:
    return (index for (place, index), children in indexes.items() if place == repository and digest in children)
