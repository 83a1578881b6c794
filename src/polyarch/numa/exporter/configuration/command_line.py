"""Words of a command line → the flags that were given, as Go's programs take them (NE-132).

``--flag``, ``--flag=value`` and ``--flag value``; ``-v 4``, ``-v=4`` and ``-v4``; one hyphen does as well as two. A
word that is no flag is the configuration root, of which there is at most one (NE-130). Pure.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from polyarch.numa.exporter.configuration.flags import (
    ALLOW_CONFIG_ROOT,
    FLAGS,
    REFERENCE_CONTAINER,
    VERBOSITY,
    VERSION,
    Flag,
)
from polyarch.numa.exporter.configuration.invalid import InvalidConfiguration, Unusable
from polyarch.numa.exporter.configuration.kinds import Boolean, Kind
from polyarch.numa.exporter.configuration.settings_table import REFERENCE

_SWITCH = Boolean()


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed."""

    values: Mapping[str, Any] = {}
    """By the key of the setting; what is not here was not given."""
    others: Mapping[str, str] = {}
    """Flags about the configuration itself."""
    switches: frozenset[str] = frozenset()
    """Those of them without a value that are on."""
    allowed_roots: tuple[str, ...] = ()
    root: str | None = None


def parse(words: Sequence[str]) -> Given:
    """Raises ``InvalidConfiguration`` for a word that cannot be taken. Of a flag that is repeated the last one counts,
    except for ``--allow-config-root``."""
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    switches: set[str] = set()
    allowed: list[str] = []
    roots: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            roots += rest
            break
        if not word.startswith("-") or word == "-":
            roots.append(word)
            continue
        flag, text = _flag(word)
        if text is None:
            text = _following(flag, rest)
        if flag.kind is not None:
            values[flag.key] = _read(flag.name, flag.kind, text)
        elif flag.name == REFERENCE_CONTAINER:
            values.update(_reference(text))
        elif flag.name == ALLOW_CONFIG_ROOT:
            allowed.append(text)
        elif not flag.is_switch:
            others[flag.name] = text
        elif _read(flag.name, _SWITCH, text):
            switches.add(flag.name)
        else:
            switches.discard(flag.name)
    if len(roots) > 1:
        raise InvalidConfiguration(
            f"{roots[1]}: too many arguments: there is one directory of configuration, and {roots[0]} was given"
        )
    return Given(
        values=values,
        others=others,
        switches=frozenset(switches),
        allowed_roots=tuple(allowed),
        root=roots[0] if roots else None,
    )


def asks_for_version(words: Sequence[str]) -> bool:
    """Whether nothing else is wanted, however wrong the configuration may be."""
    return VERSION in parse(words).switches


def _flag(word: str) -> tuple[Flag, str | None]:
    """The flag that the word names, and its value if that is in the same word."""
    name, equals, value = word.partition("=")
    bare = name.lstrip("-")
    known = VERBOSITY if bare == "v" else f"--{bare}"
    if (flag := FLAGS.get(known)) is not None and len(name) - len(bare) <= 2:
        return flag, value if equals else None
    if not equals and word.startswith(VERBOSITY) and word[len(VERBOSITY) :].isdecimal():
        return FLAGS[VERBOSITY], word[len(VERBOSITY) :]
    close = get_close_matches(known, FLAGS, n=1)
    instead = f"did you mean {close[0]}?" if close else "polyarch run numa-exporter --help lists them"
    raise InvalidConfiguration(f"{name}: unknown flag; {instead}")


def _following(flag: Flag, rest: list[str]) -> str:
    """The value of a flag that has none in its own word."""
    if flag.is_switch:
        return rest.pop(0) if rest and rest[0] in ("true", "false") else "true"
    if not rest:
        raise InvalidConfiguration(f"{flag.name}: a value is missing; write {flag.name} {flag.placeholder}")
    return rest.pop(0)


def _read(name: str, kind: Kind, text: str) -> Any:
    try:
        return kind.of_text(text)
    except Unusable as error:
        raise InvalidConfiguration(f"{name}: {error}") from None


def _reference(text: str) -> dict[str, str]:
    """``namespace/pod/container``; an empty one is none."""
    parts = text.split("/") if text else ["", "", ""]
    if len(parts) != len(REFERENCE) or (text and not all(parts)):
        raise InvalidConfiguration(f"{REFERENCE_CONTAINER}: {text!r} is not namespace/pod/container")
    return dict(zip(REFERENCE, parts, strict=True))
