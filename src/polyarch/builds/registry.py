"""What builds do at registries: verify children, publish a result, move tags, delete images.

Children are named by digest alone: what a tag names may be another image by the time it is read. The builder and
the programs of index and prune Jobs call the same functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from polyarch.builds.facts.build_facts import HeadResult
from polyarch.builds.pruning import PrunableImage
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import OpenedImage, RegistryConnection, read_platform
from polyarch.oci.inspection import InspectionError
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import (
    AssembledIndex,
    Child,
    InvalidIndex,
    RequestedPlatform,
    SourceImage,
    assemble,
    check_required,
)
from polyarch.oci.write.children import ChildCollector, ChildContent
from polyarch.oci.write.push import CHILDREN, Push, PushFailed, open_destination
from polyarch.oci.write.writer import DeletionResult, Outcome, Writer, remove
from polyarch.platforms import Platform

PublishReason = Literal[
    "ArchitectureMismatch",
    "DuplicatePlatform",
    "IndexForbidden",
    "MixedFormats",
    "PushDenied",
    "PushTooLarge",
    "QuotaExceeded",
    "RegistryInconsistent",
    "RegistryUnreachable",
    "RepositoryMissing",
    "TagImmutable",
]
"""Why it was not published, in the words of the conditions. ``IndexForbidden``: an index as asked for cannot be, or
would lack a required architecture."""


class ChildImage(msgspec.Struct, frozen=True, kw_only=True):
    """The image of one architecture, wherever it is."""

    architecture: str
    reference: str
    """``repository@digest``: an image, or an index of which the entry for the architecture is taken."""
    tag: str = ""
    """The tag that it gets where it is copied to another repository; empty: none."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One result: these children under these tags of one repository."""

    repository: str
    children: tuple[ChildImage, ...]
    tags: tuple[str, ...] = ()
    """In the order in which they are moved, the execution's first. None: by digest only."""
    single: bool = False
    """The one child is the result, and there is no index."""
    annotations: Mapping[str, str] = {}
    attestations: Literal["Drop", "Keep"] = "Drop"
    required: tuple[str, ...] = ()
    """Architectures without which nothing is pushed."""
    digest: str = ""
    """What was planned, by what Jobs said of their images; nothing is pushed if the images' own bytes give another."""


class TagRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a ``tag`` step: the tags to move to a digest that is there already."""

    tags: tuple[str, ...]


class PublishedChild(msgspec.Struct, frozen=True, kw_only=True):
    """A child as its own bytes describe it."""

    architecture: str
    digest: str
    size: int
    media_type: str
    variant: str = ""


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is published and was read back. ``changed``: something was written."""

    digest: str
    media_type: str
    size: int
    changed: bool
    children: tuple[PublishedChild, ...] = ()


class PublishFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a result is not published; every tag is as it was, or names a complete result."""

    reason: PublishReason
    message: str
    code: str = ""
    """The registry client's code, where a registry is at fault (``oci.inspection.ERROR_CODES``)."""
    architecture: str = ""
    """The one whose child is at fault."""
    missing: tuple[str, ...] = ()
    """Architectures whose children are gone: they are to be built again."""
    passing: bool = False
    """The publication may succeed later."""
    retry_after: float | None = None
    """Seconds that a registry asked to be left alone, where it did."""


# -- verification of children ------------------------------------------------------------------------------------------


_PASSING = frozenset({"transient", "limit"})


class VerifiedChild(NamedTuple):
    """The pieces of one child: its image first, then attestations that are kept."""

    child: ChildImage
    image: ChildContent
    others: tuple[ChildContent, ...] = ()


def parse_child(child: ChildImage) -> Reference:
    """The child's reference; ``InvalidReference`` without a digest."""
    reference = parse(child.reference)
    if reference.transport != "docker" or reference.digest is None:
        raise InvalidReference(
            child.reference, "a child is named by its digest", "write repository@sha256:… of what was pushed"
        )
    return reference


