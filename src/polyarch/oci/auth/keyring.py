"""What a kubelet would try for an image, from the pull secrets of a pod (RG-085).

A kubelet reads all secrets into one keyring and tries every credential whose key matches, the more specific keys
first. Doing the same here, and no more, is what makes "polyarch could inspect it" mean "the node can pull it".

Keys are written by anybody who may create a secret, so a match takes time linear in their length: a label's glob is
translated by ``fnmatch``, whose patterns do not backtrack.

Pure: imports neither asyncio nor aiohttp.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
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


class Document(msgspec.Struct, frozen=True):
    """One secret. ``origin`` names it (``secret team/pull``); ``legacy`` is the type ``kubernetes.io/dockercfg``, whose
    object has the entries themselves instead of ``auths``."""

    origin: str
    body: bytes | Mapping[str, Any]
    legacy: bool = False

    def __repr__(self) -> str:
        return f"Document(origin={self.origin!r}, legacy={self.legacy!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Like ``repr``: the body stays out of everything that prints (RG-087)."""
        return [("origin", self.origin), ("legacy", self.legacy)]


class KeyPattern:
    """The host and path of a key; each label of the host may be a glob, and the path is a prefix of text (RG-085)."""

    __slots__ = ("_labels", "_path", "_port", "text")

    def __init__(self, key: str) -> None:
        host, path = split_key(key)
        self.text = host + path
        labels, self._port = split_host(host)
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
    """All keys of all documents, read once. ``problems`` name the documents and entries that could not be read."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.problems: tuple[str, ...] = ()
        self._keys: list[tuple[KeyPattern, Credential]] = []
        for document in documents:
            try:
                entries = _entries(document)
            except MalformedDocument as error:
                self._warn(f"{document.origin} is not usable: {error}")
            else:
                self._add(entries, document.origin)
        self._keys.sort(key=lambda item: item[0].text, reverse=True)  # stable, so documents keep their order

    def lookup(self, host: str, repository: str) -> list[Credential]:
        """The credentials to try for ``host[:port]`` and a repository on it, anonymous not among them."""
        labels, port = split_host(hub(host))
        path = f"/{repository}"
        return [credential for pattern, credential in self._keys if pattern.matches(labels, port, path)]

    def _add(self, entries: Mapping[str, Any], origin: str) -> None:
        for key, entry in entries.items():
            if not isinstance(key, str) or len(key) > MAX_KEY:
                self._warn(f"{origin}: the entry {printable_key(str(key))!r} is ignored: its key names no registry")
                continue
            found = read_entry(entry, source=origin, key=key)
            if isinstance(found, CredentialWarning):
                self._warn(found.message)
            elif found is not None:
                self._keys.append((KeyPattern(key), found))

    def _warn(self, problem: str) -> None:
        self.problems = (*self.problems, problem)


def keyring(documents: Iterable[Document], image: str | Reference) -> list[Credential]:
    """What a kubelet would try for ``image``, in its order; anonymous is not in the list (RG-085)."""
    reference = parse(image) if isinstance(image, str) else image
    return Keyring(documents).lookup(reference.registry, reference.repository)


def _entries(document: Document) -> Mapping[str, Any]:
    body = document.body
    content = read_object(body) if isinstance(body, bytes) else body
    return content if document.legacy else member(content, "auths")


def split_host(host: str) -> tuple[tuple[str, ...], str]:
    """Labels and port; an IPv6 address in brackets is one label."""
    if host.startswith("["):
        address, _, rest = host.partition("]")
        return (f"{address}]",), rest.removeprefix(":")
    name, _, port = host.partition(":")
    return tuple(name.split(".")), port


def _matcher(label: str) -> str | re.Pattern[str]:
    if not any(character in label for character in "*?[") or label.startswith("["):
        return label
    return re.compile(fnmatch.translate(label.replace("[^", "[!")))
