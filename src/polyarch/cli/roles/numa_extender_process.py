"""From the settings of ``polyarch run numa-extender`` to the process that answers, without the command line.

Its memory is bounded: like all processes of ours it starts over without the libraries that read its flags."""

from typing import Final

import msgspec

from polyarch.cli.output.messages import exit_code_of
from polyarch.cli.roles.reexec import start_over
from polyarch.numa.extender.settings import ExtenderSettings

PROGRAM: Final = """\
import sys
import polyarch.run.libraries  # first, as it imports structlog and aiohttp without what no role uses
from polyarch.cli.roles.numa_extender_process import main
sys.exit(main(sys.argv[1]))
"""


class ExtenderReexecSettings(msgspec.Struct, frozen=True):
    """What the command was told."""

    settings: ExtenderSettings

    def go_on(self, *, own: bool) -> int:
        """Answers until it ends; the exit code. ``own``: the process is the command line's."""
        if own:
            start_over(PROGRAM, self)
        import polyarch.run.libraries  # noqa: F401 - first, as in the program

        return play(self)


def main(text: str) -> int:
    """The program that a process starts over with; its exit code."""
    return exit_code_of(lambda: play(msgspec.json.decode(text, type=ExtenderReexecSettings)))


def play(given: ExtenderReexecSettings) -> int:
    """Returns when the process has ended; ``UsageError`` and ``CouldNotComplete`` say why it could not go on."""
    from polyarch.cli.garbage_collection import collect_as_usual
    from polyarch.cli.roles.process_errors import explained
    from polyarch.run import numa_extender

    collect_as_usual()
    with explained("run numa-extender", usage=lambda: numa_extender.USAGE_ERRORS):
        return numa_extender.play(given.settings)
