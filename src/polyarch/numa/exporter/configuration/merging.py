"""Layers of values → the settings: what is said later wins, and the environment speaks where nobody has (NE-130).

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from polyarch.numa.api.scan_settings import ContainerName
from polyarch.numa.exporter.configuration.invalid import InvalidConfiguration, Unusable
from polyarch.numa.exporter.configuration.settings_table import (
    DEBUG,
    EVENTS,
    POLICY,
    REFERENCE,
    RESOURCE_EXCLUDE,
    SCOPE,
    SETTINGS,
    TIME_UNIT,
    VERBOSE,
    Setting,
)
from polyarch.numa.exporter.settings import ExporterSettings

DEBUG_VERBOSITY = 4
"""What ``--debug`` means for ``-v``."""


class Said(msgspec.Struct, frozen=True):
    """What one file says."""

    values: Mapping[str, Any]
    """By key."""
    unknown: tuple[str, ...]
    """A sentence for each key that means nothing here."""


def said(place: str, document: Mapping[object, object], table: Mapping[str, Setting]) -> Said:
    """What a document says, its values checked. Raises ``InvalidConfiguration`` with place, key and reason."""
    values: dict[str, Any] = {}
    unknown: list[str] = []
    sections = {key[:cut] for key in table for cut in range(len(key)) if key[cut] == "."}

    def walk(part: Mapping[object, object], prefix: str) -> None:
        for name, found in part.items():
            key = f"{prefix}{name}"
            if not isinstance(name, str) or "." in name:  # a dot would make one key of two
                unknown.append(_unknown(place, key, ()))
            elif key in table:
                if found is not None:
                    values[key] = _checked(place, key, table[key], found)
            elif key not in sections:
                unknown.append(_unknown(place, key, (*table, *sections)))
            elif isinstance(found, dict):
                walk(found, f"{key}.")
            elif found is not None:
                raise InvalidConfiguration(f"{place}: {key}: expected a mapping of keys")

    walk(document, "")
    return Said(values, tuple(unknown))


def merged(files: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of files, in their order. Lists are replaced; resources that are excluded add up by node, as maps do."""
    result: dict[str, Any] = {}
    for values in files:
        for key, value in values.items():
            if key == RESOURCE_EXCLUDE:
                result[key] = {**result.get(key, {}), **value}
            else:
                result[key] = value
    return result


def from_environment(values: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """What variables say about settings that are still empty."""
    found = {}
    for setting in SETTINGS.values():
        text = environment.get(setting.variable, "") if setting.variable else ""
        if text and not values.get(setting.key, setting.default):
            try:
                found[setting.key] = setting.kind.of_text(text)
            except Unusable as error:
                raise InvalidConfiguration(f"{setting.variable}: {error}") from None
    return found


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults of all that was not said."""
    return {key: values.get(key, setting.default) for key, setting in SETTINGS.items()}


def settings(values: Mapping[str, Any]) -> ExporterSettings:
    """From complete values."""
    parts: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for key, setting in SETTINGS.items():
        part, dot, name = setting.field.partition(".")
        if dot:
            parts.setdefault(part, {})[name] = setting.kind.settled(values[key])
        elif setting.field:
            own[setting.field] = setting.kind.settled(values[key])
    parts["scan"]["reference_container"] = _container([values[key] for key in REFERENCE])
    parts["triggers"]["max_events_per_second"] = values[EVENTS] / SETTINGS[TIME_UNIT].kind.settled(values[TIME_UNIT])
    if values[POLICY] and values[SCOPE]:
        parts["host"] |= {"topology_manager_policy": values[POLICY], "topology_manager_scope": values[SCOPE]}
    if values[DEBUG]:
        own["verbosity"] = max(values[VERBOSE], DEBUG_VERBOSITY)
    base = ExporterSettings()
    built = {name: msgspec.structs.replace(getattr(base, name), **fields) for name, fields in parts.items()}
    return msgspec.structs.replace(base, **own, **built)


def _container(names: Sequence[str]) -> ContainerName | None:
    """None unless all three names are there."""
    return ContainerName(*names) if all(names) else None


def _checked(place: str, key: str, setting: Setting, found: object) -> Any:
    try:
        return setting.kind.of_file(found)
    except Unusable as error:
        raise InvalidConfiguration(f"{place}: {key}: {error}") from None


def _unknown(place: str, key: str, known: Iterable[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{place}: {key}: unknown key{f'; did you mean {close[0]}?' if close else ''}"
