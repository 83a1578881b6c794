"""Manifest and config bytes: size limits, media types, digests.

The document decides, not what the registry says about it: digest and type are those of the bytes alone, because what
is read from them is shared by digest with everybody. Whatever the bytes are, an unreadable document raises
:class:`ContentError` and no other exception.

Pure: imports neither asyncio nor aiohttp.
"""

import base64
import binascii
import hashlib
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from polyarch.oci.inspection import InspectionError
from polyarch.oci.reference import DIGEST_DIGITS, check_digest

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_SCHEMA2 = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_SCHEMA1_SIGNED = "application/vnd.docker.distribution.manifest.v1+prettyjws"
DOCKER_SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+json"

ACCEPT = (OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_SCHEMA2, DOCKER_SCHEMA1_SIGNED, DOCKER_SCHEMA1)
"""The six types that every manifest request accepts."""

DocumentType = Literal["index", "image", "schema1"]
DOCUMENT_TYPES: dict[str, DocumentType] = {
    OCI_INDEX: "index",
    DOCKER_LIST: "index",
    OCI_MANIFEST: "image",
    DOCKER_SCHEMA2: "image",
    DOCKER_SCHEMA1_SIGNED: "schema1",
    DOCKER_SCHEMA1: "schema1",
}
IMAGE_CONFIGS = frozenset(
    {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
)

EMPTY_CONFIG = "application/vnd.oci.empty.v1+json"
IMAGE_LAYERS = frozenset(
    f"{name}{packed}"
    for name, forms in (
        ("application/vnd.oci.image.layer.v1.tar", ("", "+gzip", "+zstd")),
        ("application/vnd.oci.image.layer.nondistributable.v1.tar", ("", "+gzip", "+zstd")),
        ("application/vnd.docker.image.rootfs.diff.tar", ("", ".gzip", ".zstd")),
        ("application/vnd.docker.image.rootfs.foreign.diff.tar", ("", ".gzip", ".zstd")),
    )
    for packed in forms
)
UNTYPED_CONFIGS = frozenset({"", "application/octet-stream", "application/json", "text/html", "text/plain"})
"""Types of configs that old tools and registries wrote for images, as they write them for anything."""

MIB = 1024 * 1024
MANIFEST_LIMIT = 4 * MIB
"""What clients should be able to read, by the distribution specification."""
CONFIG_LIMIT = 2 * MIB
TOKEN_LIMIT = 128 * 1024
ERROR_BODY_LIMIT = 16 * 1024
INLINE_DATA_LIMIT = 64 * 1024
ITEM_LIMIT = 200_000
"""Items of all lists and objects of a document. They and not its bytes decide what it takes in memory: ``{},`` becomes
a hundred bytes. Real documents have one item in twenty bytes or more."""
ENTRY_LIMIT = 1000
INDEX_LIMIT = 16
LOOKUP_LIMIT = 64
LEVEL_LIMIT = 3

T = TypeVar("T")


class ContentError(ValueError):
    """An unusable document; ``code`` is one of class content, or ``digest-mismatch``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def error(self, host: str = "") -> InspectionError:
        """The same error as part of an inspection."""
        return InspectionError.of(self.code, self.message, host=host)


class Document(msgspec.Struct, frozen=True, gc=False):
    """A manifest of known type."""

    type: DocumentType
    media_type: str
    body: bytes


def classify(body: bytes) -> Document:
    """The document's type: its own ``mediaType`` and its members, which must agree.

    Raises :class:`ContentError`: ``too-large``, ``malformed``, ``ambiguous-manifest`` or ``unsupported-media-type``.
    """
    check_size("manifest", len(body), MANIFEST_LIMIT)
    shape = decode(body, _Shape, "the manifest")
    members = shape.members
    if len(members) > 1:
        first, other, *_ = members.values()
        raise ContentError(
            "ambiguous-manifest", f"the manifest has both {first!r} and {other!r}; tools would disagree on what it is"
        )
    stated = (shape.media_type or "").strip().lower()
    media_type = stated if stated in DOCUMENT_TYPES else _by_shape(shape, stated)
    type_ = DOCUMENT_TYPES[media_type]
    if (members and type_ not in members) or (type_ == "schema1" and not shape.is_schema1):
        odd = next(iter(members.values()), "schemaVersion")
        message = f"the manifest states {media_type}, which {odd!r} contradicts; tools would disagree on what it is"
        raise ContentError("ambiguous-manifest", message)
    return Document(type_, media_type, body)


def is_manifest(body: bytes) -> bool:
    """Whether the bytes are a manifest of any kind, usable or not, rather than a web page or somebody's status. An
    object of too many items counts as one.
    """
    try:
        shape = decode(body, _Shape, "the manifest")
        return bool(shape.media_type) or shape.schema_version is not None or bool(_by_shape(shape, ""))
    except ContentError as error:
        return error.code == "too-complex" and body.lstrip()[:1] == b"{"


def digest_of(body: bytes, algorithm: str = "sha256") -> str:
    """``algorithm:hex`` of these bytes."""
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def signed_payload(body: bytes) -> bytes | None:
    """The signed payload of a signed schema 1 document; None for any other document.

    The digest of such a document covers the payload only, so nothing else in it can be trusted. The payload is the
    beginning of the document plus a tail stored in the signature (libtrust's "pretty" JWS, ``formatLength`` and
    ``formatTail``).
    """
    if b'"signatures"' not in body:
        return None
    try:
        document = decode(body, _Signed, "the manifest")
        if document.schema_version != 1 or not document.signatures:
            return None
        protected = msgspec.json.decode(_base64(document.signatures[0].protected), type=_Protected)
        return body[: protected.length] + _base64(protected.tail) if protected.length <= len(body) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def check_body(body: bytes, digest: str) -> None:
    """``digest-mismatch`` unless the bytes have the digest."""
    algorithm = digest.partition(":")[0]
    if problem := check_digest(digest):
        raise ContentError("digest-mismatch", f"{digest!r} cannot be checked: {problem}")
    actual = digest_of(body, algorithm)
    if actual != digest:
        raise ContentError(
            "digest-mismatch",
            f"asked for {digest}, the bytes received are {actual}; the registry or a proxy is at fault",
        )


def check_size(what: str, size: int, limit: int) -> None:
    """``too-large``, naming limit and size."""
    if size > limit:
        raise ContentError("too-large", f"the {what} has {size} bytes where at most {limit} are read")


def inline_data(data: object, digest: str) -> bytes | None:
    """A descriptor's ``data`` if it is small and matches the digest, which saves a request; else None."""
    if not isinstance(data, str) or len(data) > INLINE_DATA_LIMIT * 4 // 3 + 4:
        return None
    algorithm = digest.partition(":")[0]
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(body) > INLINE_DATA_LIMIT or algorithm not in DIGEST_DIGITS or digest_of(body, algorithm) != digest:
        return None
    return body


def decode(body: bytes, type: type[T], what: str) -> T:
    """The JSON as the type; ``malformed`` with the path of the first bad member, ``too-complex`` with many items."""
    items = sum(map(body.count, (b",", b"{", b"[")))  # those within texts, too: no more than this
    if items > ITEM_LIMIT:
        raise ContentError("too-complex", f"{what} has up to {items} items where at most {ITEM_LIMIT} are read")
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        problem, path = _located(str(error))
        raise ContentError("malformed", f"{what} is malformed at {path}: {problem}") from None
    except UnicodeDecodeError as error:
        raise ContentError("malformed", f"{what} is malformed at $: not UTF-8 ({error.reason})") from None
    except msgspec.DecodeError as error:
        raise ContentError("malformed", f"{what} is malformed at $: {error}") from None
    except RecursionError:
        raise ContentError("malformed", f"{what} is malformed at $: nested too deeply") from None


class _Signature(msgspec.Struct):
    protected: str


class _Signed(msgspec.Struct):
    schema_version: Any = msgspec.field(name="schemaVersion", default=None)
    signatures: list[_Signature] = []


class _Protected(msgspec.Struct):
    length: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="formatLength")
    tail: str = msgspec.field(name="formatTail")


