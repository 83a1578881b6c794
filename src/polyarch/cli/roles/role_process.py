"""The work of ``polyarch run``: a process that plays roles until it is ended, and what keeps it from that."""

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.garbage_collection import collect_as_usual
from polyarch.cli.output.messages import exit_code_of
from polyarch.cli.roles.process_errors import ErrorTypes, explained
from polyarch.cli.roles.reexec import ReexecSettings
from polyarch.kube.manager import Role
from polyarch.operator.certificates import secret_of
from polyarch.operator.registry_settings import PROVIDERS, providers_of
from polyarch.placement import names
from polyarch.run import process
from polyarch.run.settings import RegistrySettings, RunSettings, TaintRoleSettings

if TYPE_CHECKING:
    from polyarch.oci.auth.credential_plugins import ProviderConfiguration

Runner = Callable[[Coroutine[Any, Any, None]], None]
"""``asyncio.run`` or its like."""


def main(settings: str) -> int:
    """The program that a process starts over with; its exit code."""
    return exit_code_of(lambda: play(msgspec.json.decode(settings, type=ReexecSettings)))


def play(given: ReexecSettings) -> None:
    """Returns when the process has ended; ``UsageError`` and ``CouldNotComplete`` say why it could not go on."""
    name, roles = given.name, roles_of(given.modules)
    if not given.process.cert_dir and any(each.needs_certificate for each in roles):
        raise UsageError(f"run {name}: --cert-dir is needed, as API servers call webhooks over TLS only")
    settings = _settings(given)
    collect_as_usual()
    with explained(f"run {name}", usage=_usage_errors):
        _runner(given)(process.run(name, roles, settings))


def roles_of(modules: Sequence[str]) -> tuple[Role, ...]:
    """Imported only now: a process needs what its own roles need."""
    return tuple(importlib.import_module(f"polyarch.run.{module}").ROLE for module in modules)


def _settings(given: ReexecSettings) -> RunSettings:
    """With the contents of files. Raises ``UsageError`` for one that is not there or is wrong."""
    registries_conf, authorities = given.registries_conf, given.ca
    if given.registries_dir:
        registries_conf, authorities = _registry_files(given.registries_dir, registries_conf, authorities)
    certificates = secret_of(names.OPERATOR, given.operator.certificates)
    is_operator = "operator" in given.modules and not given.process.cert_dir
    return RunSettings(
        process=msgspec.structs.replace(given.process, cert_secret=certificates if is_operator else ""),
        kubeconfig=given.kubeconfig,
        context=given.context,
        log_format=given.log_format,
        log_level=given.log_level,
        registries=RegistrySettings(
            global_pull_secret=given.global_pull_secret,
            registries_conf=registries_conf,
            ca=authorities,
            allow_addresses=given.allow_addresses,
            deny_addresses=given.deny_addresses,
            secret_access=given.secret_access,
            credential_providers=_providers(*given.credential_providers, given.registries_dir),
        ),
        monitor=given.monitor,
        operator=given.operator,
        taints=_taints(given.taints),
        builder=given.builder,
    )


def _runner(given: ReexecSettings) -> Runner:
    """uvloop where it is installed (extra ``fast``). It takes 2 MiB: not on every node, nor for an operator, which has
    little to do."""
    if given.modules == ("operator",) or ("exec_monitor" in given.modules and given.monitor.side == "node"):
        return asyncio.run
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    from polyarch.run.event_loop import EventLoop

    return partial(uvloop.run, loop_factory=EventLoop)


def _usage_errors() -> ErrorTypes:
    """Evaluated once something was raised: a role that asks no registry does not load these modules."""
    from polyarch.oci.mirror_files import InvalidMirrorConfiguration
    from polyarch.oci.transport.addresses import InvalidSetting

    return InvalidMirrorConfiguration, InvalidSetting


def _taints(path: str) -> TaintRoleSettings:
    if not path:
        return TaintRoleSettings()
    from polyarch.cli.input.objects import read_taints

    return TaintRoleSettings(configuration=read_taints(path))


def _providers(path: str, directory: str, registries: str) -> "ProviderConfiguration | None":
    """The kubelet's credential plugins, by its file or ``--registries-dir``; None without a configuration."""
    found = Path(registries) / PROVIDERS
    if not path and registries and found.is_file():
        path = str(found)
        if not directory:
            raise UsageError(f"--image-credential-provider-bin-dir is needed, as {path} names plugins")
    if not path:
        return None
    from polyarch.oci.auth.credential_plugins import InvalidProviderConfiguration

    try:
        return providers_of(Path(path).read_bytes(), directory=directory, origin=path)
    except OSError as error:
        raise UsageError(f"--image-credential-provider-config {path}: {error.strerror}") from None
    except InvalidProviderConfiguration as error:
        raise UsageError(f"--image-credential-provider-config {error}") from None


def _registry_files(
    directory: str, configuration: str | None, authorities: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """``--registries-conf`` and ``--ca`` with the files of ``--registries-dir``, as far as it has them."""
    folder = Path(directory)
    if not folder.is_dir():
        raise UsageError(f"--registries-dir {directory}: there is no such directory")
    found, certificates = folder / "registries.conf", folder / "ca.crt"
    if configuration is None and found.is_file():
        configuration = str(found)
    return configuration, (*authorities, *([str(certificates)] if certificates.is_file() else ()))
