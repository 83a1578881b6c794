"""From the content of ``--config`` and the flags to the settings; a flag wins. Pure.

The file is what the operator writes for its scheduler (``numa_scheduler_objects``), and may hold everything
that flags say. A key that is not known is an error: a misspelt one would go unnoticed for months."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, get_args

from polyarch.durations import InvalidDuration, parse_go_duration
from polyarch.numa.api.resources import (
    CANDIDATE_BOUNDS,
    RestrictedPolicy,
    ResyncDebug,
    SchedulingMode,
    ScoringType,
)
from polyarch.numa.extender.settings import BestEffort, ExtenderSettings, Foreign, Kick, Switch, UnknownNodes

_HIGHEST_PORT: Final = 65535
_HIGHEST_WEIGHT: Final = 1_000_000
_MOST_SECONDS: Final = 7 * 86400.0

Read = Callable[[Any], Any]
"""From the value in a file, or the text of a flag. Raises ``InvalidConfiguration`` that says what was expected."""


class InvalidExtenderConfiguration(ValueError):  # noqa: N818 - what is the case
    """The message names the key or flag, what was expected, and what to write."""


class Setting(NamedTuple):
    """One setting: its key in the file, its flag, its field, and how its value is read."""

    key: str
    flag: str
    field: str
    read: Read


def compiled(file: Mapping[str, Any], flags: Mapping[str, Any], *, origin: str) -> ExtenderSettings:
    """``file``: the content of the file ``origin``; ``flags``: what was given, by flag.

    Raises ``InvalidConfiguration``.
    """
    if unknown := [key for key in file if key not in BY_KEY]:
        if removed := [f"{key} {REMOVED[key]}" for key in unknown if key in REMOVED]:
            raise InvalidExtenderConfiguration(f"{origin}: {'; '.join(removed)}")
        close = get_close_matches(str(unknown[0]), BY_KEY, n=1)
        instead = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(sorted(BY_KEY))}"
        raise InvalidExtenderConfiguration(f"{origin}: {unknown[0]} is no setting; {instead}")
    values = {}
    for key, value in file.items():
        values[BY_KEY[key].field] = _read(BY_KEY[key], value, f"{origin}: {key}")
    for name, value in flags.items():
        values[BY_FLAG[name].field] = _read(BY_FLAG[name], value, name)
    return ExtenderSettings(**values)


def _read(setting: Setting, value: Any, place: str) -> Any:
    try:
        return setting.read(value)
    except InvalidExtenderConfiguration as error:
        raise InvalidExtenderConfiguration(f"{place}: {value!r}: {error}") from None


def _choice(literal: Any) -> Read:
    words: tuple[str, ...] = get_args(literal)

    def read(value: Any) -> str:
        if value not in words:
            raise InvalidExtenderConfiguration(f"expected {', '.join(words)}")
        return str(value)

    return read


def _switch(value: Any) -> bool:
    if value not in (True, False, *get_args(Switch)):
        raise InvalidExtenderConfiguration("expected on or off")
    return value in (True, "on")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidExtenderConfiguration("expected true or false")
    return value


def _whole(least: int, most: int) -> Read:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidExtenderConfiguration(f"expected a whole number, {least} to {most}")
        return value

    return read


def _duration(least: float) -> Read:
    def read(value: Any) -> float:
        try:
            seconds = parse_go_duration(value) if isinstance(value, str) else -1.0
        except InvalidDuration:
            seconds = -1.0
        if not least <= seconds <= _MOST_SECONDS:
            raise InvalidExtenderConfiguration(f"expected a duration of {least:g}s or more, such as 90s or 5m")
        return seconds

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidExtenderConfiguration("expected a text")
    return value


def _name(value: Any) -> str:
    if not _text(value):
        raise InvalidExtenderConfiguration("expected a name")
    return str(value)


def _weights(value: Any) -> dict[str, int]:
    pairs: dict[Any, Any] = dict(value) if isinstance(value, Mapping) else {}
    if isinstance(value, str):
        for part in filter(None, value.split(",")):
            name, _, number = part.partition("=")
            pairs[name.strip()] = int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else number
    elif not isinstance(value, Mapping):
        raise InvalidExtenderConfiguration("expected weights by resource, such as cpu=1,memory=2")
    read = _whole(0, _HIGHEST_WEIGHT)
    try:
        return {_name(name): max(1, read(weight)) for name, weight in pairs.items()}
    except InvalidExtenderConfiguration:
        raise InvalidExtenderConfiguration("expected whole weights by resource, such as cpu=1,memory=2") from None


def _address(value: Any) -> tuple[str, int]:
    host, colon, port = str(value).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port[:6]) > _HIGHEST_PORT:
        raise InvalidExtenderConfiguration("expected ADDRESS:PORT, such as 127.0.0.1:9448, or :8448 for all addresses")
    return host, int(port)


SETTINGS: Final = (
    Setting("mode", "--mode", "mode", _choice(SchedulingMode)),
    Setting("schedulerName", "--scheduler-name", "scheduler_name", _name),
    Setting("strategy", "--strategy", "strategy", _choice(ScoringType)),
    Setting("weights", "--weights", "weights", _weights),
    Setting("restricted", "--restricted", "restricted", _choice(RestrictedPolicy)),
    Setting("bestEffort", "--best-effort", "best_effort", _choice(BestEffort)),
    Setting("unknownNodes", "--unknown-nodes", "unknown_nodes", _choice(UnknownNodes)),
    Setting("candidates", "--candidates", "candidates", _whole(*CANDIDATE_BOUNDS)),
    Setting("reservations", "--reservations", "reservations", _switch),
    Setting("ttl", "--ttl", "ttl", _duration(1.0)),
    Setting("foreign", "--foreign", "foreign", _choice(Foreign)),
    Setting("maxStaleness", "--max-staleness", "max_staleness", _duration(1.0)),
    Setting("resyncDebug", "--cache-resync-debug", "resync_debug", _choice(ResyncDebug)),
    Setting("preempt", "--preempt", "preempt", _boolean),
    Setting("kick", "--kick", "kick", _choice(Kick)),
    Setting("bind", "--bind", "bind", _boolean),
    Setting("listen", "--listen", "listen", _address),
    Setting("statusListen", "--status-listen", "status_listen", _address),
    Setting("certDir", "--cert-dir", "cert_dir", _text),
    Setting("dumps", "--dumps", "dumps", _text),
)
BY_KEY: Final = {each.key: each for each in SETTINGS}
BY_FLAG: Final = {each.flag: each for each in SETTINGS}
_REMOVED: Final = "is of mode compat, which is removed: delete it"
REMOVED: Final[Mapping[str, str]] = {
    "resyncPeriod": f"{_REMOVED}, or in place of 0s write reservations: off",
    "resyncDetection": f"{_REMOVED}, or in place of Aggressive write foreign: all",
    "informer": _REMOVED,
    "compatStrict": _REMOVED,
    "--cache-resync-period": f"{_REMOVED}, or in place of 0s give --reservations off",
    "--cache-resync-detection": f"{_REMOVED}, or in place of Aggressive give --foreign all",
    "--informer": _REMOVED,
    "--compat-strict": _REMOVED,
}
"""Keys and flags of earlier versions, with what is said of them: names that are close to them mean something else."""
