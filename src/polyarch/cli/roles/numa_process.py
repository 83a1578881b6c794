"""Plays ``numa-exporter`` or ``numa-extender`` in a process without the libraries of the command line.

An exporter runs on every node, and the memory of both is bounded; so nothing of other roles is imported.
"""

import importlib
from typing import Any

import msgspec

from polyarch.cli.garbage_collection import collect_as_usual
from polyarch.cli.output.messages import exit_code_of
from polyarch.cli.roles.process_errors import explained


def main(settings: str, module: str) -> int:
    """The program that a process starts over with; its exit code. ``module``: that of ``polyarch.run``."""
    return exit_code_of(lambda: play(msgspec.json.decode(settings, type=_role(module).ROLE.settings[0]), module))


def play(settings: msgspec.Struct, module: str) -> int:
    """Returns when the process has ended; ``UsageError`` and ``CouldNotComplete`` say why it could not go on."""
    role = _role(module)
    collect_as_usual()
    with explained(f"run {role.NAME}", usage=lambda: role.USAGE_ERRORS):
        code: int = role.play(settings)
    return code


def _role(module: str) -> Any:
    return importlib.import_module(f"polyarch.run.{module}")
