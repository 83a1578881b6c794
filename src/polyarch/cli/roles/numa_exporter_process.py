"""From the settings of ``polyarch run numa-exporter`` to the daemon, in the same process without the command line.

There is one on every node, so its memory counts: like all processes of ours it starts over without the
libraries that read its flags."""

from typing import Final

import msgspec

from polyarch.cli.output.messages import exit_code_of
from polyarch.cli.roles.reexec import start_over
from polyarch.numa.exporter.settings import ExporterSettings

PROGRAM: Final = """\
import sys
import polyarch.run.libraries  # first, as it imports structlog and aiohttp without what no role uses
from polyarch.cli.roles.numa_exporter_process import main
sys.exit(main(sys.argv[1]))
"""


class ExporterReexecSettings(msgspec.Struct, frozen=True):
    """What the command was told."""

    settings: ExporterSettings

    def go_on(self, *, own: bool) -> int:
        """Exports until it ends; the exit code. ``own``: the process is the command line's."""
        if own:
            start_over(PROGRAM, self)
        import polyarch.run.libraries  # noqa: F401 - first, as in the program

        return play(self)


def main(text: str) -> int:
    """The program that a process starts over with; its exit code."""
    return exit_code_of(lambda: play(msgspec.json.decode(text, type=ExporterReexecSettings)))


def play(given: ExporterReexecSettings) -> int:
    """Returns when the daemon has ended; ``UsageError`` and ``CouldNotComplete`` say why it could not go on."""
    from polyarch.cli.garbage_collection import collect_as_usual
    from polyarch.cli.roles.process_errors import explained
    from polyarch.run import numa_exporter

    collect_as_usual()
    with explained("run numa-exporter", usage=lambda: numa_exporter.USAGE_ERRORS):
        return numa_exporter.play(given.settings)
