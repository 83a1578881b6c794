"""The exporter's configuration, read: files, environment and command line in, settings and warnings out (NE-130).

Nothing is changed and nothing printed here: the caller prints warnings, and the dump where it is wanted.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from polyarch.numa.exporter.configuration import command_line, dump, files, merging, roots
from polyarch.numa.exporter.configuration.command_line import Given
from polyarch.numa.exporter.configuration.flags import CONFIG, DUMP_CONFIG, LEGACY_FILE, STRICT_CONFIG
from polyarch.numa.exporter.configuration.invalid import InvalidConfiguration
from polyarch.numa.exporter.configuration.merging import Said
from polyarch.numa.exporter.configuration.settings_table import (
    EXTRA,
    HOSTNAME,
    POD_EXCLUDE,
    POLICY,
    REFERENCE,
    RESOURCE_EXCLUDE,
    SCOPE,
    SETTINGS,
    WATCHED_NAMESPACE,
)
from polyarch.numa.exporter.settings import ExporterSettings

_FROM_EXTRA: Final = {"resourceExclude": RESOURCE_EXCLUDE, "podExclude": POD_EXCLUDE}
_KUBELET: Final = {"kubelet.topologyManagerPolicy": POLICY, "kubelet.topologyManagerScope": SCOPE}

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Dump(msgspec.Struct, frozen=True):
    """The merged settings, and where they are wanted."""

    place: str
    """``-``, ``.andexit``, ``.log`` or a file."""
    text: str
    document: Mapping[str, object]

    @property
    def ends(self) -> bool:
        """Whether that was all that was wanted."""
        return self.place == ".andexit"


class Read(msgspec.Struct, frozen=True):
    """What came of it."""

    settings: ExporterSettings
    warnings: tuple[str, ...] = ()
    dump: Dump | None = None
    """None: not wanted."""


def read(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    home: Path,
    host_name: Callable[[], str] = socket.gethostname,
    service_account: Path = SERVICE_ACCOUNT,
) -> Read:
    """Raises ``InvalidConfiguration``, whose message names the place, the key and the reason."""
    given = command_line.parse(arguments)
    from_files, kubelet, unknown = _files(given, home)
    if unknown and STRICT_CONFIG in given.switches:
        raise InvalidConfiguration(unknown[0])
    typed = {**from_files, **merging.from_environment(from_files, environment), **given.values}
    warnings = [*unknown]
    values = merging.complete(_with_kubelet(typed, kubelet, warnings))
    if values[WATCHED_NAMESPACE]:
        warnings.append(f"{WATCHED_NAMESPACE} (--watch-namespace) is ignored: usage of all namespaces counts")
    _require_whole_reference({**from_files, **given.values})
    values[HOSTNAME] = _hostname(values[HOSTNAME], host_name)
    settings = merging.settings(values)
    settings = msgspec.structs.replace(
        settings,
        pod=_first(environment, "POD_NAME", "REFERENCE_POD_NAME") or host_name(),
        namespace=_first(environment, "POD_NAMESPACE", "REFERENCE_NAMESPACE") or _own_namespace(service_account),
    )
    place = given.others.get(DUMP_CONFIG, "")
    return Read(settings, tuple(warnings), _dump(place, values) if place else None)


def _files(given: Given, home: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Values of all files, the ``kubelet`` block of the extra ones, and their unknown keys."""
    allowed = roots.allowed(home, os.getuid(), given.allowed_roots)
    root = roots.accepted(Path(given.root or roots.DEFAULT), allowed)
    daemon = [root / "daemon" / "config.yaml", *files.drop_ins(root / "daemon" / "config.yaml.d")]
    older = Path(given.others.get(CONFIG) or LEGACY_FILE)
    extra = [roots.accepted(older.parent, allowed) / older.name, root / "extra" / "config.yaml"]
    found = [*_said(daemon, SETTINGS)]
    found_extra = [*_said(extra, EXTRA)]
    kubelet = merging.merged(
        {_KUBELET[key]: value for key, value in each.values.items() if key in _KUBELET} for each in found_extra
    )
    excluded = [
        {_FROM_EXTRA[key]: value for key, value in each.values.items() if key in _FROM_EXTRA} for each in found_extra
    ]
    values = merging.merged([*(each.values for each in found), *excluded])
    return values, kubelet, [sentence for each in (*found, *found_extra) for sentence in each.unknown]


def _said(paths: Sequence[Path], table: Mapping[str, Any]) -> Iterator[Said]:
    for path in paths:
        content = files.document(path)
        if content is not None:
            yield merging.said(str(path), content, table)


def _with_kubelet(values: Mapping[str, Any], kubelet: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """A policy counts only with a scope: the first source that has both is taken, else the kubelet's (NE-100)."""
    result = {key: value for key, value in values.items() if key not in (POLICY, SCOPE)}
    for source, what in (
        (values, "topologyManagerPolicy and topologyManagerScope"),
        (kubelet, "the block kubelet of the extra configuration"),
    ):
        policy, scope = source.get(POLICY, ""), source.get(SCOPE, "")
        if policy and scope:
            return {**result, POLICY: policy, SCOPE: scope}
        if policy or scope:
            warnings.append(f"{what}: one of policy and scope is missing, so the other is ignored; set both or none")
    return result


def _require_whole_reference(values: Mapping[str, Any]) -> None:
    """The variables of the environment may be there for other reasons; who writes a reference means it."""
    names = [values.get(key, "") for key in REFERENCE]
    if any(names) and not all(names):
        missing = REFERENCE[names.index("")]
        raise InvalidConfiguration(f"{missing}: missing; a reference container has a namespace, a pod and a container")


def _first(environment: Mapping[str, str], *variables: str) -> str:
    return next((found for name in variables if (found := environment.get(name, ""))), "")


def _own_namespace(service_account: Path) -> str:
    """That of the pod this process runs in; empty outside a cluster."""
    try:
        return (service_account / "namespace").read_text().strip()
    except OSError:
        return ""


def _hostname(said: str, host_name: Callable[[], str]) -> str:
    """The node's name (NE-010). A kubelet registers the host's name in lower case."""
    name = said or host_name().strip().lower()
    if not name:
        raise InvalidConfiguration(
            "the node's name is unknown: give --hostname, or set nrtUpdater.hostname, NODE_NAME or the host's name"
        )
    return name


def _dump(place: str, values: Mapping[str, Any]) -> Dump:
    content = dump.document(values)
    return Dump(place, dump.comment(dump.left_out(values)) + files.text_of(content), content)
