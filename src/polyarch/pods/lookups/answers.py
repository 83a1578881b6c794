"""Cached image answers of a pod, without waiting and without a request (PL-112, PL-402, PL-422).

Shared by webhook and controller. Credentials are passed as a store that reads pull secrets only on demand, so the
answer for an image known to be public needs no secret.
"""

from collections.abc import Iterable
from typing import Protocol

from polyarch.oci.answer import Inspection
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.reference import Reference
from polyarch.pods.images import ImageUse, usable_now


class Inspects(Protocol):
    """The part of the registry client that features use."""

    async def inspect(
        self,
        reference: Reference,
        *,
        credentials: CredentialStore | None = None,
        fresh: bool = False,
        not_before: float | None = None,
        bundle: BundleMode = "auto",
        tenant: str = "",
    ) -> Inspection: ...

    def peek(
        self,
        reference: Reference,
        credentials: CredentialStore | None = None,
        *,
        bundle: BundleMode = "auto",
        stale_for: float | None = None,
    ) -> Inspection | None: ...

    def host_busy(self, reference: Reference) -> bool: ...

    def host_low(self, reference: Reference) -> bool: ...


def at_hand(
    uses: Iterable[ImageUse],
    inspector: Inspects,
    credentials: CredentialStore,
    *,
    since: float,
    now: float,
    stale_for: float,
) -> dict[str, Inspection]:
    """The usable answers by the text of the reference. ``since``: when the request arrived or the controller first saw
    the pod; with ``imagePullPolicy: Always`` the tag must be checked at or after it (PL-112, PL-404)."""
    answers: dict[str, Inspection] = {}
    for use in uses:
        if use.reference is None:
            continue
        answer = inspector.peek(use.reference, credentials, stale_for=stale_for)
        if answer is not None and usable_now(use, answer, arrived_at=since, now=now, stale_for=stale_for):
            answers[use.text] = answer
    return answers
