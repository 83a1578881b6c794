"""What is known of a pod's images right now, without waiting and without a request (PL-112, PL-402, PL-422).

Webhook and controller ask the same question here. Credentials are handed over as a store that reads pull secrets only
when they are needed: an image that is known as public is answered before anybody's secret is looked at.
"""

from collections.abc import Iterable

from polyarch.oci.credentials import CredentialStore
from polyarch.oci.inspection import Inspection
from polyarch.placement.attempts import Inspects
from polyarch.placement.images import ImageUse, usable_now


def at_hand(
    uses: Iterable[ImageUse],
    inspector: Inspects,
    credentials: CredentialStore,
    *,
    since: float,
    now: float,
    tag_ttl: float,
    stale_for: float,
) -> dict[str, Inspection]:
    """The usable answers by the text of the reference. ``since``: the arrival of the request, or when the controller
    first saw the pod; ``imagePullPolicy: Always`` wants a check of the tag no older than that (PL-112, PL-404)."""
    answers: dict[str, Inspection] = {}
    for use in uses:
        if use.reference is None:
            continue
        answer = inspector.peek(use.reference, credentials, stale_for=stale_for)
        if answer is not None and usable_now(
            use, answer, arrived_at=since, now=now, tag_ttl=tag_ttl, stale_for=stale_for
        ):
            answers[use.text] = answer
    return answers
