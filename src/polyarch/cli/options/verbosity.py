"""``-q`` and ``-v`` of every command: how much it says on stderr."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import OUTPUT, flag
from polyarch.cli.output.messages import Messages


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Verbosity:
    """Less or more than usual."""

    quiet: Annotated[bool, flag("Print the result and errors only", "-q", "--quiet", group=OUTPUT)] = False
    verbose: Annotated[bool, flag("Also print how the result came about", "-v", "--verbose", group=OUTPUT)] = False

    def messages(self) -> Messages:
        """What to print with; :class:`UsageError` for both."""
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose cannot be combined; remove one of them")
        return Messages(quiet=self.quiet, verbose=self.verbose)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogVerbosity(Verbosity):
    """The same of a process that logs."""

    quiet: Annotated[bool, flag("Log warnings and errors only", "-q", "--quiet", group=OUTPUT)] = False
    verbose: Annotated[bool, flag("Log details, too", "-v", "--verbose", group=OUTPUT)] = False


AS_USUAL = Verbosity()
LOGGED_AS_USUAL = LogVerbosity()
