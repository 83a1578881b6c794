"""Starts the process again as the role that the flags name, without the libraries of the command line.

A process runs for months and its memory is bounded. The libraries of the command line take 4 MiB of it, and nobody
needs them once the flags are read. So the process starts over without them: the pid stays, what the flags say goes
along as JSON, and files are read only then. Where it is not the command line's own process, as in tests, the role is
played without starting over.

Imports nothing that a role runs: it is imported with the command line.
"""

import errno
import importlib
import os
import sys
from typing import Final, NamedTuple

import msgspec

from polyarch.kube.settings import ProcessSettings
from polyarch.operator.settings import OperatorSettings, SecretAccess
from polyarch.run.settings import BuilderSettings, LogFormat, LogLevel, MonitorSettings

PACKAGE: Final = "polyarch.cli.roles"
PROGRAM: Final = """\
import sys
import polyarch.run.libraries  # first, as it imports structlog and aiohttp without what no role uses
from polyarch.cli.roles.{module} import main
sys.exit(main(*sys.argv[1:]))
"""


class Reexec(NamedTuple):
    """What a command returns in place of an exit code: the program that plays the role, and what it is told."""

    module: str
    """A module of this package with ``main(settings as JSON, *arguments)`` and ``play(settings, *arguments)``."""
    settings: msgspec.Struct
    arguments: tuple[str, ...] = ()

    def run(self, *, own: bool) -> int:
        """Plays the role until it ends; the exit code. ``own``: the process is the command line's."""
        if own:
            self._start_over()
        return self.play()

    def play(self) -> int:
        """Plays the role in this program until it ends; the exit code."""
        import polyarch.run.libraries  # noqa: F401 - first, as in the program

        played: int | None = importlib.import_module(f"{PACKAGE}.{self.module}").play(self.settings, *self.arguments)
        return played or 0

    def _start_over(self) -> None:
        """Ends this program and begins the other in the same process.

        Returns only if the settings are too long to be passed on: then the process stays as it is. ``-P``: no module of
        the current directory takes the place of one of ours.
        """
        sys.stdout.flush()
        program = PROGRAM.format(module=self.module)
        text = msgspec.json.encode(self.settings).decode()
        try:
            os.execv(sys.executable, [sys.executable, "-P", "-c", program, text, *self.arguments])  # noqa: S606
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise


class ReexecSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of ``polyarch run``; files that they name are not read yet."""

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
    deny_addresses: tuple[str, ...]
    secret_access: SecretAccess
    credential_providers: tuple[str, str]
    """The kubelet's configuration of its credential plugins, and their directory; empty: none."""
    operator: OperatorSettings
    monitor: MonitorSettings
    taints: str
    """The object ArchitectureTaints as a file; empty: that of the cluster."""
    builder: BuilderSettings = BuilderSettings()
