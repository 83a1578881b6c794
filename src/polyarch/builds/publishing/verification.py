"""Reads the children of a result and judges them by their own bytes (BD-173 to BD-175, BD-322).

A Job may claim anything, and so may a descriptor: the platform is what the config blob says, the size is that of the
bytes with the digest. Children are read where they were pushed, never from a mirror, which may have them while the
registry lost them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from polyarch.builds.publishing.publication import ChildImage, Publication, Reason, Trouble
from polyarch.oci.answer import InspectionError
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.documents import ContentError, classify
from polyarch.oci.image.contents import Connection, Opened
from polyarch.oci.image.index_tree import read_platform
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.assembly import Child, Refused, Wanted
from polyarch.oci.write.gather import Gathering, Piece
from polyarch.oci.write.push import CHILDREN, open_destination
from polyarch.oci.write.recipe import SourceImage
from polyarch.oci.write.upload import Writer
from polyarch.platforms import Platform

_PASSING = frozenset({"transient", "limit"})


class Verified(NamedTuple):
    """The pieces of one child: its image first, then attestations that are kept."""

    child: ChildImage
    image: Piece
    others: tuple[Piece, ...] = ()


def parse_child(child: ChildImage) -> Reference:
    """The child's reference; ``InvalidReference`` without a digest (BD-335)."""
    reference = parse(child.reference)
    if reference.transport != "docker" or reference.digest is None:
        raise InvalidReference(
            child.reference, "a child is named by its digest", "write repository@sha256:… of what was pushed"
        )
    return reference


async def verify_all(
    connection: Connection, writer: Writer, publication: Publication
) -> tuple[Verified, ...] | Trouble:
    """All children, or the trouble that counts: one that nothing cures, else one that passes; only when neither is in
    the way it is known which children are gone, and all of them are named.
    """

    async def one(child: ChildImage) -> Verified | Trouble:
        return await verify(connection, writer, child, keep=publication.attestations == "Keep")

    found = await map_concurrently(one, publication.children, at_once=CHILDREN)
    troubles = [each for each in found if isinstance(each, Trouble)]
    if not troubles:
        return tuple(each for each in found if isinstance(each, Verified))
    first = min(troubles, key=lambda each: (bool(each.missing), each.passing))
    gone = tuple(sorted(name for each in troubles for name in each.missing))
    if first.missing and len(gone) > 1:
        return msgspec.structs.replace(first, missing=gone, message=f"the images of {', '.join(gone)} are gone")
    return first


async def verify(
    connection: Connection, writer: Writer, child: ChildImage, *, keep: bool = False
) -> Verified | Trouble:
    """One child. ``writer`` is open at the target: a child there is read with its access, for the same token."""
    architecture = child.architecture
    try:
        reference = parse_child(child)
        home = (reference.host_for_requests, reference.repository) == (writer.host, writer.repository)
        contents = (writer if home else await open_destination(connection, reference)).contents
        opened = Opened(contents, await contents.manifest(reference.digest or ""))
        document = classify(opened.manifest.body)
        others: tuple[Piece, ...] = ()
        if document.type == "index":
            gathering = Gathering(connection, attestations="keep" if keep else "drop")
            wanted = Wanted.parse(f"linux/{architecture}")
            found = await gathering.read_opened(SourceImage(reference, wanted), opened)
            image = next(piece for piece in found.pieces if not piece.child.is_attestation)
            others = tuple(piece for piece in found.pieces if piece.child.is_attestation)
        else:
            manifest = opened.manifest
            described = Child(document.media_type, manifest.digest, len(manifest.body), None, reference.canonical)
            image = Piece(described, contents, manifest.body)
        return Verified(child, await _by_its_config(image, Platform.of("linux", architecture)), others)
    except InvalidReference as error:
        return Trouble(reason="RegistryInconsistent", message=str(error), architecture=architecture)
    except Refused as refused:
        message = f"{architecture}: {refused}"
        return Trouble(reason="ArchitectureMismatch", message=message, architecture=architecture)
    except ContentError as error:
        return of_error(error.error(), architecture)
    except Failure as failure:
        return of_error(failure.error, architecture)


def of_error(error: InspectionError, architecture: str = "", *, missing: bool = True) -> Trouble:
    """A registry's failure in the words of section 11; ``missing``: that there is nothing means a child is gone.

    A registry that has other bytes under the digest of a child that was pushed to it has lost the child (BD-322).
    """
    gone = missing and error.error_class == "absent"
    lied = error.code == "digest-mismatch"
    return Trouble(
        reason="RegistryInconsistent" if lied else _REASONS.get(error.error_class, "RegistryUnreachable"),
        message=f"{architecture}: {error.message}" if architecture else error.message,
        code=error.code,
        architecture=architecture,
        missing=(architecture,) if gone and architecture else (),
        passing=error.error_class in _PASSING and not lied,
        retry_after=error.retry_after,
    )


_REASONS: Mapping[str, Reason] = {
    "absent": "RegistryInconsistent",
    "auth": "PushDenied",
    "content": "RegistryInconsistent",
}


async def _by_its_config(image: Piece, wanted: Platform) -> Piece:
    """The image with the platform of its config; ``Refused`` unless that is linux on the architecture (BD-173)."""
    config = await read_platform(image.contents, classify(image.manifest))
    platform = config.platform if config is not None else None
    if platform is None:
        raise Refused(f"the config of {image.child.digest} names no architecture; build {wanted.architecture} again")
    if platform.node != wanted.node:
        raise Refused(f"{image.child.digest} is {platform} by its config, not {wanted.os}/{wanted.architecture}")
    return Piece(msgspec.structs.replace(image.child, platform=platform), image.contents, image.manifest)
