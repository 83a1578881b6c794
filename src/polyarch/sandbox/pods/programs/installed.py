"""The program of polyarch's own image: this very installation, under the same Python (SB-011).

Nothing else is in the image, so nothing else is run. Pure.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox.pods.programs.arguments import addressed, expanded, rewritten
from polyarch.sandbox.pods.spec import Container

REPOSITORY: Final = DEFAULT_IMAGE.rpartition(":")[0]
PROGRAM: Final = "import sys; from polyarch.cli import main; sys.exit(main())"
ENTRYPOINT: Final = "polyarch"


class NotInTheImage(Exception):  # noqa: N818 - what is wrong
    """The container's program is not in its image; the text is a container runtime's."""

    def __init__(self, name: str) -> None:
        super().__init__(f'exec: "{name}": executable file not found in $PATH (the sandbox runs only polyarch)')


def command_line(
    container: Container, variables: Mapping[str, str], mounts: Mapping[str, str], *, address: str
) -> tuple[str, ...]:
    """The program and arguments to execute; NotInTheImage if the container wants another program. ``address``: on which
    the pod's processes listen."""
    wanted = [*(container.command or [ENTRYPOINT]), *(container.args or ())]
    return executable([addressed(rewritten(expanded(each, variables), mounts), address) for each in wanted])


def executable(command: Sequence[str]) -> tuple[str, ...]:
    """The same for a command of a probe or hook, in which nothing is expanded."""
    if not command or PurePosixPath(command[0]).name != ENTRYPOINT:
        raise NotInTheImage(command[0] if command else "")
    return (sys.executable, "-c", PROGRAM, *command[1:])
