"""Credentials, the entries of credential documents, and the keyring that a kubelet would make of pull secrets.

The same reader serves files of container tools, pull secrets and responses of kubelet plugins. Secrets leave this
module only inside a :class:`Credential`, which shows its origin, never its content.

Pure: imports neither asyncio nor aiohttp.
"""

import base64
import binascii
import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_NAMES, Reference, parse


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential and where it was found.

    ``registry_token`` is a bearer token, used as it is; ``identity_token`` is exchanged for one at the token endpoint,
    with user and password as a fallback if present. ``source`` names the file, helper or secret and ``key``
    the entry; ``repr`` shows only these two. A dataclass, because the ``repr`` of a msgspec Struct, and
    ``rich``'s view of one, cannot leave fields out.
    """

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)
    source: str = ""
    key: str = ""
    _fingerprints: dict[bytes, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache by key: every lookup needs the fingerprint."""

    @property
    def is_anonymous(self) -> bool:
        """Whether there is no secret at all."""
        return not (self.username or self.password or self.identity_token or self.registry_token)

    @property
    def origin(self) -> str:
        """The origin for messages: ``FILE (key)``, or ``anonymous``."""
        if self.is_anonymous:
            return "anonymous"
        return f"{self.source} ({self.key})" if self.key else self.source

    @property
    def basic(self) -> str | None:
        """The value of an ``Authorization`` header with user and password; ``None`` if there is neither."""
        if not (self.username or self.password):
            return None
        pair = f"{self.username}:{self.password}".encode("utf-8", "surrogateescape")
        return f"Basic {base64.b64encode(pair).decode()}"

    def fingerprint(self, key: bytes) -> str:
        """A keyed hash of the secret parts, equal for equal secrets wherever they were found; ``""`` for anonymous.

        ``key`` has 1 to 64 bytes and is random per cache, so a fingerprint reveals nothing by itself.
        """
        found = self._fingerprints.get(key)
        if found is None:
            found = self._fingerprints[key] = self._fingerprint(key)
        return found

    def _fingerprint(self, key: bytes) -> str:
        if self.is_anonymous:
            return ""
        digest = hashlib.blake2b(key=key, digest_size=16)
        for part in (self.username, self.password, self.identity_token, self.registry_token):
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()

    @property
    def secret(self) -> tuple[str, str, str, str]:
        """The secret parts, for comparison only; never to be shown."""
        return (self.username, self.password, self.identity_token, self.registry_token)


ANONYMOUS = Credential()


class CredentialWarning(msgspec.Struct, frozen=True):
    """A problem with credentials to report to the user: a code, and a sentence."""

    code: str
    message: str


def deduplicated(credentials: Iterable[Credential]) -> list[Credential]:
    """Each secret once, at its first position, and anonymous last: a second try would get the same refusal."""
    unique: dict[tuple[str, str, str, str], Credential] = {}
    for credential in credentials:
        if not credential.is_anonymous:
            unique.setdefault(credential.secret, credential)
    return [*unique.values(), ANONYMOUS]


