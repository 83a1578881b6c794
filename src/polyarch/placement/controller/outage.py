"""Which pods wait for the API server to be there again, and how often they look (PL-811).

Ten thousand pods must not knock at a door that is shut, and none of them may be the last to hear that it is open. So
all of them together knock some ten times a second, and the first that is let in fetches the others.
"""

from collections.abc import Callable
from typing import Final

from polyarch.model.meta import Key

LEAST: Final = 1.5
MOST: Final = 60.0
PER_SECOND: Final = 10.0
"""Attempts of all pods together."""


class Outage:
    """The pods whose PATCH did not reach the API server."""

    def __init__(self, wake: Callable[[Key], None], uniform: Callable[[], float]) -> None:
        self._wake = wake
        self._uniform = uniform
        self._waiting: set[Key] = set()

    @property
    def has_begun(self) -> bool:
        """Some pod waits already."""
        return bool(self._waiting)

    def holds(self, key: Key) -> float:
        """The pod waits; the seconds until it tries again, if none is let in before."""
        self._waiting.add(key)
        pause = min(max(LEAST, len(self._waiting) / PER_SECOND), MOST)
        return pause * (0.75 + 0.5 * self._uniform())

    def over(self) -> None:
        """A PATCH was answered: everybody tries again now."""
        waiting, self._waiting = self._waiting, set()
        for key in waiting:
            self._wake(key)

    def leaves(self, key: Key) -> None:
        """The pod is gone."""
        self._waiting.discard(key)
