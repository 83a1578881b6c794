"""Errors of the sandbox. The text of each is the message for the user: what failed, what was expected, what to do."""


class SandboxError(Exception):
    """The sandbox could not do what was asked."""


class BinariesUnavailable(SandboxError):  # noqa: N818  errors are named for what happened
    """No source could provide a program; the message lists what was tried and how to provide it (SB-002)."""


class ProcessFailed(SandboxError):  # noqa: N818
    """A component ended or did not become healthy; the message holds the last lines of its log."""
