"""``polyarch run numa-exporter``: the daemon that publishes its node's NUMA zones.

Its flags are those of the resource-topology-exporter, written as Go's programs take them, so that a DaemonSet of that
program works with the image exchanged. A table in ``numa.exporter.configuration`` reads them, not cyclopts; help and
completion are made of the same table."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from polyarch import __version__
from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import OptionDeclaration, WordsApp, epilogue
from polyarch.cli.options.values import CLUSTER, OUTPUT, subject
from polyarch.cli.output.messages import NextProgram

if TYPE_CHECKING:
    from polyarch.numa.exporter.configuration import ConfigurationDump, LoadedConfiguration
    from polyarch.numa.exporter.flags import Flag


NAME: Final = "run numa-exporter"

EPILOGUE = epilogue(
    note="""\
Settings come from files, then the environment where they are still empty, then flags. Files are
DIR/daemon/config.yaml, DIR/daemon/config.yaml.d/* and DIR/extra/config.yaml; DIR is /etc/rte unless it is
given. A switch that is on by default is turned off with =false.""",
    examples=(
        ("Publish this node's zones as the DaemonSet does", "polyarch run numa-exporter --metrics-mode=httptls"),
        (
            "Scan once and write nothing, with details",
            "polyarch run numa-exporter --oneshot --no-publish -v 4",
        ),
        (
            "Scan every 10 seconds, and when a file is touched",
            "polyarch run numa-exporter --sleep-interval=10s --notify-file=/run/rte/notify",
        ),
        ("See the settings that it would run with", "polyarch run numa-exporter --dump-config=.andexit"),
    ),
    exits=(
        (0, "ended by SIGTERM, or by --oneshot after it has published"),
        (2, "a flag, a variable or a file is wrong; the message names it"),
        (3, "it could not go on: no API server, a port in use, or three failures with --oneshot"),
    ),
)

_TITLES: Final = {
    "Object": subject("Published object"),
    "Usage": subject("What counts as used"),
    "Machine": subject("Machine"),
    "Kubelet": subject("Kubelet"),
    "Triggers": subject("Triggers of a scan"),
    "Publishing": subject("Publishing"),
    "Metrics": subject("Metrics and health"),
    "Files": subject("Configuration"),
    "Output": OUTPUT,
    "Cluster": CLUSTER,
}

app = WordsApp(name="numa-exporter", help_epilogue=EPILOGUE, version_flags=(), config=())


@app.default
def numa_exporter(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int | NextProgram:
    """Publish this node's NUMA zones."""
    from polyarch.cli.roles.reexec import Reexec
    from polyarch.numa.exporter.configuration import load_configuration
    from polyarch.numa.exporter.flags import asks_for_version
    from polyarch.numa.exporter.settings import InvalidExporterConfiguration

    try:
        if asks_for_version(words):
            print(__version__)
            return 0
        found = load_configuration(words, os.environ, home=Path.home())
    except InvalidExporterConfiguration as error:
        raise UsageError(f"{NAME}: {error}") from None
    _log(found)
    if found.dump is not None:
        _dump(found.dump)
        if found.dump.ends:
            return 0
    return Reexec("numa_process", found.settings, ("numa_exporter",))


def _log(found: "LoadedConfiguration") -> None:
    """Warnings, and the dump where it belongs in the log, as entries like all others of the process."""
    in_log = found.dump if found.dump is not None and found.dump.place == ".log" else None
    if not found.warnings and in_log is None:
        return
    import structlog

    import polyarch.run.libraries  # noqa: F401 - first
    from polyarch.run.logs import configure

    configure(found.settings.log_format)
    logger = structlog.get_logger("configuration")
    for sentence in found.warnings:
        logger.warning(sentence)
    if in_log is not None:
        logger.info("configuration", settings=in_log.document)


def _dump(dump: "ConfigurationDump") -> None:
    if dump.place in ("-", ".andexit"):
        sys.stdout.write(dump.text)
        sys.stdout.flush()
    elif dump.place != ".log":
        try:
            Path(dump.place).write_text(dump.text)
        except OSError as error:
            raise UsageError(f"{NAME}: --dump-config {dump.place}: {error.strerror or error}") from None


def _options() -> list[OptionDeclaration]:
    """Of the table of flags."""
    from polyarch.numa.exporter.flags import FLAGS

    root = OptionDeclaration(
        names=("DIR",),
        group=_TITLES["Files"].name,
        order=10,
        help="Directory of configuration",
        placeholder="DIR",
        default="/etc/rte",
        is_argument=True,
    )
    return [
        *(_declared(flag) for flag in FLAGS.values() if flag.group not in ("Output", "Cluster")),
        root,
        *(_declared(flag) for flag in FLAGS.values() if flag.group in ("Output", "Cluster")),
    ]


def _declared(flag: "Flag") -> OptionDeclaration:
    group = _TITLES[flag.group]
    order = group.sort_key
    return OptionDeclaration(
        names=(flag.name,),
        group=group.name,
        order=order if isinstance(order, int) else 0,
        help=flag.meaning,
        placeholder=flag.placeholder,
        choices=flag.choices,
        default="" if flag.is_switch and flag.default == "false" else flag.default,
    )


app.list_options = _options
