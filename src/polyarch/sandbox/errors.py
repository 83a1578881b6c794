"""Errors and progress of the sandbox, as its user sees them.

The text of each error is the message for the user: what failed, what was expected, what to do. Progress is independent
of where it is shown: a terminal, a pipe, a test.
"""

from typing import Protocol


class SandboxError(Exception):
    """The sandbox could not do what was asked."""


class BinariesUnavailable(SandboxError):  # noqa: N818  errors are named for what happened
    """No source could provide a program; the message lists what was tried and how to provide it."""


class ProcessFailed(SandboxError):  # noqa: N818
    """A component ended or did not become healthy; the message holds the last lines of its log."""


class StepProgress(Protocol):
    """Receives progress. ``step`` begins a step, which lasts until the next one; ``advance`` reports within it."""

    def step(self, text: str) -> None:
        """A new step begins; ``text`` names it in a few words."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """``done`` of ``total`` units of the current step are finished; ``total`` 0 means unknown."""


class SilentStepProgress:
    """Shows nothing."""

    def step(self, text: str) -> None:
        """Not shown."""

    def advance(self, done: int, total: int, detail: str = "") -> None:
        """Not shown."""
