"""Retries of pods whose PATCH did not reach the API server (PL-811).

Ten thousand pods must not overload an API server that is starting, and none may wait long once it is back. So all pods
together send about ten PATCHes per second, and the first response wakes the others.
"""

from collections.abc import Callable
from typing import Final

from polyarch.model.meta import Key

LEAST: Final = 1.5
MOST: Final = 60.0
PER_SECOND: Final = 10.0
"""Attempts per second of all pods together."""


class Outage:
    """The pods whose PATCH did not reach the API server."""

    def __init__(self, wake: Callable[[Key], None], uniform: Callable[[], float]) -> None:
        self._wake = wake
        self._uniform = uniform
        self._waiting: set[Key] = set()

    @property
    def has_begun(self) -> bool:
        """Whether some pod is already waiting."""
        return bool(self._waiting)

    def holds(self, key: Key) -> float:
        """Adds the pod; returns the seconds until its next attempt, if no other pod gets a response before."""
        self._waiting.add(key)
        pause = min(max(LEAST, len(self._waiting) / PER_SECOND), MOST)
        return pause * (0.75 + 0.5 * self._uniform())

    def over(self) -> None:
        """A PATCH got a response: wakes all waiting pods."""
        waiting, self._waiting = self._waiting, set()
        for key in waiting:
            self._wake(key)

    def leaves(self, key: Key) -> None:
        """Removes a pod that is gone or no longer gated."""
        self._waiting.discard(key)
