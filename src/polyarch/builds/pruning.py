"""Which images and executions nothing refers to any more, and when a finalizer may go. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from polyarch.builds.facts.build_facts import Execution
from polyarch.builds.names import child_tag, normalised_repository, result_tag
from polyarch.builds.plan.document import PlannedEvent
from polyarch.oci.reference import InvalidReference, parse

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_SCHEME = re.compile(r"^[a-z-]+://")


class ImageReferences(msgspec.Struct, frozen=True):
    """Everything that is referred to, by normalised repository."""

    digests: Mapping[str, frozenset[str]] = {}
    tags: Mapping[str, frozenset[str]] = {}
    """Tags that pods name; what they point to is in use."""
    anywhere: frozenset[str] = frozenset()
    """Digests that something running names, at whatever repository."""

    def holds(self, repository: str, digest: str) -> bool:
        return digest in self.anywhere or digest in self.digests.get(repository, frozenset())

    def names(self, repository: str, tags: Iterable[str]) -> bool:
        return not self.tags.get(repository, frozenset()).isdisjoint(tags)


class PrunableImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image to delete. ``tags`` are its own, deleted with it; ``after`` the indexes that hold it."""

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
    """The tags that nothing but this execution ever had, with what they name: its result's and its children's.

    A child that was reused or adopted keeps the tag of the execution that built it; one too many does no harm.
    """
    found = {
        child_tag(execution.name, child.architecture): child.digest for child in execution.children if child.digest
    }
    if result := result_digest(execution):
        found[result_tag(execution.name)] = result
    return found


def count_references(
    executions: Iterable[Execution],
    *,
    published: Iterable[str] = (),
    reused: Iterable[str] = (),
    running: Iterable[str] = (),
) -> ImageReferences:
    """What is referred to.

    ``executions`` are the kept ones, of any namespace and of either kind; ``published`` the references in statuses of
    builds and configs, ``reused`` those of children that a plan is about to use (both ``repository@digest``);
    ``running`` texts of pods and nodes: images, imageIDs, ``currentImage`` and ``desiredImage``.
    """
    digests: dict[str, set[str]] = {}
    tags: dict[str, set[str]] = {}
    anywhere: set[str] = set()
    for execution in executions:
        digests.setdefault(normalised_repository(execution.repository), set()).update(digests_of(execution))
    for text in (*published, *reused):
        repository, _, digest = text.rpartition("@")
        digests.setdefault(normalised_repository(repository), set()).add(digest)
    for text in running:
        anywhere.update(_DIGEST.findall(text))
        try:
            reference = parse(_SCHEME.sub("", text))
        except InvalidReference:
            continue
        if reference.tag is not None:
            tags.setdefault(reference.name, set()).add(reference.tag)
    return ImageReferences(
        {name: frozenset(found) for name, found in digests.items()},
        {name: frozenset(found) for name, found in tags.items()},
        frozenset(anywhere),
    )


def indexes_of(executions: Iterable[Execution]) -> dict[tuple[str, str], frozenset[str]]:
    """The children of each index, by repository and digest, as the executions recorded them."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for execution in executions:
        result = result_digest(execution)
        children = frozenset(child.digest for child in execution.children) - {"", result}
        if result and children:
            place = (normalised_repository(execution.repository), result)
            found[place] = found.get(place, frozenset()) | children
    return found


def unreferenced(
    leaving: Iterable[Execution],
    claims: ImageReferences,
    *,
    known: Iterable[Execution] = (),
) -> tuple[PrunableImage, ...]:
    """The images of the ``leaving`` executions that nobody refers to: indexes first, then children.

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
            tags.setdefault((normalised_repository(execution.repository), digest), set()).add(tag)
        repository = normalised_repository(execution.repository)
        if claims.names(repository, own_tags(execution)):
            held.setdefault(repository, set()).update(digests_of(execution))
    found: dict[tuple[str, str], PrunableImage] = {}
    for execution in going:
        repository = normalised_repository(execution.repository)
        for digest in sorted(digests_of(execution)):
            if claims.holds(repository, digest) or digest in held.get(repository, ()):
                continue
            found[repository, digest] = PrunableImage(
                repository=repository,
                digest=digest,
                kind="index" if (repository, digest) in indexes else "child",
                tags=tuple(sorted(tags.get((repository, digest), ()))),
                after=tuple(sorted(_holders(indexes, repository, digest))),
            )
    return tuple(sorted(found.values(), key=lambda image: (image.kind != "index", image.repository, image.digest)))