class MalformedDocument(ValueError):  # noqa: N818 - it says what the document is
    """An unreadable credential document. The message has position and problem, never content."""

    def __init__(self, problem: str, *, line: int | None = None, column: int | None = None) -> None:
        where = f" at line {line}, column {column}" if line is not None else ""
        super().__init__(f"{problem}{where}")
        self.problem = problem
        self.line = line
        self.column = column


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; :class:`MalformedDocument` with line and column if it is not one."""
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        return _as_object(msgspec.json.decode(body))
    except RecursionError:
        raise MalformedDocument("the JSON is nested too deeply") from None
    except msgspec.ValidationError:
        raise MalformedDocument("a number in the JSON is out of range") from None
    except UnicodeDecodeError:
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise _malformed("it is not UTF-8", body, error.start) from None
        raise
    except msgspec.DecodeError as error:
        # Take only the position from the error's text, so that ours contains no content.
        found = re.search(r"\(byte (\d+)\)", str(error))
        raise _malformed("it is not JSON", body, int(found[1]) if found else len(body)) from None


def _malformed(problem: str, body: bytes, offset: int) -> MalformedDocument:
    before = body[:offset]
    return MalformedDocument(problem, line=before.count(b"\n") + 1, column=offset - before.rfind(b"\n"))


def _as_object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise MalformedDocument("it is not a JSON object")
    return document


def member(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``, empty if absent or null; :class:`MalformedDocument` if it is something else."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MalformedDocument(f"{name!r} is not an object")
    return value


def read_entry(entry: object, *, source: str, key: str) -> Credential | CredentialWarning | None:
    """The credential in one entry, a warning why it is ignored, or ``None`` if it is empty.

    ``registrytoken``, else ``identitytoken``, else ``auth``, else ``username`` with ``password``. User and password are
    kept beside an identity token, for token endpoints that cannot exchange one.
    """
    where = printable_key(key)
    if not isinstance(entry, Mapping):
        return _ignored(source, where, "the entry is not an object") if entry is not None else None
    values: dict[str, str] = {}
    for name in ("registrytoken", "identitytoken", "auth", "username", "password"):
        value = entry.get(name)
        if value is not None and not isinstance(value, str):
            return _ignored(source, where, f"{name!r} is not a string")
        values[name] = value or ""
    for name in ("registrytoken", "identitytoken"):
        if token := values[name].strip():
            if not (token.isascii() and token.isprintable() and " " not in token):
                return _ignored(source, where, f"{name!r} has characters that a token cannot have")
            values[name] = token
    if values["registrytoken"]:
        return Credential(registry_token=values["registrytoken"], source=source, key=where)
    username, password = values["username"], values["password"]
    if values["auth"]:
        pair = _decode_auth(values["auth"])
        if pair is not None:
            username, password = pair
        elif not values["identitytoken"]:
            return _ignored(source, where, "'auth' is not the base64 of user:password")
    found = Credential(username, password, values["identitytoken"], source=source, key=where)
    return None if found.is_anonymous else found


def split_key(key: str) -> tuple[str, str]:
    """Host and path of an entry's key: without scheme, user info and a leading ``/v1/`` or ``/v2/``; the host in lower
    case, Docker Hub's names as one. The path is ``""`` or begins with ``/``.
    """
    rest = key.strip()
    for scheme in ("https://", "http://"):
        if rest[: len(scheme)].lower() == scheme:
            rest = rest[len(scheme) :]
            break
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].lower()
    path = slash + path
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return hub(host), "" if path == "/" else path


def hub(host: str) -> str:
    """``docker.io`` for every name of Docker Hub, other hosts unchanged."""
    return DOCKER_HUB if host in DOCKER_HUB_NAMES else host


def printable_key(key: str) -> str:
    """A key for messages: without user info and control characters, at most 200 characters."""
    scheme, separator, rest = key.rpartition("://")
    host, slash, path = rest.partition("/")
    text = f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _decode_auth(text: str) -> tuple[str, str] | None:
    digits = "".join(text.split()).rstrip("=")
    try:
        pair = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    username, colon, password = pair.decode("utf-8", "surrogateescape").partition(":")
    if not colon:
        return None
    return username, password.rstrip("\0")


def _ignored(source: str, key: str, problem: str) -> CredentialWarning:
    return CredentialWarning("credential-entry", f"{source}: the entry {key!r} is ignored: {problem}")


# -- the keyring of pull secrets ---------------------------------------------------------------------------------------
# A kubelet reads all secrets into one keyring and tries every credential whose key matches, more specific keys first.
# Doing exactly the same ensures that an image polyarch can inspect is one the node can pull.
#
# Any user may create secrets, and the reader's work delays other pods. So all documents of a keyring together are
# limited: bytes, entries, globs, and reported problems. A match takes time linear in the key's length: ``fnmatch``
# translates a label's glob into a pattern that does not backtrack.


MAX_KEY = 2048
MAX_BYTES = 1024 * 1024
"""The API server's limit for one secret."""
MAX_ENTRIES = 2000
MAX_GLOBS = 200
"""Labels with a glob. Compiling one takes ten times as long as the rest of the work for a key."""
MAX_PROBLEMS = 20
MAX_CANDIDATES = 50
"""Credentials for one image. Each costs a request to the registry."""


class Document(msgspec.Struct, frozen=True):
    """One secret. ``origin`` names it (``secret team/pull``); ``legacy`` is the type ``kubernetes.io/dockercfg``, whose
    object holds the entries directly instead of under ``auths``.
    """

    origin: str
    body: bytes | Mapping[str, Any]
    legacy: bool = False

    def __repr__(self) -> str:
        return f"Document(origin={self.origin!r}, legacy={self.legacy!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Like ``repr``: the body stays out of everything that prints."""
        return [("origin", self.origin), ("legacy", self.legacy)]


class TooManyGlobs(Exception):  # noqa: N818 - the name says what is the matter
    """A key has more globs than its keyring may still compile."""