def _base64(text: str) -> bytes:
    """Decode base64url without padding, as in JOSE (RFC 7515)."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


class _Shape(msgspec.Struct):
    schema_version: Any = msgspec.field(name="schemaVersion", default=None)
    media_type: str | None = msgspec.field(name="mediaType", default=None)
    manifests: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    layers: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    config: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    fs_layers: msgspec.Raw = msgspec.field(name="fsLayers", default_factory=msgspec.Raw)

    @property
    def members(self) -> dict[DocumentType, str]:
        """The types whose members the document has, each with one of these."""
        found: dict[DocumentType, str] = {}
        if _present(self.manifests):
            found["index"] = "manifests"
        if _present(self.layers) or _present(self.config):
            found["image"] = "layers" if _present(self.layers) else "config"
        if _present(self.fs_layers):
            found["schema1"] = "fsLayers"
        return found

    @property
    def is_schema1(self) -> bool:
        return self.schema_version == 1 and self.schema_version is not True


def _present(member: msgspec.Raw) -> bool:
    return bytes(member) not in (b"", b"null")


def _by_shape(shape: _Shape, stated: str) -> str:
    # Without a stated type it is OCI's: Docker's formats require one.
    if bytes(shape.manifests).startswith(b"["):
        return OCI_INDEX
    if _present(shape.config) and (_present(shape.layers) or shape.schema_version == 2):
        return OCI_MANIFEST  # Go programs write "layers": null where there are none
    if shape.is_schema1:
        return DOCKER_SCHEMA1
    shown = f"of type {stated[:100]!r}" if stated else "of no stated type"
    raise ContentError(
        "unsupported-media-type", f"the document is {shown}; only OCI and Docker images and indexes can be read"
    )


_AT = re.compile(r"(?s)(.*) - at `(.*?)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`$")


def _located(message: str) -> tuple[str, str]:
    # msgspec says "PROBLEM - at `$.path`", without the second part at the top and for a missing member its parent.
    found = _AT.fullmatch(message)
    problem, path = (found[1], found[2]) if found else (message, "$")
    if missing := _MISSING.fullmatch(problem):
        return "it is missing", f"{path}.{missing[1]}"
    return problem, path
