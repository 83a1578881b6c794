"""Lists what refers to an image: signatures, SBOMs and other artifacts (distribution specification, referrers API).

Registries without that API keep the list in an index under the tag ``sha256-<hex>``; tools that are older than both
keep each artifact under a tag of its own that begins so. Both are found by their names alone: repositories may have
too many tags to list them all.
"""

from typing import Any

import msgspec

from polyarch.oci.auth.authorization import Access
from polyarch.oci.documents import MANIFEST_LIMIT, OCI_INDEX, ContentError, decode, is_manifest
from polyarch.oci.image.contents import Connection
from polyarch.oci.reference import check_digest
from polyarch.oci.traffic.exchange import Request
from polyarch.oci.traffic.failures import Failure, of_status, read_errors

TAG_SUFFIXES = (".sig", ".att", ".sbom")
"""Tags of single artifacts, after ``sha256-<hex>``."""
MEMBERS = ("mediaType", "digest", "size", "annotations", "artifactType")
"""The members that a descriptor in such an index may have."""


def referrers_tag(digest: str) -> str:
    """The tag of the index that lists an image's referrers where there is no API for it."""
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm}-{digits}"[:128]


async def list_referrers(connection: Connection, access: Access, digest: str) -> list[dict[str, Any]] | None:
    """The descriptors that the registry lists; None if it has no such API. Raises ``Failure``."""
    source = access.source
    request = Request(
        method="GET",
        url=f"{source.base_url}{source.path_prefix}/{source.repository}/referrers/{digest}",
        operation="referrers",
        what=f"the referrers of {digest}",
        limit=MANIFEST_LIMIT,
        headers={"Accept": OCI_INDEX, "Accept-Encoding": "identity"},
        own_headers=source.fields,
        channels=access.channels,
        tls=source.tls,
    )
    reply = await connection.authorization.fetch(request, access, connection.visit())
    if reply.status == 200:
        # Some registries answer a page of theirs to a path that they do not know (RG-065).
        return read_descriptors(reply.body, source.host) if is_manifest(reply.body) else None
    if 400 <= reply.status < 500 or reply.status == 501:
        return None
    raise of_status(source.host, request.what, reply.status, read_errors(reply.body, access.secrets))


def read_descriptors(body: bytes, host: str) -> list[dict[str, Any]]:
    """The usable descriptors of such an index, each with its own members only. Raises ``Failure``."""
    try:
        listed = decode(body, _Listing, "the list of referrers").manifests or []
    except ContentError as error:
        raise Failure.of(error.code, host, error.message) from None
    return [
        {name: each[name] for name in MEMBERS if name in each}
        for each in listed
        if isinstance(each.get("digest"), str) and check_digest(each["digest"]) is None
    ]


class _Listing(msgspec.Struct):
    manifests: list[dict[str, Any]] | None = None
