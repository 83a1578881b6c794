"""The credentials a kubelet would try for an image, from pull secrets (RG-085).

A kubelet reads all secrets into one keyring and tries every credential whose key matches, more specific keys first.
Doing exactly the same ensures that an image polyarch can inspect is one the node can pull.

Any user may create secrets, and the reader's work delays other pods. So all documents of a keyring together are
limited: bytes, entries, globs, and reported problems. A match takes time linear in the key's length: ``fnmatch``
translates a label's glob into a pattern that does not backtrack.

Pure: imports neither asyncio nor aiohttp.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from polyarch.oci.auth.entries import (
    Credential,
    CredentialWarning,
    MalformedDocument,
    hub,
    member,
    printable_key,
    read_entry,
    read_object,
    split_key,
)
from polyarch.oci.reference import Reference, parse

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
        """Like ``repr``: the body stays out of everything that prints (RG-087)."""
        return [("origin", self.origin), ("legacy", self.legacy)]


class TooManyGlobs(Exception):  # noqa: N818 - the name says what is the matter
    """A key has more globs than its keyring may still compile."""


class KeyPattern:
    """Host and path of a key; each label of the host may be a glob, and the path is a prefix (RG-085)."""

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
    """The credentials a kubelet would try for ``image``, in its order, without anonymous (RG-085)."""
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