async def verify_all(
    connection: RegistryConnection, writer: Writer, publication: Publication
) -> tuple[VerifiedChild, ...] | PublishFailure:
    """All children, or the trouble that counts: one that nothing cures, else one that passes; only when neither is in
    the way it is known which children are gone, and all of them are named.
    """

    async def one(child: ChildImage) -> VerifiedChild | PublishFailure:
        return await verify(connection, writer, child, keep=publication.attestations == "Keep")

    found = await map_concurrently(one, publication.children, at_once=CHILDREN)
    troubles = [each for each in found if isinstance(each, PublishFailure)]
    if not troubles:
        return tuple(each for each in found if isinstance(each, VerifiedChild))
    first = min(troubles, key=lambda each: (bool(each.missing), each.passing))
    gone = tuple(sorted(name for each in troubles for name in each.missing))
    if first.missing and len(gone) > 1:
        return msgspec.structs.replace(first, missing=gone, message=f"the images of {', '.join(gone)} are gone")
    return first


async def verify(
    connection: RegistryConnection, writer: Writer, child: ChildImage, *, keep: bool = False
) -> VerifiedChild | PublishFailure:
    """One child. ``writer`` is open at the target: a child there is read with its access, for the same token."""
    architecture = child.architecture
    try:
        reference = parse_child(child)
        home = (reference.host_for_requests, reference.repository) == (writer.host, writer.repository)
        contents = (writer if home else await open_destination(connection, reference)).contents
        opened = OpenedImage(contents, await contents.manifest(reference.digest or ""))
        document = classify(opened.manifest.body)
        others: tuple[ChildContent, ...] = ()
        if document.type == "index":
            gathering = ChildCollector(connection, attestations="keep" if keep else "drop")
            wanted = RequestedPlatform.parse(f"linux/{architecture}")
            found = await gathering.read_opened(SourceImage(reference, wanted), opened)
            image = next(piece for piece in found.pieces if not piece.child.is_attestation)
            others = tuple(piece for piece in found.pieces if piece.child.is_attestation)
        else:
            manifest = opened.manifest
            described = Child(document.media_type, manifest.digest, len(manifest.body), None, reference.canonical)
            image = ChildContent(described, contents, manifest.body)
        return VerifiedChild(child, await _by_its_config(image, Platform.of("linux", architecture)), others)
    except InvalidReference as error:
        return PublishFailure(reason="RegistryInconsistent", message=str(error), architecture=architecture)
    except InvalidIndex as refused:
        message = f"{architecture}: {refused}"
        return PublishFailure(reason="ArchitectureMismatch", message=message, architecture=architecture)
    except ContentError as error:
        return of_error(error.error(), architecture)
    except Failure as failure:
        return of_error(failure.error, architecture)


def of_error(error: InspectionError, architecture: str = "", *, missing: bool = True) -> PublishFailure:
    """A registry's failure in the words of section 11; ``missing``: that there is nothing means a child is gone.

    A registry that has other bytes under the digest of a child that was pushed to it has lost the child.
    """
    gone = missing and error.error_class == "absent"
    lied = error.code == "digest-mismatch"
    return PublishFailure(
        reason="RegistryInconsistent"
        if lied
        else REFUSED_PUSHES.get(error.code) or _REASONS.get(error.error_class, "RegistryUnreachable"),
        message=f"{architecture}: {error.message}" if architecture else error.message,
        code=error.code,
        architecture=architecture,
        missing=(architecture,) if gone and architecture else (),
        passing=error.error_class in _PASSING and not lied,
        retry_after=error.retry_after,
    )


REFUSED_PUSHES: Mapping[str, PublishReason] = {
    "body-too-large": "PushTooLarge",
    "immutable-tag": "TagImmutable",
    "no-repository": "RepositoryMissing",
    "quota": "QuotaExceeded",
}
"""Codes of pushes that a registry refuses, whoever asks."""
_REASONS: Mapping[str, PublishReason] = {
    "absent": "RegistryInconsistent",
    "auth": "PushDenied",
    "content": "RegistryInconsistent",
}


async def _by_its_config(image: ChildContent, wanted: Platform) -> ChildContent:
    """The image with the platform of its config; ``Refused`` unless that is linux on the architecture."""
    config = await read_platform(image.contents, classify(image.manifest))
    platform = config.platform if config is not None else None
    if platform is None:
        raise InvalidIndex(
            f"the config of {image.child.digest} names no architecture; build {wanted.architecture} again"
        )
    if platform.node != wanted.node:
        raise InvalidIndex(f"{image.child.digest} is {platform} by its config, not {wanted.os}/{wanted.architecture}")
    return ChildContent(msgspec.structs.replace(image.child, platform=platform), image.contents, image.manifest)


