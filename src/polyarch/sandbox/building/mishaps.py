"""What a build in the sandbox is asked for besides its image: to fail, to be evicted, to take its time (BD-391). Pure.

The build argument ``SANDBOX_BUILD`` says it, so that every architecture can have its own by an override:

    exit=2            end with this exit code
    exit=1*2          the same, in the first two attempts only
    evict             be evicted by the node, the first time
    vanish            succeed, and have the pod deleted before anybody reads its result
    architecture=s390x   build for another architecture than asked for
    layout            leave a blob out of the layout
    seconds=20        take so long

Several are separated by commas.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

ARGUMENT: Final = "SANDBOX_BUILD"
_WISH: Final = re.compile(r"(?P<name>[a-z]+)(?:=(?P<value>[a-z0-9.]+))?(?:\*(?P<times>[0-9]{1,3}))?")
_ONCE: Final = ("evict", "vanish")
"""These happen in the first attempt only, unless ``*N`` says otherwise: else their Job would never end."""
MAXIMUM_SECONDS: Final = 3600.0


class UnknownMishap(ValueError):  # noqa: N818 - what is wrong
    """The argument's text is none of those above; the text is the message."""


class Mishaps(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt is asked for."""

    exit: int | None = None
    evict: bool = False
    vanish: bool = False
    architecture: str = ""
    layout: bool = False
    seconds: float | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, str], attempt: int = 0) -> "Mishaps":
        """From the build's arguments, for the attempt of this number, from 0. Raises UnknownMishap."""
        return read(arguments.get(ARGUMENT, ""), attempt)


def read(text: str, attempt: int) -> Mishaps:
    found: dict[str, object] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _WISH.fullmatch(part)
        if match is None:
            raise _unknown(part)
        name, value = match["name"], match["value"]
        times = match["times"] or ("1" if name in _ONCE else None)
        meant = _value(name, value)
        if meant is None:
            raise _unknown(part)
        if times is None or attempt < int(times):
            found[name] = meant
    return msgspec.convert(found, Mishaps)


def counts(text: str) -> bool:
    """Whether the number of the attempt matters."""
    return "*" in text or any(name in text for name in _ONCE)


def _value(name: str, value: str | None) -> object:
    """None: it cannot be meant."""
    match name:
        case "exit" if value is not None and value.isdigit() and 0 < int(value) < 256:
            return int(value)
        case "architecture" if value is not None and re.fullmatch(r"[a-z0-9]{2,16}", value):
            return value
        case "seconds" if value is not None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
            return min(float(value), MAXIMUM_SECONDS)
        case "evict" | "vanish" | "layout" if value is None:
            return True
        case _:
            return None


def _unknown(part: str) -> UnknownMishap:
    return UnknownMishap(
        f"{ARGUMENT}: {part!r} is not known; expected exit=CODE, evict, vanish, architecture=ARCH, layout or "
        "seconds=N, several separated by commas, each with *N for the first N attempts only"
    )
