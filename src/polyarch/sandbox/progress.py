"""How the sandbox tells what it is doing, without knowing who listens: a terminal, a pipe, a test."""

from typing import Protocol


class Progress(Protocol):
    """A listener. A step begins with ``step`` and lasts until the next one; ``advance`` reports inside the step."""

    def step(self, text: str) -> None:
        """Something new begins, in a few words."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the current step; ``total`` 0 means that nobody knows how many."""


class Silent:
    """Nobody listens."""

    def step(self, text: str) -> None:
        """Not shown."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """Not shown."""
