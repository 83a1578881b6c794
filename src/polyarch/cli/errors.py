"""The errors that end a command. Their text is the whole message: what, where, and what to do next."""


class CommandError(Exception):
    """Base of errors that a command ends with; never shown with a traceback."""

    exit_code = 3


class UsageError(CommandError):
    """The command line, or a file it names, is not usable: exit code 2."""

    exit_code = 2


class CouldNotComplete(CommandError):  # noqa: N818 - the name says what is the matter
    """The work was understood but could not be done (a server away, a download refused): exit code 3."""

    exit_code = 3
