"""The one error family of the sandbox; its text is the whole message: what, what was expected, what to do next."""


class SandboxError(Exception):
    """The sandbox could not do what was asked."""


class BinariesUnavailable(SandboxError):  # noqa: N818  named as what happened, like all errors here
    """No source had a program: the message lists all that was tried and how to provide the binaries (SB-002)."""


class ProcessFailed(SandboxError):  # noqa: N818
    """A component ended, or did not become healthy; the message carries the end of its log."""
