"""The command line: one module per command, imported only when that command runs.

Conventions for every command: ``-o FORMAT[=FILE]`` (text, json, yaml); exit codes 0 clean, 1 findings, 2 usage, 3 could
not complete; notes and progress on stderr, as ``-q`` and ``-v`` have it (bars on a terminal, lines in a pipe);
``NO_COLOR``; errors name the file, line, object or image and the next action. A command is
``polyarch.cli.<room>.<name>``, with a function that returns its exit code.
"""

import sys
from collections.abc import Sequence

from polyarch.cli.garbage_collection import collecting_rarely, leave_all_as_it_is

__all__ = ["complete_for_kubectl", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``polyarch`` command; returns its exit code."""
    with collecting_rarely():
        from polyarch.cli.app import run_command  # most of a start is this import

        code = run_command(arguments)
        if arguments is None:  # it was the process's own command line, and the process ends with it
            leave_all_as_it_is()
        return code


def complete_for_kubectl() -> int:
    """``kubectl_complete-polyarch``, the program that kubectl's own completion asks about ``kubectl polyarch …``."""
    return main(["__complete-kubectl", *sys.argv[1:]])
