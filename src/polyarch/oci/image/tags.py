"""Lists the tags of a repository (distribution specification, ``/v2/<name>/tags/list``).

One page only, as many as a registry gives at once: a repository may have any number of tags, and who looks for a newer
one finds it among a thousand, or has to say which.
"""

import msgspec

from polyarch.oci.documents import MANIFEST_LIMIT, ContentError, decode
from polyarch.oci.image.contents import Connection
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.exchange import Request, is_error_page, not_as_asked
from polyarch.oci.traffic.failures import of_status, read_errors

MOST = 1000


async def list_tags(connection: Connection, reference: Reference) -> tuple[str, ...]:
    """As the first source lists them. Raises ``Failure``."""
    source = connection.sources(reference)[0]
    access = await connection.access(reference, source)
    request = Request(
        method="GET",
        url=f"{source.base_url}{source.path_prefix}/{source.repository}/tags/list?n={MOST}",
        operation="tags",
        what=f"the tags of {reference.name}",
        limit=MANIFEST_LIMIT,
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        own_headers=source.fields,
        channels=access.channels,
        tls=source.tls,
    )
    reply = await connection.authorization.fetch(request, access, connection.visit())
    if reply.status != 200:
        if is_error_page(reply):
            raise not_as_asked(request, reply, "a list of tags", access.secrets)
        raise of_status(source.host, request.what, reply.status, read_errors(reply.body, access.secrets))
    try:
        found = decode(reply.body, _Tags, "the list of tags").tags or []
    except ContentError:
        raise not_as_asked(request, reply, "a list of tags", access.secrets) from None
    return tuple(found)


class _Tags(msgspec.Struct):
    tags: list[str] | None
