"""Whoever sits at a terminal is asked before something is written; without one ``--yes`` has to say it (TN-063)."""

import sys

from polyarch.cli.errors import UsageError
from polyarch.cli.output.terminal import is_terminal


def confirm(command: str, *, yes: bool, question: str = "This writes to the cluster. Go on?") -> None:
    """Asks who sits at a terminal. ``UsageError`` without one: nobody can answer, and silence is no consent."""
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise UsageError(f"{command}: give --yes: without a terminal nobody can be asked; --dry-run writes nothing")
    print(f"polyarch: {question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(f"{command}: not confirmed; nothing was written")
