"""Publishes a result: children verified and brought together, the index pushed, its tags moved (BD-176 to BD-179).

The builder calls this once every child is known, and ``run build-index`` where the builder may not reach the registry.
Each step looks first at what is there, so that a call that was cut off anywhere is completed by the next one, with the
same digest and no second write; and a registry's failure is a value with a reason, not an exception.
"""

from collections.abc import Sequence

from polyarch.builds.facts.facts import Existence
from polyarch.builds.publishing.publication import Publication, Published, PublishedChild, Reason, Trouble
from polyarch.builds.publishing.verification import Verified, of_error, verify_all
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import Connection
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import Assembled, Refused, Wanted, assemble, check_required
from polyarch.oci.write.push import CHILDREN, Push, PushFailed, open_destination
from polyarch.oci.write.upload import Writer

_REASONS: dict[str, Reason] = {
    "duplicate-platform": "DuplicatePlatform",
    "mixed-formats": "MixedFormats",
    "annotations": "IndexForbidden",
    "missing-platform": "IndexForbidden",
    "empty": "RegistryInconsistent",
}
_REFUSALS = frozenset({400, 404, 409, 412, 422})
"""Statuses with which registries refuse an index of which a child is missing."""


async def head(connection: Connection, reference: str) -> Existence:
    """What ``repository@digest`` or ``repository:tag`` names, where it was pushed; one request."""
    try:
        named = parse(reference)
        stated = await (await open_destination(connection, named)).stat(named.selector)
    except InvalidReference:
        return Existence(error="not-found")
    except Failure as failure:
        return Existence(error=failure.error.code)
    if stated is None:
        return Existence(error="not-found")
    return Existence(digest=stated.digest, size=stated.size or 0, media_type=stated.media_type)


async def publish(connection: Connection, publication: Publication) -> Published | Trouble:
    """Publish a result: at most two requests for each child, three for the index, three for each tag (BD-347)."""
    try:
        writer = await open_destination(connection, parse(publication.repository))
        found = await verify_all(connection, writer, publication)
        if isinstance(found, Trouble):
            return found
        assembled = _assembled(publication, found)
        check_required(assembled.children, [Wanted.parse(f"linux/{each}") for each in publication.required])
    except InvalidReference as error:
        return Trouble(reason="IndexForbidden", message=str(error))
    except Refused as refused:
        reason = _REASONS.get(refused.problem, "RegistryInconsistent")
        return Trouble(reason=reason, message=str(refused), code=refused.problem)
    except Failure as failure:
        return of_error(failure.error)
    if publication.digest not in ("", assembled.digest):
        message = (
            f"the images give {assembled.digest}, where {publication.digest} was planned: a Job said what is not so"
        )
        return Trouble(reason="RegistryInconsistent", message=message)
    return await _push(connection, writer, assembled, found, publication.tags)


async def move_tags(connection: Connection, reference: str, tags: Sequence[str]) -> Published | Trouble:
    """Move tags to a digest of their repository; those that name it already are left alone (BD-102, BD-123)."""
    try:
        named = parse(reference)
        writer = await open_destination(connection, named)
        manifest = await writer.contents.manifest(_digest_of(named))
        media_type = classify(manifest.body).media_type
    except InvalidReference as error:
        return Trouble(reason="IndexForbidden", message=str(error))
    except ContentError as error:
        return of_error(error.error())
    except Failure as failure:
        return of_error(failure.error)
    return await _push(connection, writer, Assembled(manifest.body, media_type, manifest.digest, ()), (), tags)


def _digest_of(named: Reference) -> str:
    if named.digest is None:
        raise InvalidReference(named.canonical, "it has no digest", "name the result by its digest")
    return named.digest


def _assembled(publication: Publication, found: Sequence[Verified]) -> Assembled:
    if publication.single:
        if len(found) != 1:
            raise Refused(f"a result without an index has one image, not {len(found)}")
        return _alone(found[0])
    return assemble(
        [piece.child for each in found for piece in (each.image, *each.others)],
        annotations=publication.annotations,
        attestations="keep" if publication.attestations == "Keep" else "drop",
    )


def _alone(found: Verified) -> Assembled:
    """A child that is a result itself: nothing is made of it (BD-179)."""
    image = found.image
    return Assembled(image.manifest, image.child.media_type, image.child.digest, (image.child,))


async def _push(
    connection: Connection, writer: Writer, assembled: Assembled, found: Sequence[Verified], tags: Sequence[str]
) -> Published | Trouble:
    pieces = {piece.child.digest: piece for each in found for piece in (each.image, *each.others)}
    child_tags = {each.image.child.digest: each.child.tag for each in found if each.child.tag}
    push = Push(connection, writer, assembled, pieces, child_tags=child_tags)
    try:
        pushed = await push.go(tuple(dict.fromkeys(tags)))
    except PushFailed as failed:
        return await _judge(writer, failed, found)
    return Published(
        digest=assembled.digest,
        media_type=assembled.media_type,
        size=len(assembled.body),
        changed=pushed.changed,
        children=tuple(_described(each) for each in found),
    )


async def _judge(writer: Writer, failed: PushFailed, found: Sequence[Verified]) -> Trouble:
    """A push that failed: whose images are gone, if that is why (BD-177)."""
    error = failed.error
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
        message = f"all images are there, and yet the registry refuses what names them: {error.message}"
    return Trouble(reason="RegistryInconsistent", message=message, code=error.code, missing=tuple(sorted(gone)))


def _described(found: Verified) -> PublishedChild:
    child = found.image.child
    return PublishedChild(
        architecture=found.child.architecture,
        digest=child.digest,
        size=child.size,
        media_type=child.media_type,
        variant=child.platform.variant if child.platform is not None else "",
    )
