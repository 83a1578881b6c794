"""Registry credentials in the one form that Jobs get: ``{"auths": …}`` (BD-284). Pure; errors quote no content."""

from typing import Any, Final

import msgspec

from polyarch.oci.auth.entries import MalformedDocument, member, read_object

AUTHS: Final = "auths"
HELPERS: Final = ("credHelpers", "credsStore")
"""Programs that a Job does not have."""


def one_form(body: bytes) -> bytes:
    """The document with ``auths`` and nothing else, from either shape: with and without that member.

    Raises ``MalformedDocument``.
    """
    document = read_object(body)
    hosts: dict[str, Any] = {name: entry for name, entry in document.items() if name not in HELPERS}
    if AUTHS in document:
        hosts = dict(member(document, AUTHS))
    if not hosts:
        raise MalformedDocument("it names no registry")
    return msgspec.json.encode({AUTHS: hosts}, order="deterministic")


def has_helpers(body: bytes) -> bool:
    """Whether the document names programs that are asked for credentials: they are ignored, with a Warning."""
    try:
        document = read_object(body)
    except MalformedDocument:
        return False
    return any(document.get(name) for name in HELPERS)