# -- publishing --------------------------------------------------------------------------------------------------------


_PUSH_REASONS: dict[str, PublishReason] = {
    "duplicate-platform": "DuplicatePlatform",
    "mixed-formats": "MixedFormats",
    "annotations": "IndexForbidden",
    "missing-platform": "IndexForbidden",
    "empty": "RegistryInconsistent",
}
_REFUSALS = frozenset({400, 404, 406, 409, 412, 415, 422})
"""Statuses with which registries refuse an index of which a child is missing."""


async def head_image(connection: RegistryConnection, reference: str) -> HeadResult:
    """What ``repository@digest`` or ``repository:tag`` names, where it was pushed; one request."""
    try:
        named = parse(reference)
        stated = await (await open_destination(connection, named)).stat(named.selector)
    except InvalidReference:
        return HeadResult(error="not-found")
    except Failure as failure:
        return HeadResult(error=failure.error.code)
    if stated is None:
        return HeadResult(error="not-found")
    return HeadResult(digest=stated.digest, size=stated.size or 0, media_type=stated.media_type)


async def publish(connection: RegistryConnection, publication: Publication) -> PublishResult | PublishFailure:
    """Publish a result: at most two requests for each child, three for the index, three for each tag."""
    try:
        writer = await open_destination(connection, parse(publication.repository))
        found = await verify_all(connection, writer, publication)
        if isinstance(found, PublishFailure):
            return found
        assembled = _assembled(publication, found)
        check_required(assembled.children, [RequestedPlatform.parse(f"linux/{each}") for each in publication.required])
    except InvalidReference as error:
        return PublishFailure(reason="IndexForbidden", message=str(error))
    except InvalidIndex as refused:
        reason = _PUSH_REASONS.get(refused.problem, "RegistryInconsistent")
        return PublishFailure(reason=reason, message=str(refused), code=refused.problem)
    except Failure as failure:
        return of_error(failure.error)
    if publication.digest not in ("", assembled.digest):
        message = (
            f"the images give {assembled.digest}, where {publication.digest} was planned: a Job said what is not so"
        )
        return PublishFailure(reason="RegistryInconsistent", message=message)
    return await _push(connection, writer, assembled, found, publication.tags)


async def move_tags(
    connection: RegistryConnection, reference: str, tags: Sequence[str]
) -> PublishResult | PublishFailure:
    """Move tags to a digest of their repository; those that name it already are left alone."""
    try:
        named = parse(reference)
        writer = await open_destination(connection, named)
        manifest = await writer.contents.manifest(_digest_of(named))
        media_type = classify(manifest.body).media_type
    except InvalidReference as error:
        return PublishFailure(reason="IndexForbidden", message=str(error))
    except ContentError as error:
        return of_error(error.error())
    except Failure as failure:
        return of_error(failure.error)
    return await _push(connection, writer, AssembledIndex(manifest.body, media_type, manifest.digest, ()), (), tags)


def _digest_of(named: Reference) -> str:
    if named.digest is None:
        raise InvalidReference(named.canonical, "it has no digest", "name the result by its digest")
    return named.digest


def _assembled(publication: Publication, found: Sequence[VerifiedChild]) -> AssembledIndex:
    if publication.single:
        if len(found) != 1:
            raise InvalidIndex(f"a result without an index has one image, not {len(found)}")
        return _alone(found[0])
    return assemble(
        [piece.child for each in found for piece in (each.image, *each.others)],
        annotations=publication.annotations,
        attestations="keep" if publication.attestations == "Keep" else "drop",
    )


def _alone(found: VerifiedChild) -> AssembledIndex:
    """A child that is a result itself: nothing is made of it."""
    image = found.image
    return AssembledIndex(image.manifest, image.child.media_type, image.child.digest, (image.child,))


async def _push(
    connection: RegistryConnection,
    writer: Writer,
    assembled: AssembledIndex,
    found: Sequence[VerifiedChild],
    tags: Sequence[str],
) -> PublishResult | PublishFailure:
    pieces = {piece.child.digest: piece for each in found for piece in (each.image, *each.others)}
    child_tags = {each.image.child.digest: each.child.tag for each in found if each.child.tag}
    push = Push(connection, writer, assembled, pieces, child_tags=child_tags)
    try:
        pushed = await push.go(tuple(dict.fromkeys(tags)))
    except PushFailed as failed:
        return await _judge(writer, failed, found)
    return PublishResult(
        digest=assembled.digest,
        media_type=assembled.media_type,
        size=len(assembled.body),
        changed=pushed.changed,
        children=tuple(_described(each) for each in found),
    )


