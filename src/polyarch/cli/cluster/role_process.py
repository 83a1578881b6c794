"""The work of ``polyarch run``: a process that plays roles until it is ended, and what keeps it from that.

The exec-format-error monitor's node side runs on every node, so its memory is bounded (PL-810). The libraries of the
command line are a tenth of it, and they are not needed once the flags are read: the process then starts over without
them (:func:`node_side`).
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from polyarch.cli.collecting import collect_as_usual
from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.process.roles import ProcessSettings, Role
from polyarch.kube.runtime.lease import LeadershipError
from polyarch.kube.serving.certificates import CertificateError
from polyarch.run import process
from polyarch.run.settings import LogFormat, LogLevel, MonitorSettings, RunSettings

if TYPE_CHECKING:
    from polyarch.oci.auth.credential_providers import ProviderConfiguration


Runner = Callable[[Coroutine[Any, Any, None]], None]
"""``asyncio.run`` or its like."""
_NODE_SIDE: Final = """\
import sys
import polyarch.run  # first, as it imports structlog and aiohttp without what no role uses
from polyarch.cli.cluster.role_process import node_side
sys.exit(node_side(sys.argv[1]))
"""


class NodeSide(msgspec.Struct, frozen=True, kw_only=True):
    """What a node side takes along when it starts over."""

    process: ProcessSettings
    kubeconfig: str | None
    context: str | None
    log_format: LogFormat
    log_level: LogLevel
    monitor: MonitorSettings


def node_side(settings: str) -> int:
    """Plays the node side, from :class:`NodeSide` as JSON; returns the exit code, as ``polyarch run`` does."""
    from polyarch.run.exec_monitor import ROLE

    given = msgspec.json.decode(settings, type=NodeSide)
    try:
        _play(ROLE.name, (ROLE,), RunSettings(**msgspec.structs.asdict(given)), asyncio.run)  # uvloop takes 2 MiB
    except CommandError as error:
        sys.stderr.write(f"polyarch: {error}\n")
        return error.exit_code
    return 0


def _start_over(settings: RunSettings) -> NoReturn:
    """The same process, with the program that calls :func:`node_side`."""
    taken = {name: getattr(settings, name) for name in NodeSide.__struct_fields__}
    text = msgspec.json.encode(NodeSide(**taken)).decode()
    os.execv(sys.executable, [sys.executable, "-c", _NODE_SIDE, text])  # noqa: S606 - the same program


def play(name: str, roles: tuple[Role, ...], settings: RunSettings) -> None:
    """Returns when the process has ended; ``UsageError`` and ``CouldNotComplete`` say why it could not go on."""
    if name == "exec-monitor" and settings.monitor.side == "node":
        _start_over(settings)
    _play(name, roles, settings, _fastest())


def _play(name: str, roles: tuple[Role, ...], settings: RunSettings, run: Runner) -> None:
    collect_as_usual()
    try:
        run(process.run(name, roles, settings))
    except _usage_errors() as error:
        raise UsageError(f"run {name}: {error}") from None
    except (KubernetesError, OSError) as error:
        raise CouldNotComplete(f"run {name}: {error}") from None
    except BaseExceptionGroup as group:
        known, unknown = group.split((OSError, KubernetesError, CertificateError, LeadershipError))
        if known is None or unknown is not None:
            raise
        problem = "; ".join(dict.fromkeys(str(error) for error in _leaves(known)))
        raise CouldNotComplete(f"run {name}: {problem}") from None


def _usage_errors() -> tuple[type[Exception], ...]:
    """Evaluated once something was raised: a role that asks no registry does not load these modules (PL-810)."""
    from polyarch.oci.mirrors.toml_files import InvalidConfiguration
    from polyarch.oci.transport.addresses import InvalidSetting

    return ConfigurationError, InvalidConfiguration, InvalidSetting


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _fastest() -> Runner:
    """uvloop where it is installed (extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def providers(path: str, directory: str) -> "ProviderConfiguration | None":
    """The kubelet's credential plugins; None without a configuration."""
    if bool(path) != bool(directory):
        raise UsageError(
            "--image-credential-provider-config and --image-credential-provider-bin-dir go together: give both or none"
        )
    if not path:
        return None
    import yaml

    from polyarch.oci.auth.credential_providers import InvalidProviderConfiguration, ProviderConfiguration

    try:
        content = yaml.safe_load(Path(path).read_bytes())
        return ProviderConfiguration.from_mapping(content, directory=directory, origin=path)
    except (OSError, yaml.YAMLError, InvalidProviderConfiguration) as error:
        raise UsageError(f"--image-credential-provider-config {path}: {error}") from None


def registry_files(
    directory: str, configuration: str | None, authorities: Sequence[str]
) -> tuple[str | None, list[str]]:
    """``--registries-conf`` and ``--ca`` with the files of ``--registries-dir``, as far as it has them (PL-424)."""
    folder = Path(directory)
    if not folder.is_dir():
        raise UsageError(f"--registries-dir {directory}: there is no such directory")
    found, certificates = folder / "registries.conf", folder / "ca.crt"
    if configuration is None and found.is_file():
        configuration = str(found)
    return configuration, [*authorities, *([str(certificates)] if certificates.is_file() else ())]