def _holders(indexes: Mapping[tuple[str, str], frozenset[str]], repository: str, digest: str) -> Iterable[str]:
    return (index for (place, index), children in indexes.items() if place == repository and digest in children)


# -- executions that are kept ------------------------------------------------------------------------------------------


TERMINAL = frozenset({"Succeeded", "Failed", "Interrupted", "Superseded"})


def expired(
    executions: Iterable[Execution],
    *,
    owner_uid: str,
    current: str,
    active: str,
    successful: int,
    failed: int,
    running: ImageReferences,
) -> tuple[Execution, ...]:
    """The executions of this owner to delete, oldest first, those of equal age by name.

    ``running`` are the claims of pods, nodes and statuses alone.
    """
    own = [each for each in executions if each.owner_uid == owner_uid]
    ended = sorted((each for each in own if each.phase in TERMINAL), key=_age, reverse=True)
    good = [each for each in ended if each.phase == "Succeeded"]
    bad = [each for each in ended if each.phase != "Succeeded"]
    keep = {each.name for each in (*good[:successful], *bad[:failed])}
    keep |= {each.name for each in own if each.phase not in TERMINAL or each.name in (current, active)}
    newest = max(own, key=_age, default=None)
    if newest is not None:
        keep.add(newest.name)
    shared = {digest for each in own if each.name in keep for digest in digests_of(each)}
    for each in ended:
        if each.name not in keep and _is_used(each, running, shared):
            keep.add(each.name)
            shared |= digests_of(each)
    return tuple(sorted((each for each in own if each.name not in keep and not each.deleting), key=_age))


def _is_used(execution: Execution, running: ImageReferences, shared: set[str]) -> bool:
    repository, result = normalised_repository(execution.repository), result_digest(execution)
    if result and running.holds(repository, result):
        return True
    if running.names(repository, own_tags(execution)):
        return True
    return any(running.holds(repository, digest) for digest in digests_of(execution) - shared)


def _age(execution: Execution) -> tuple[float, str]:
    return (execution.created, execution.name)


# -- finalizer ---------------------------------------------------------------------------------------------------------


LIMIT = 600.0
"""Seconds of failure after which the images are left where they are."""
FIRST_RETRY = 5.0
LONGEST_RETRY = 60.0


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Remove the finalizer, with an event where images are left behind."""

    event: PlannedEvent | None = None


class KeepFinalizer(msgspec.Struct, frozen=True):
    """Keep it, and try again after so many seconds."""

    seconds: float


def decide_finalizer(
    remaining: Sequence[str],
    *,
    execution: str,
    deleting_since: float,
    now: float,
    problem: str = "",
    retry_after: float = 0.0,
) -> RemoveFinalizer | KeepFinalizer:
    """``remaining`` are the references that could not be deleted yet, and ``problem`` says why. ``retry_after``: what a
    registry asks for, which may be a day; it is kept as far as the limit lets."""
    if not remaining:
        return RemoveFinalizer()
    waited = now - deleting_since
    if waited < LIMIT:
        usual = min(max(FIRST_RETRY, waited / 4), LONGEST_RETRY)
        return KeepFinalizer(min(max(usual, retry_after), LIMIT - waited))
    message = (
        f"gave up deleting the images of {execution} after {LIMIT / 60:.0f} min: {problem or 'the registry refused'}; "
        f"delete by hand what is not needed: {', '.join(remaining)}"
    )
    return RemoveFinalizer(
        PlannedEvent(type="Warning", reason="ImageCleanupAbandoned", message=message, execution=execution)
    )
