"""From the flags of ``polyarch run`` to the program that plays the role, in the same process.

A process runs for months and its memory is bounded. The libraries of the command line take 4 MiB of it, and nobody
needs them once the flags are read. So the process starts over without them: the pid stays, what the flags say goes
along as JSON, and files are read only then. Where it is not the command line's own process, as in tests, the role is
played without starting over.

Imports nothing that a role runs: it is imported with the command line."""

import errno
import os
import sys
from typing import Final

import msgspec

from polyarch.kube.settings import ProcessSettings
from polyarch.operator.settings import OperatorSettings
from polyarch.run.settings import BuilderSettings, LogFormat, LogLevel, MonitorSettings

PROGRAM: Final = """\
import sys
import polyarch.run.libraries  # first, as it imports structlog and aiohttp without what no role uses
from polyarch.cli.roles.role_process import main
sys.exit(main(sys.argv[1]))
"""


class ReexecSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``polyarch run`` was told."""

    name: str
    """What is run, as it is typed."""
    modules: tuple[str, ...]
    """The modules of ``polyarch.run`` whose roles are played."""
    process: ProcessSettings
    kubeconfig: str | None
    context: str | None
    log_format: LogFormat
    log_level: LogLevel
    global_pull_secret: tuple[str, str] | None
    registries_conf: str | None
    registries_dir: str
    ca: tuple[str, ...]
    allow_addresses: tuple[str, ...]
    credential_providers: tuple[str, str]
    """The kubelet's configuration of its credential plugins, and their directory; empty: none."""
    operator: OperatorSettings
    monitor: MonitorSettings
    taints: str
    """The object ArchitectureTaints as a file; empty: that of the cluster."""
    builder: BuilderSettings = BuilderSettings()

    def go_on(self, *, own: bool) -> int:
        """Plays the role until it ends; the exit code. ``own``: the process is the command line's."""
        if own:
            start_over(PROGRAM, self)
        import polyarch.run.libraries  # noqa: F401 - first, as in the program
        from polyarch.cli.roles.role_process import play

        play(self)
        return 0


def start_over(program: str, given: msgspec.Struct) -> None:
    """Ends this program and begins the other in the same process, with what was given as JSON in its first argument.

    Returns only if that is too long to be passed on: then the process stays as it is. ``-P``: no module of the current
    directory takes the place of one of ours.
    """
    sys.stdout.flush()
    text = msgspec.json.encode(given).decode()
    try:
        os.execv(sys.executable, [sys.executable, "-P", "-c", program, text])  # noqa: S606 - the same program
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise


def read(text: str) -> ReexecSettings:
    """What :meth:`Handover.go_on` has passed on."""
    return msgspec.json.decode(text, type=ReexecSettings)
