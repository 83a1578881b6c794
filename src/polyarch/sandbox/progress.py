"""Progress reports of the sandbox, independent of where they are shown: a terminal, a pipe, a test."""

from typing import Protocol


class Progress(Protocol):
    """Receives progress. ``step`` begins a step, which lasts until the next one; ``advance`` reports within it."""

    def step(self, text: str) -> None:
        """A new step begins; ``text`` names it in a few words."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the current step are finished; ``total`` 0 means unknown."""


class Silent:
    """Shows nothing."""

    def step(self, text: str) -> None:
        """Not shown."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """Not shown."""
