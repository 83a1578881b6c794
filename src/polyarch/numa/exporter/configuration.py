"""The exporter's configuration, loaded: files, environment and command line in, settings and warnings out.

Layers of values become settings: what is said later wins, and the environment counts only where a value is still
empty. Nothing is changed and nothing printed here: the caller prints warnings, and the dump where it is wanted. An
error is one line: place, key and reason.
"""

import os
import shlex
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from polyarch.numa.exporter.flags import (
    CONFIG,
    DUMP_CONFIG,
    FLAG_OF,
    LEGACY_FILE,
    STRICT_CONFIG,
    FlagValues,
    flag_text,
    parse_flags,
)
from polyarch.numa.exporter.settings import (
    DEBUG,
    EVENTS,
    EXTRA_SETTINGS,
    HOSTNAME,
    POD_EXCLUDE,
    POLICY,
    REFERENCE,
    RESOURCE_EXCLUDE,
    SCOPE,
    SETTINGS,
    TIME_UNIT,
    VERBOSE,
    WATCHED_NAMESPACE,
    ExporterSettings,
    InvalidExporterConfiguration,
    InvalidValue,
    Setting,
)
from polyarch.numa.facts import ContainerName
from polyarch.yaml_loader import SafeLoader

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_ROOT: Final = "/etc/rte"
FIXED_ROOTS: Final = (DEFAULT_ROOT, "/run/rte", "/var/rte", "/usr/local/etc/rte", "/etc/resource-topology-exporter")
DEBUG_VERBOSITY: Final = 4
"""The verbosity that ``--debug`` means."""

_OF_EXTRA_FILES: Final = {"resourceExclude": RESOURCE_EXCLUDE, "podExclude": POD_EXCLUDE}
_OF_KUBELET: Final = {"kubelet.topologyManagerPolicy": POLICY, "kubelet.topologyManagerScope": SCOPE}


class ConfigurationDump(msgspec.Struct, frozen=True):
    """The merged settings, and where they are wanted."""

    place: str
    """``-``, ``.andexit``, ``.log`` or a file."""
    text: str
    document: Mapping[str, object]

    @property
    def ends(self) -> bool:
        """Whether nothing but the dump was wanted."""
        return self.place == ".andexit"


class LoadedConfiguration(msgspec.Struct, frozen=True):
    """The settings, warnings and, where it was asked for, the dump."""

    settings: ExporterSettings
    warnings: tuple[str, ...] = ()
    dump: ConfigurationDump | None = None


def load_configuration(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    home: Path,
    host_name: Callable[[], str] = socket.gethostname,
    service_account: Path = SERVICE_ACCOUNT,
) -> LoadedConfiguration:
    """Raises ``InvalidConfiguration``, whose message names the place, the key and the reason."""
    flags = parse_flags(arguments)
    from_files, kubelet, unknown = _values_of_files(flags, home)
    if unknown and STRICT_CONFIG in flags.switches:
        raise InvalidExporterConfiguration(unknown[0])
    given = {**from_files, **_environment_values(from_files, environment), **flags.values}
    warnings = [*unknown]
    given = _with_kubelet(given, kubelet, warnings)
    values = {key: given.get(key, setting.default) for key, setting in SETTINGS.items()}
    if values[WATCHED_NAMESPACE]:
        warnings.append(f"{WATCHED_NAMESPACE} (--watch-namespace) is ignored: usage of all namespaces counts")
    _require_whole_reference({**from_files, **flags.values})
    values[HOSTNAME] = _hostname(values[HOSTNAME], host_name)
    settings = msgspec.structs.replace(
        _exporter_settings(values),
        pod=_first(environment, "POD_NAME", "REFERENCE_POD_NAME") or host_name(),
        namespace=_first(environment, "POD_NAMESPACE", "REFERENCE_NAMESPACE") or _own_namespace(service_account),
    )
    place = flags.others.get(DUMP_CONFIG, "")
    return LoadedConfiguration(settings, tuple(warnings), _dump(place, values) if place else None)


