"""The merged settings as a file (NE-133). Pure.

Keys with their zero value are left out, so a file cannot say "off" of what is on by default. A comment then names the
flags that do: the file and these flags together give the same settings.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from polyarch.numa.exporter.configuration.flags import FLAG_OF, spelt
from polyarch.numa.exporter.configuration.settings_table import SETTINGS, VERBOSE, WATCHED_NAMESPACE


def document(values: Mapping[str, Any]) -> dict[str, object]:
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
        part[name] = setting.kind.in_file(value)
    return result


def left_out(values: Mapping[str, Any]) -> list[str]:
    """Flags for the values that a file leaves out though they are not the default."""
    return [
        f"{FLAG_OF[key].name}={spelt(setting, values[key])}"
        for key, setting in SETTINGS.items()
        if not values[key] and setting.default and key != VERBOSE
    ]


def comment(flags: list[str]) -> str:
    """The line about them, before the file; empty for none."""
    return f"# Zero values are left out here. These are flags: {shlex.join(flags)}\n" if flags else ""
