"""What a command says besides its answer, on stderr: as much as ``-q`` and ``-v`` ask for.

Errors are not among it: they end a command and are printed where it ends (``polyarch.cli.app``).
"""

import sys
from dataclasses import dataclass

from polyarch.cli.output.progress import Lines, Progress, Silent
from polyarch.cli.output.terminal import is_terminal, printable, styled, takes_colour


@dataclass(frozen=True)
class Messages:
    """Notes unless quiet, details if verbose."""

    quiet: bool = False
    verbose: bool = False

    def note(self, text: str) -> None:
        """What somebody should know; nothing with ``-q``."""
        if not self.quiet:
            _print(text)

    def remark(self, text: str) -> None:
        """A step, or what a registry said, as it is; nothing with ``-q``."""
        if not self.quiet:
            print(printable(text), file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """How the answer came about; only with ``-v``."""
        if self.verbose:
            _print(text)

    def warn(self, text: str) -> None:
        """What has to be changed; always."""
        warning = styled("warning:", "yellow", colour=takes_colour(sys.stderr))
        print(f"polyarch: {warning} {printable(text)}", file=sys.stderr, flush=True)

    def progress(self, text: str, total: int) -> Progress:
        """How far a work of ``total`` steps is: a bar on a terminal, lines in a pipe, nothing with ``-q``."""
        if self.quiet:
            return Silent()
        if not is_terminal(sys.stderr):
            return Lines(text, total, sys.stderr)
        from polyarch.cli.output.progress_bar import Bar  # rich's bars take longer to import than most commands run

        return Bar(text, total)


USUAL = Messages()


def _print(text: str) -> None:
    print(f"polyarch: {printable(text)}", file=sys.stderr, flush=True)
