"""The builder's registry work, in a pod: ``polyarch run build-index`` and ``build-prune`` (BD-178).

The same functions do it in the builder itself; here their orders come from a file and their answers go into a message.
"""

import msgspec

from polyarch.builds import names
from polyarch.builds.agent.ending import Ending, of_registry
from polyarch.builds.jobs import contract
from polyarch.builds.pruning.counting import Image
from polyarch.builds.pruning.deletion import delete_images
from polyarch.builds.publishing.publication import Publication, Published, Trouble
from polyarch.builds.publishing.publish import publish
from polyarch.oci.image.contents import Connection
from polyarch.oci.traffic.failures import Failure

_CODES = {"PushDenied": names.PUSH_DENIED, "ArchitectureMismatch": names.WRONG_ARCHITECTURE}


class PruneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """``prune.json``."""

    images: tuple[Image, ...]


async def push_index(connection: Connection, publication: Publication) -> Ending:
    """Verify the children, assemble, push, move the tags; children that are gone are named, and nothing is pushed."""
    found = await publish(connection, publication)
    if isinstance(found, Trouble):
        return _trouble(found)
    return Ending(0, _published(found))


async def prune(connection: Connection, document: PruneDocument) -> Ending:
    """Delete images; those that a registry does not delete are counted, those that it did not delete yet fail it."""
    try:
        found = await delete_images(connection, document.images)
    except Failure as failure:
        return of_registry(failure.error)
    if found.remaining:
        return Ending.failure(contract.TRANSIENT, found.problem or f"{len(found.remaining)} images are left")
    return Ending(0, contract.Pruned(deleted=len(found.done), kept=len(found.kept)))


def _published(found: Published) -> contract.IndexPushed:
    only = found.children[0] if len(found.children) == 1 and found.children[0].digest == found.digest else None
    return contract.IndexPushed(
        digest=found.digest,
        size=found.size,
        media_type=found.media_type,
        os="linux" if only is not None else "",
        architecture=only.architecture if only is not None else "",
        variant=only.variant if only is not None else "",
    )


def _trouble(trouble: Trouble) -> Ending:
    if trouble.missing:
        return Ending(0, contract.IndexPushed(missing=trouble.missing))
    if trouble.passing:
        return Ending(contract.TRANSIENT, contract.Failed(reason=trouble.reason, message=trouble.message))
    code = _CODES.get(trouble.reason, names.LAYOUT_INVALID)
    return Ending(code, contract.Failed(reason=trouble.reason, message=trouble.message))
