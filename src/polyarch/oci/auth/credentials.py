"""Credential stores: which credentials may be sent to this source for this image (RG-002, RG-084)?

A store answers for the *source* of the request, not for the registry of the reference: a mirror's credential is looked
up for the mirror, so none is ever forwarded from one host to another. Anonymous is always last.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from polyarch.oci.auth.auth_files import FileCredentials, InvalidCredentialFile
from polyarch.oci.auth.entries import ANONYMOUS, Credential, CredentialWarning, in_turn
from polyarch.oci.auth.keyring import Document, Keyring
from polyarch.oci.reference import Reference

if TYPE_CHECKING:
    from polyarch.oci.mirrors.sources import Source

__all__ = [
    "ANONYMOUS",
    "ChainedCredentials",
    "Credential",
    "CredentialStore",
    "CredentialWarning",
    "Document",
    "FileCredentials",
    "InvalidCredentialFile",
    "KeyringCredentials",
    "NoCredentials",
]

MAX_REMEMBERED = 4096


class CredentialStore(Protocol):
    """Interface of all stores. Never raises for an unavailable credential; it warns and continues."""

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        """The credentials to try for this source, in order; the last is :data:`ANONYMOUS`.

        Asynchronous because a store may run programs, which have ended when it returns.
        """
        ...

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential] | None:
        """The same list without I/O, or ``None`` if I/O is needed (RG-115)."""
        ...

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        """Problems so far with credentials for this source; they name places, never secrets."""
        ...


class NoCredentials:
    """Anonymous access only."""

    __slots__ = ()

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        return [ANONYMOUS]

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential] | None:
        return [ANONYMOUS]

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        return ()


class KeyringCredentials:
    """Pull secrets of a pod or a cluster, used like a kubelet uses them (RG-085).

    Immutable: a changed secret needs a new store. ``problems`` name unusable documents and entries without quoting them
    (PL-422).
    """

    __slots__ = ("_keyring", "_remembered")

    def __init__(self, documents: Iterable[Document]) -> None:
        self._keyring = Keyring(documents)
        self._remembered: dict[tuple[str, str], list[Credential]] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        return self._keyring.problems

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        return self.cached_candidates(reference, source)

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        place = (source.host, source.repository)
        found = self._remembered.get(place)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[place] = in_turn(self._keyring.lookup(*place))
        return list(found)

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        return tuple(CredentialWarning("credential-document", problem) for problem in self.problems)


class ChainedCredentials:
    """The credentials of several stores, in order, each secret once and anonymous last (PL-420)."""

    __slots__ = ("_stores",)

    def __init__(self, stores: Iterable[CredentialStore]) -> None:
        self._stores = tuple(stores)

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        found: list[Credential] = []
        for store in self._stores:
            found += await store.candidates(reference, source)
        return in_turn(found)

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential] | None:
        found: list[Credential] = []
        for store in self._stores:
            part = store.cached_candidates(reference, source)
            if part is None:
                return None
            found += part
        return in_turn(found)

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        return tuple(warning for store in self._stores for warning in store.warnings(source))
