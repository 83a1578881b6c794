"""What is remembered of a pod or template while it waits for images: what was said about it, and which looks failed.

No decision needs it: a process that starts without it asks again and may repeat an event. Dropped when the object goes
or its uid changes.
"""

from typing import Final

from polyarch.oci.answer import Inspection

_NONE_FAILED: Final[dict[str, Inspection]] = {}
"""Shared by all without such a failure; never changed."""


class Waiter:
    """One pod or template; what ``pods.lookups.inquiry`` remembers, too. Times are ``Clock.monotonic()``."""

    __slots__ = ("_told", "failed_once", "seen_at", "uid")

    def __init__(self, uid: str, now: float) -> None:
        self.uid: Final = uid
        self.seen_at: Final = now
        self.failed_once: dict[str, Inspection] = _NONE_FAILED
        """Failures of images that may exist on nodes only (PL-212); replaced, never changed."""
        self._told: frozenset[tuple[str, ...]] = frozenset()

    def waits(self, now: float, *, begun: float | None) -> None:
        """Nothing to remember: no time counts from the first attempt."""

    def waits_for_nothing(self, now: float) -> None:
        """As :meth:`waits`."""

    def is_news(self, *said: str) -> bool:
        """Whether this was not said about it before; it counts as said from now on."""
        if said in self._told:
            return False
        self._told = self._told | {said}
        return True