async def _judge(writer: Writer, failed: PushFailed, found: Sequence[VerifiedChild]) -> PublishFailure:
    """A push that failed: whose images are gone, if that is why."""
    error = failed.error
    if error.code in REFUSED_PUSHES:
        return of_error(error)
    if failed.blob and error.error_class == "absent":
        gone = [each.child.architecture for each in found if failed.blob.encode() in each.image.manifest]
    elif error.status in _REFUSALS and not failed.blob:
        try:
            digests = [each.image.child.digest for each in found]
            there = await map_concurrently(writer.digest_of, digests, at_once=CHILDREN)
        except Failure as failure:
            return of_error(failure.error)
        gone = [each.child.architecture for each, digest in zip(found, there, strict=True) if not digest]
    else:
        return of_error(error)
    if gone:
        message = f"the images of {', '.join(sorted(gone))} are gone: {error.message}"
    else:
        message = (
            f"all images are there, and yet the registry refuses what names them: {error.message}; where it takes no "
            "image indexes or no OCI images, set output.format to Docker, or push to another registry"
        )
    return PublishFailure(reason="RegistryInconsistent", message=message, code=error.code, missing=tuple(sorted(gone)))


def _described(found: VerifiedChild) -> PublishedChild:
    child = found.image.child
    return PublishedChild(
        architecture=found.child.architecture,
        digest=child.digest,
        size=child.size,
        media_type=child.media_type,
        variant=child.platform.variant if child.platform is not None else "",
    )


# -- deletion of images ------------------------------------------------------------------------------------------------


class UndeletableImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a registry does not delete: no reason to try again, but one to say so."""

    repository: str
    reference: str
    outcome: Outcome
    message: str


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a pass. ``remaining`` may be deleted later, after ``retry_after`` if a registry said so."""

    done: tuple[str, ...] = ()
    kept: tuple[UndeletableImage, ...] = ()
    remaining: tuple[str, ...] = ()
    problem: str = ""
    retry_after: float | None = None

    def warnings(self, said: Iterable[tuple[str, str]] = ()) -> tuple[UndeletableImage, ...]:
        """One for each repository and kind of refusal that is not in ``said``."""
        first: dict[tuple[str, str], UndeletableImage] = {}
        for each in self.kept:
            first.setdefault((each.repository, each.outcome), each)
        known = frozenset(said)
        return tuple(each for place, each in first.items() if place not in known)


async def delete_images(connection: RegistryConnection, images: Sequence[PrunableImage]) -> PruneResult:
    """Delete them in order; a child waits for every index that holds it and is not gone."""
    done: list[str] = []
    kept: list[UndeletableImage] = []
    remaining: list[str] = []
    problem, retry_after = "", None
    staying: set[str] = set()
    waiting: set[str] = set()
    for image in images:
        if waiting.intersection(image.after):
            remaining.append(image.reference)
            waiting.add(image.digest)
            continue
        try:
            if held := staying.intersection(image.after):
                removal = DeletionResult("unsupported", f"it is part of {', '.join(sorted(held))}, which stays")
            else:
                removal = await remove(connection, parse(image.reference), tags=image.tags)
        except InvalidReference as error:
            removal = DeletionResult("unsupported", str(error))
        except Failure as failure:
            problem = problem or failure.error.message
            retry_after = max(filter(None, (retry_after, failure.error.retry_after)), default=None)
            remaining.append(image.reference)
            waiting.add(image.digest)
            continue
        if removal.gone:
            done.append(image.reference)
        else:
            kept.append(_kept(image, removal))
            staying.add(image.digest)
    return PruneResult(
        done=tuple(done), kept=tuple(kept), remaining=tuple(remaining), problem=problem, retry_after=retry_after
    )


def _kept(image: PrunableImage, removal: DeletionResult) -> UndeletableImage:
    return UndeletableImage(
        repository=image.repository, reference=image.reference, outcome=removal.outcome, message=removal.message
    )
