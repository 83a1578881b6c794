"""The command line: one module per command, imported only when that command runs.

Conventions for every command: ``-o FORMAT[=FILE]`` (text, json, yaml); exit codes 0 clean, 1 findings, 2 usage, 3 could
not complete; notes and progress on stderr, as ``-q`` and ``-v`` have it (bars on a terminal, lines in a pipe);
``NO_COLOR``; errors name the file, line, object or image and the next action. A command is
``polyarch.cli.<room>.<name>``, with a function that returns its exit code.
"""

import os
import sys
from collections.abc import Sequence

from polyarch.cli.garbage_collection import collecting_rarely, leave_all_as_it_is

__all__ = ["complete_for_kubectl", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``polyarch`` command; returns its exit code."""
    own = arguments is None
    with collecting_rarely():
        code = _play_role(sys.argv[2:]) if own and sys.argv[1:2] == ["run"] else None
        if code is None:
            from polyarch.cli.app import run_command  # most of a start is this import

            code = run_command(arguments)
        if own:  # it was the process's own command line, and the process ends with it
            leave_all_as_it_is()
        return code


def _play_role(words: Sequence[str]) -> int | None:
    """Plays the role that a pod's words name until it ends; None if they are for the command line to read."""
    from polyarch.cli.roles.pod_start import forget_current_directory, program_of_pod

    program = program_of_pod(words, os.environ)
    if program is None:
        return None
    from polyarch.cli.output.messages import exit_code_of

    forget_current_directory()
    return exit_code_of(program.play)


def complete_for_kubectl() -> int:
    """``kubectl_complete-polyarch``, the program that kubectl's own completion asks about ``kubectl polyarch …``."""
    return main(["__complete-kubectl", *sys.argv[1:]])