def _environment_values(values: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Values of variables for settings that are still empty."""
    result = {}
    for setting in SETTINGS.values():
        text = environment.get(setting.variable, "") if setting.variable else ""
        if text and not values.get(setting.key, setting.default):
            try:
                result[setting.key] = setting.type.of_text(text)
            except InvalidValue as error:
                raise InvalidExporterConfiguration(f"{setting.variable}: {error}") from None
    return result


def _with_kubelet(values: Mapping[str, Any], kubelet: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """A policy counts only with a scope: the first source that has both is taken, else the kubelet's."""
    result = {key: value for key, value in values.items() if key not in (POLICY, SCOPE)}
    for source, name in (
        (values, "topologyManagerPolicy and topologyManagerScope"),
        (kubelet, "the block kubelet of the extra configuration"),
    ):
        policy, scope = source.get(POLICY, ""), source.get(SCOPE, "")
        if policy and scope:
            return {**result, POLICY: policy, SCOPE: scope}
        if policy or scope:
            warnings.append(f"{name}: one of policy and scope is missing, so the other is ignored; set both or none")
    return result


def _require_whole_reference(values: Mapping[str, Any]) -> None:
    """The variables of the environment may be there for other reasons; who writes a reference means it."""
    names = [values.get(key, "") for key in REFERENCE]
    if any(names) and not all(names):
        missing = REFERENCE[names.index("")]
        raise InvalidExporterConfiguration(
            f"{missing}: missing; a reference container has a namespace, a pod and a container"
        )


def _hostname(given: str, host_name: Callable[[], str]) -> str:
    """The node's name. A kubelet registers the host's name in lower case."""
    name = given or host_name().strip().lower()
    if not name:
        raise InvalidExporterConfiguration(
            "the node's name is unknown: give --hostname, or set nrtUpdater.hostname, NODE_NAME or the host's name"
        )
    return name


def _first(environment: Mapping[str, str], *variables: str) -> str:
    return next((value for name in variables if (value := environment.get(name, ""))), "")


def _own_namespace(service_account: Path) -> str:
    """The namespace of the pod that this process runs in; empty outside a cluster."""
    try:
        return (service_account / "namespace").read_text().strip()
    except OSError:
        return ""


def _exporter_settings(values: Mapping[str, Any]) -> ExporterSettings:
    """From complete values."""
    parts: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for key, setting in SETTINGS.items():
        part, dot, name = setting.field.partition(".")
        if dot:
            parts.setdefault(part, {})[name] = setting.settled(values[key])
        elif setting.field:
            own[setting.field] = setting.settled(values[key])
    reference = [values[key] for key in REFERENCE]
    parts["scan"]["reference_container"] = ContainerName(*reference) if all(reference) else None
    parts["triggers"]["max_events_per_second"] = values[EVENTS] / SETTINGS[TIME_UNIT].settled(values[TIME_UNIT])
    if values[POLICY] and values[SCOPE]:
        parts["host"] |= {"topology_manager_policy": values[POLICY], "topology_manager_scope": values[SCOPE]}
    if values[DEBUG]:
        own["verbosity"] = max(values[VERBOSE], DEBUG_VERBOSITY)
    base = ExporterSettings()
    built = {name: msgspec.structs.replace(getattr(base, name), **fields) for name, fields in parts.items()}
    return msgspec.structs.replace(base, **own, **built)


# -- files -------------------------------------------------------------------------------------------------------------


class FileValues(msgspec.Struct, frozen=True):
    """The values of one file."""

    values: Mapping[str, Any]
    """By key."""
    unknown: tuple[str, ...]
    """A sentence for each key that means nothing here."""


def _values_of_files(flags: FlagValues, home: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Values of all files, the ``kubelet`` block of the extra ones, and their unknown keys."""
    allowed = allowed_roots(home, os.getuid(), flags.allowed_roots)
    root = accepted_directory(Path(flags.root or DEFAULT_ROOT), allowed)
    daemon_paths = [root / "daemon" / "config.yaml", *drop_in_files(root / "daemon" / "config.yaml.d")]
    legacy = Path(flags.others.get(CONFIG) or LEGACY_FILE)
    extra_paths = [accepted_directory(legacy.parent, allowed) / legacy.name, root / "extra" / "config.yaml"]
    daemon = _read_files(daemon_paths, SETTINGS)
    extra = _read_files(extra_paths, EXTRA_SETTINGS)
    kubelet = _merge_values(_renamed(file.values, _OF_KUBELET) for file in extra)
    excluded = [_renamed(file.values, _OF_EXTRA_FILES) for file in extra]
    values = _merge_values([*(file.values for file in daemon), *excluded])
    return values, kubelet, [sentence for file in (*daemon, *extra) for sentence in file.unknown]


def _renamed(values: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    return {keys[key]: value for key, value in values.items() if key in keys}


def _merge_values(files: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of files, in their order. Lists are replaced; excluded resources add up by node, as maps do."""
    result: dict[str, Any] = {}
    for values in files:
        for key, value in values.items():
            if key == RESOURCE_EXCLUDE:
                result[key] = {**result.get(key, {}), **value}
            else:
                result[key] = value
    return result


def _read_files(paths: Sequence[Path], table: Mapping[str, Setting]) -> list[FileValues]:
    return [file_values(str(path), content, table) for path in paths if (content := read_yaml(path)) is not None]


def file_values(place: str, document: Mapping[object, object], table: Mapping[str, Setting]) -> FileValues:
    """The values of a document, checked. Raises ``InvalidConfiguration`` with place, key and reason."""
    values: dict[str, Any] = {}
    unknown: list[str] = []
    sections = {key[:cut] for key in table for cut in range(len(key)) if key[cut] == "."}

    def walk(part: Mapping[object, object], prefix: str) -> None:
        for name, content in part.items():
            key = f"{prefix}{name}"
            if not isinstance(name, str) or "." in name:  # a dot would make one key of two
                unknown.append(_unknown_key(place, key, ()))
            elif key in table:
                if content is not None:
                    values[key] = _checked(place, key, table[key], content)
            elif key not in sections:
                unknown.append(_unknown_key(place, key, (*table, *sections)))
            elif isinstance(content, dict):
                walk(content, f"{key}.")
            elif content is not None:
                raise InvalidExporterConfiguration(f"{place}: {key}: expected a mapping of keys")

    walk(document, "")
    return FileValues(values, tuple(unknown))


def _checked(place: str, key: str, setting: Setting, content: object) -> Any:
    try:
        return setting.type.of_file(content)
    except InvalidValue as error:
        raise InvalidExporterConfiguration(f"{place}: {key}: {error}") from None


def _unknown_key(place: str, key: str, known: Iterable[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{place}: {key}: unknown key{f'; did you mean {close[0]}?' if close else ''}"


def read_yaml(path: Path) -> Mapping[object, object] | None:
    """The content of the file; None if there is none. One that cannot be read, or is no mapping, is an error."""
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a ValueError for a NUL in the name
        raise InvalidExporterConfiguration(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        content = yaml.load(text, SafeLoader)  # noqa: S506 - safe
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InvalidExporterConfiguration(f"{path}: {line}not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidExporterConfiguration(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidExporterConfiguration(f"{path}: expected a mapping of keys, such as `kubelet:`")
    return content


def drop_in_files(directory: Path) -> tuple[Path, ...]:
    """Its files by name. Hidden ones are left out: that is how a mounted ConfigMap keeps its versions."""
    try:
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise InvalidExporterConfiguration(f"{directory}: cannot be read: {error.strerror or error}") from None
    return tuple(path for path in paths if not path.is_dir())


# -- directories -------------------------------------------------------------------------------------------------------

# Configuration is taken from a few directories, so that an argument cannot turn any file of a host into configuration.


def allowed_roots(home: Path, uid: int, added: Sequence[str]) -> tuple[Path, ...]:
    """All of them, those of ``--allow-config-root`` last."""
    return (
        *(Path(root) for root in FIXED_ROOTS),
        Path(f"/run/user/{uid}/rte"),
        home / ".rte",
        *(Path(root) for root in added),
    )


def accepted_directory(directory: Path, roots: Sequence[Path]) -> Path:
    """The directory without symlinks, if it is one of the roots or below one. Raises ``InvalidConfiguration``.

    A root's own last component is not followed: who may write beside it could make it lead anywhere.
    """
    try:
        real = directory.resolve()
        places = [root.parent.resolve() / root.name for root in roots]
    except (OSError, RuntimeError, ValueError) as error:  # a loop of symlinks, a NUL
        raise InvalidExporterConfiguration(f"{directory}: cannot be resolved: {error}") from None
    if any(real.is_relative_to(place) for place in places):
        return real
    listed = ", ".join(str(root) for root in roots)
    raise InvalidExporterConfiguration(
        f"{directory}: configuration is read only below {listed}; move it, or add --allow-config-root {real}"
    )


# -- the dump ----------------------------------------------------------------------------------------------------------

# The dump is the merged settings as a file. Keys with their zero value are left out, so a file cannot say "off" of a
# setting that is on by default. A comment then names the flags that do: the file and these flags together give the same
# settings.


def _dump(place: str, values: Mapping[str, Any]) -> ConfigurationDump:
    document = dumped_document(values)
    text = yaml.safe_dump(document, sort_keys=True, default_flow_style=False, allow_unicode=True)
    return ConfigurationDump(place, omitted_comment(omitted_flags(values)) + text, document)


def dumped_document(values: Mapping[str, Any]) -> dict[str, object]:
    """The daemon's file, of complete values."""
    result: dict[str, Any] = {}
    for key, setting in SETTINGS.items():
        value = values[key]
        if (not value and key != VERBOSE) or key == WATCHED_NAMESPACE:
            continue
        *sections, name = key.split(".")
        part = result
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = setting.file_content(value)
    return result


def omitted_flags(values: Mapping[str, Any]) -> list[str]:
    """Flags for the values that a file leaves out though they are not the default."""
    return [
        f"{FLAG_OF[key].name}={flag_text(setting, values[key])}"
        for key, setting in SETTINGS.items()
        if not values[key] and setting.default and key != VERBOSE
    ]


def omitted_comment(flags: list[str]) -> str:
    """The line about them, before the file; empty for none."""
    return f"# Zero values are left out here. These are flags: {shlex.join(flags)}\n" if flags else ""
