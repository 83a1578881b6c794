"""Where credentials come from, as one question: what may be shown to this source for this image (RG-002, RG-084)?

A store answers for the *source* that is going to be asked, not for the registry that the reference names: a mirror's
credential is looked up for the mirror, so nothing is ever forwarded from one host to another. Anonymous is always last.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from polyarch.oci.entries import ANONYMOUS, Credential, CredentialWarning
from polyarch.oci.reference import Reference

if TYPE_CHECKING:
    from polyarch.oci.mirrors import Source

__all__ = [
    "ANONYMOUS",
    "Credential",
    "CredentialStore",
    "CredentialWarning",
    "NoCredentials",
]


class CredentialStore(Protocol):
    """What is asked for credentials. Never raises for a credential that cannot be had: it warns and goes on."""

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        """The credentials to try for this source, in order; the last is :data:`ANONYMOUS`.

        Asynchronous because a store may run programs; they have ended, or were stopped, when it returns.
        """
        ...

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential] | None:
        """The same list without any I/O, or ``None`` if it takes some (RG-115)."""
        ...

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        """What went wrong while looking for credentials for this source so far; names places, never secrets."""
        ...


class NoCredentials:
    """Everything is asked anonymously."""

    async def candidates(self, reference: Reference, source: "Source") -> list[Credential]:
        return [ANONYMOUS]

    def cached_candidates(self, reference: Reference, source: "Source") -> list[Credential] | None:
        return [ANONYMOUS]

    def warnings(self, source: "Source") -> Sequence[CredentialWarning]:
        return ()