class KeyPattern:
    """Host and path of a key; each label of the host may be a glob, and the path is a prefix."""

    __slots__ = ("_labels", "_path", "_port", "globs", "text")

    def __init__(self, key: str, *, globs: int | None = None) -> None:
        """Raises ``TooManyGlobs`` instead of compiling more than ``globs``."""
        host, path = split_key(key)
        self.text = host + path
        labels, self._port = split_host(host)
        self.globs = sum(map(_is_glob, labels))
        if globs is not None and self.globs > globs:
            raise TooManyGlobs
        self._labels = tuple(_matcher(label) for label in labels)
        self._path = path

    def matches(self, labels: Sequence[str], port: str, path: str) -> bool:
        """``path`` begins with ``/``."""
        return (
            port == self._port
            and len(labels) == len(self._labels)
            and path.startswith(self._path)
            and all(
                mine == label if isinstance(mine, str) else mine.fullmatch(label) is not None
                for mine, label in zip(self._labels, labels, strict=True)
            )
        )


class Keyring:
    """The keys of all documents, within the limits of this module."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._problems: list[str] = []
        self._unlisted = 0
        self._keys: list[tuple[KeyPattern, Credential]] = []
        self._bytes, self._entries, self._globs = MAX_BYTES, MAX_ENTRIES, MAX_GLOBS  # what is left of each
        for document in documents:
            try:
                entries = self._read(document)
            except MalformedDocument as error:
                self._warn(f"{document.origin} is not usable: {error}")
            else:
                self._add(entries, document.origin)
        self._keys.sort(key=lambda item: item[0].text, reverse=True)  # stable, so documents keep their order

    @property
    def problems(self) -> tuple[str, ...]:
        """The unreadable documents and entries, by name; at most the first twenty."""
        more = (f"{self._unlisted} more problems with pull secrets are not listed",) if self._unlisted else ()
        return (*self._problems, *more)

    def lookup(self, host: str, repository: str) -> list[Credential]:
        """The credentials to try for ``host[:port]`` and a repository, without anonymous; at most the fifty most
        specific.
        """
        labels, port = split_host(hub(host))
        path = f"/{repository}"
        found = (credential for pattern, credential in self._keys if pattern.matches(labels, port, path))
        return list(islice(found, MAX_CANDIDATES))

    def _read(self, document: Document) -> Mapping[str, Any]:
        content = document.body
        if isinstance(content, bytes):
            if len(content) > self._bytes:
                raise MalformedDocument(f"more than {MAX_BYTES} bytes of pull secrets for one pod are not read")
            self._bytes -= len(content)
            content = read_object(content)
        return content if document.legacy else member(content, "auths")

    def _add(self, entries: Mapping[str, Any], origin: str) -> None:
        for key, entry in islice(entries.items(), self._entries):
            if not isinstance(key, str) or len(key) > MAX_KEY:
                self._warn(f"{origin}: the entry {printable_key(str(key))!r} is ignored: its key names no registry")
                continue
            found = read_entry(entry, source=origin, key=key)
            if isinstance(found, CredentialWarning):
                self._warn(found.message)
            elif found is not None:
                self._keep(key, found)
        if len(entries) > self._entries:
            more = len(entries) - self._entries
            self._warn(f"{origin}: {more} more entries are ignored: {MAX_ENTRIES} are read for one pod")
        self._entries = max(self._entries - len(entries), 0)

    def _keep(self, key: str, credential: Credential) -> None:
        try:
            pattern = KeyPattern(key, globs=self._globs)
        except TooManyGlobs:
            where = f"{credential.source}: the entry {credential.key!r}"
            self._warn(f"{where} is ignored: {MAX_GLOBS} wildcards are read for one pod")
        else:
            self._globs -= pattern.globs
            self._keys.append((pattern, credential))

    def _warn(self, problem: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        else:
            self._unlisted += 1


def keyring(documents: Iterable[Document], image: str | Reference) -> list[Credential]:
    """The credentials a kubelet would try for ``image``, in its order, without anonymous."""
    reference = parse(image) if isinstance(image, str) else image
    return Keyring(documents).lookup(reference.registry, reference.repository)


def split_host(host: str) -> tuple[tuple[str, ...], str]:
    """Labels and port; an IPv6 address in brackets is one label."""
    if host.startswith("["):
        address, _, rest = host.partition("]")
        return (f"{address}]",), rest.removeprefix(":")
    name, _, port = host.partition(":")
    return tuple(name.split(".")), port


def _is_glob(label: str) -> bool:
    return not label.startswith("[") and any(character in label for character in "*?[")


def _matcher(label: str) -> str | re.Pattern[str]:
    return re.compile(fnmatch.translate(label.replace("[^", "[!"))) if _is_glob(label) else label
