"""Starts a role from the words and variables of its pod, without the libraries of the command line.

Reading flags with them is a third of what a start costs, and they would have to be left behind again. Here is read what
pods have: whatever is unusual or wrong is the command line's, which explains it. Both come to the same settings.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.roles.flags import KINDS, RoleChoice, RoleFlags
from polyarch.cli.roles.reexec import Reexec, ReexecSettings

PREFIX: Final = "POLYARCH_"
"""Of variables that are flags."""
SANDBOX: Final = "POLYARCH_SANDBOX_"
"""Of variables by which a sandbox knows its processes."""
EXPORTER, EXTENDER = "numa-exporter", "numa-extender"
_NUMBER: Final = re.compile("0|[1-9][0-9]*")
_PLAIN: Final = re.compile(r"[^\s-]\S*")
"""Values that mean the same wherever they stand."""


def program_of_pod(words: Sequence[str], environment: Mapping[str, str]) -> Reexec | None:
    """What ``polyarch run`` with these words plays; None where the command line has to look at them."""
    name, *rest = words or ("",)
    if name == EXPORTER:
        return _exporter(rest, environment)
    if name == EXTENDER:
        return _extender(rest, environment)
    settings = _settings(words, environment)
    return Reexec("role_process", settings) if settings is not None else None


def forget_current_directory() -> None:
    """No module of the current directory takes the place of one of ours from now on, as with ``python -P``."""
    if sys.flags.safe_path:
        return
    here = [""]
    with suppress(OSError):  # somebody has deleted it
        here.append(str(Path.cwd()))
    sys.path[:] = [each for each in sys.path if each not in here]


def _settings(words: Sequence[str], environment: Mapping[str, str]) -> ReexecSettings | None:
    """Of a role, then ``--flag=value`` and switches alone, each at most once if it is no list."""
    roles = {choice.label: choice for choice in RoleChoice}
    if not words or words[0] not in roles:
        return None
    try:
        values = _values(words[1:], environment)
        return RoleFlags.of(values).settings(roles[words[0]]) if values is not None else None
    except (msgspec.ValidationError, UsageError):
        return None


def _values(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    given: dict[str, list[str]] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag != f"--{name.replace('_', '-')}" or name not in KINDS or bool(equals) is (KINDS[name] is bool):
            return None
        given.setdefault(name, []).append(value if equals else "true")
    for variable in _variables(environment):
        name = variable.removeprefix(PREFIX).lower()
        if name not in KINDS or variable != PREFIX + name.upper():
            return None
        if name not in given:
            text = environment[variable]
            given[name] = text.split() if KINDS[name] is tuple else [text]
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if (KINDS[name] is not tuple and len(texts) > 1) or not all(map(_PLAIN.fullmatch, texts)):
            return None
        values[name] = texts if KINDS[name] is tuple else _value(texts[0], KINDS[name])
    return values


def _variables(environment: Mapping[str, str]) -> list[str]:
    """Those that are flags, or meant to be."""
    return [each for each in environment if each.startswith(PREFIX) and not each.startswith(SANDBOX)]


def _value(text: str, kind: type) -> Any:
    """As the type says, or the text itself, which is then refused as a value of that type."""
    if kind is int:
        return int(text) if _NUMBER.fullmatch(text) else text
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    return text


# -- NUMA: flags of their own ------------------------------------------------------------------------------------------


def _exporter(words: Sequence[str], environment: Mapping[str, str]) -> Reexec | None:
    from polyarch.numa.exporter.configuration import load_configuration
    from polyarch.numa.exporter.flags import asks_for_version
    from polyarch.numa.exporter.settings import InvalidExporterConfiguration

    if not all(word.startswith("-") for word in words):  # the root of its configuration, or a value by itself
        return None
    try:
        if asks_for_version(words):
            return None
        found = load_configuration(words, environment, home=Path.home())
    except InvalidExporterConfiguration:
        return None
    if found.warnings or found.dump is not None:
        return None
    return Reexec("numa_process", found.settings, ("numa_exporter",))


_OF_EXTENDER: Final = ("--config", "--listen", "--status-listen", "-v")


def _extender(words: Sequence[str], environment: Mapping[str, str]) -> Reexec | None:
    """Of the flags that the operator gives it, each at most once, and a file in JSON."""
    from polyarch.numa.extender.configuration import InvalidExtenderConfiguration, compiled
    from polyarch.numa.extender.settings import missing_library

    given = {flag: value for flag, _, value in (word.partition("=") for word in words)}
    known = len(given) == len(words) and all(each in _OF_EXTENDER for each in given)
    if not known or not all(map(_PLAIN.fullmatch, given.values())) or missing_library():
        return None
    if _variables(environment):
        return None
    path, verbosity = given.pop("--config", ""), given.pop("-v", "2")
    try:
        content = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any]) if path else {}
        settings = compiled(content, given, origin=path)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, InvalidExtenderConfiguration):
        return None
    if not _NUMBER.fullmatch(verbosity):
        return None
    namespace = environment.get("POD_NAMESPACE", settings.namespace)
    settings = msgspec.structs.replace(settings, namespace=namespace, verbosity=int(verbosity))
    return Reexec("numa_process", settings, ("numa_extender",))
