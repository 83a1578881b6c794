"""The command line: one module per command, imported only when that command runs.

Conventions for every command: ``-o text|json|yaml``; exit codes 0 clean, 1 findings, 2 usage, 3 could not complete;
progress on stderr (bars on a terminal, plain lines in a pipe); ``NO_COLOR``; errors name the file, line, object or
image and the next action. A command module is ``polyarch.cli.<name>`` with a function that returns its exit code.
"""

from polyarch.cli.app import main

__all__ = ["main"]
