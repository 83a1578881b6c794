"""Deletes manifests (distribution specification, "Deleting manifests"), and says what came of it (BD-234).

Registries differ most in deleting: many switch it off, some do not know it, some answer for what is gone as if they
had broken. Those answers are no errors here: whoever cleans up goes on. A manifest that may not go before its tags
(Google's registries) goes after the tags that the caller calls its own.
"""

import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

import msgspec

from polyarch.oci.auth.authorization import Access
from polyarch.oci.image.contents import Connection
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.exchange import Reply, Request, is_error_page, not_as_asked
from polyarch.oci.traffic.failures import Failure, Said, is_page, of_status, read_errors
from polyarch.oci.write.upload import ANSWER_LIMIT

Outcome = Literal["removed", "absent", "denied", "unsupported"]
_ABSENT = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"})
_GONE = re.compile(r"\b(deleted|expired)\b", re.IGNORECASE)
_TAGGED = re.compile(r"DANGLING_TAG|still (referenced|tagged)|referenced by tag", re.IGNORECASE)


class Removal(msgspec.Struct, frozen=True):
    """What came of a deletion; only ``removed`` and ``absent`` mean that it is not there any more."""

    outcome: Outcome
    message: str = ""

    @property
    def gone(self) -> bool:
        return self.outcome in ("removed", "absent")


async def remove(connection: Connection, reference: Reference, *, tags: Sequence[str] = ()) -> Removal:
    """Delete the manifest with this digest; ``tags`` are those that may be deleted first where the registry asks for
    it, if they still name it. Raises ``Failure`` for what may succeed later, and ``ValueError`` without a digest.
    """
    digest = reference.digest
    if digest is None:
        raise ValueError(f"{reference} has no digest: what a tag names may be somebody else's by now")
    try:
        source = mirrors.destination(reference, connection.configuration)
    except mirrors.Blocked as error:
        raise Failure.of("blocked", "", str(error)) from None
    credentials = (await connection.access(reference, source)).credentials
    # "delete" is refused by some token servers and needed by others; all take the wildcard.
    scopes = (f"repository:{source.repository}:*",)
    access = Access(source, credentials, scopes=scopes, loopback=connection.settings.insecure_loopback)
    removal, tagged = await _delete(connection, access, digest)
    if tagged and tags:
        for tag in tags:
            if await _names(connection, access, tag, digest):
                await _delete(connection, access, tag)
        removal, _ = await _delete(connection, access, digest)
    return removal


async def _delete(connection: Connection, access: Access, selector: str) -> tuple[Removal, bool]:
    """What came of it, and whether it failed for its tags."""
    source = access.source
    request = Request(
        method="DELETE",
        url=f"{source.base_url}{source.path_prefix}/{source.repository}/manifests/{quote(selector, safe=':')}",
        operation="manifest-delete",
        what=f"deleting {source.repository}@{selector}",
        limit=ANSWER_LIMIT,
        own_headers=source.fields,
        channels=access.channels,
        tls=source.tls,
    )
    try:
        reply = await connection.authorization.fetch(request, access, connection.visit())
    except Failure as failure:
        error = failure.error
        if error.error_class == "auth":
            return Removal("denied", error.message), False
        if error.status == 500 and _GONE.search(error.message):
            return Removal("absent"), False
        raise
    if 200 <= reply.status < 300:
        if is_page("", reply.body):
            raise not_as_asked(request, reply, "", access.secrets)
        return Removal("removed"), False
    if is_error_page(reply):
        raise not_as_asked(request, reply, "", access.secrets)
    said = read_errors(reply.body, access.secrets)
    if reply.status in (404, 410) or said.code in _ABSENT:
        return Removal("absent"), False
    return _refused(access, request, reply, said)


def _refused(access: Access, request: Request, reply: Reply, said: Said) -> tuple[Removal, bool]:
    failure = of_status(access.source.host, request.what, reply.status, said)
    if reply.status in (401, 403):
        return Removal("denied", failure.error.message), False
    if reply.status in (400, 405, 409, 412, 501):
        return Removal("unsupported", failure.error.message), _TAGGED.search(str(said)) is not None
    raise failure


async def _names(connection: Connection, access: Access, tag: str, digest: str) -> bool:
    try:
        stated = await connection.client.head_manifest(access, tag, connection.visit())
    except Failure as failure:
        if failure.error.code == "not-found":
            return False
        raise
    return stated is not None and stated.digest == digest
