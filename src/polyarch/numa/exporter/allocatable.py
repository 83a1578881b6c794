"""What the kubelet says pods may get in all, and how long an answer is good (NE-054, NE-055).

It changes when a device plugin restarts or the kubelet does, and is asked for again then, and now and then. A kubelet
that lists pods but does not answer this is given ten minutes: the last answer is nearly always still right.
"""

from typing import Final

from polyarch.clock import Clock
from polyarch.numa.decide.facts import Allocatable
from polyarch.numa.host.podresources.client import PodResources, PodResourcesError

GOOD_FOR: Final = 600.0
"""Seconds for which the last answer is used while there is no other."""


class KnownAllocatable:
    """The last answer."""

    def __init__(self, podresources: PodResources, *, clock: Clock) -> None:
        self._podresources = podresources
        self._clock = clock
        self._known: Allocatable | None = None
        self._asked_at = 0.0
        self._overdue = False

    async def current(self, *, refresh: bool) -> Allocatable:
        """``refresh``: something tells that it may have changed.

        Raises ``PodResourcesError`` if it is not known, or not known well enough any more.
        """
        if self._known is not None and not refresh and not self._overdue:
            return self._known
        try:
            found = await self._podresources.allocatable()
        except PodResourcesError as error:
            age = self._clock.monotonic() - self._asked_at
            if self._known is None or age >= GOOD_FOR:
                raise
            if not self._overdue:
                import structlog  # a third of the start of a command that scans once, and never gets here (NE-154)

                log = structlog.get_logger(__name__)
                log.warning("allocatable is not answered, going on with the last answer", problem=str(error))
            self._overdue = True
            return self._known
        self._known, self._asked_at, self._overdue = found, self._clock.monotonic(), False
        return found
