"""Whether the finalizer of an execution may go (BD-233).

The finalizer is there so that images are deleted before the record of them is. It must not hold a namespace for ever
because a registry does not answer.

Pure: no asyncio, no clock.
"""

from collections.abc import Sequence

import msgspec

from polyarch.builds.plan.document import PlannedEvent

LIMIT = 600.0
"""Seconds of failure after which the images are left where they are."""
FIRST_RETRY = 5.0
LONGEST_RETRY = 60.0


class Release(msgspec.Struct, frozen=True):
    """Remove the finalizer, with an event where images are left behind."""

    event: PlannedEvent | None = None


class Hold(msgspec.Struct, frozen=True):
    """Keep it, and try again after so many seconds."""

    seconds: float


def decide(
    remaining: Sequence[str],
    *,
    execution: str,
    deleting_since: float,
    now: float,
    problem: str = "",
    retry_after: float = 0.0,
) -> Release | Hold:
    """``remaining`` are the references that could not be deleted yet, and ``problem`` says why. ``retry_after``: what a
    registry asks for, which may be a day; it is kept as far as the limit lets."""
    if not remaining:
        return Release()
    waited = now - deleting_since
    if waited < LIMIT:
        usual = min(max(FIRST_RETRY, waited / 4), LONGEST_RETRY)
        return Hold(min(max(usual, retry_after), LIMIT - waited))
    message = (
        f"gave up deleting the images of {execution} after {LIMIT / 60:.0f} min: {problem or 'the registry refused'}; "
        f"delete by hand what is not needed: {', '.join(remaining)}"
    )
    return Release(PlannedEvent(type="Warning", reason="ImageCleanupAbandoned", message=message, execution=execution))
