"""What a MachineOSConfig's annotations ask for (BD-279, BD-285): knobs of our API that theirs has not, and rebuilds.

They are annotations, so that the fields that names are made of stay as they are. A wrong value is a Warning and the
default: a knob never keeps an operating system from being built.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from polyarch.builds.facts.problem import Problem
from polyarch.builds.machineos import vocabulary
from polyarch.durations import parse_duration
from polyarch.platforms import is_architecture, normal_architecture

SHORTEST_TIMEOUT: Final = 10.0


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """The values, or the defaults."""

    strategy: str = "Native"
    fail_fast: bool = False
    missing_containerfile: str = "Error"
    on_new_architecture: str = "Build"
    index: str = "Auto"
    node_wait: str = "15m"
    build_timeout: str = "1h"
    max_parallel: int = 0
    warnings: tuple[Problem, ...] = ()


class RebuildWish(msgspec.Struct, frozen=True):
    """A rebuild that is asked for; without architectures as BD-126 says."""

    architectures: tuple[str, ...] = ()


def knobs(config: str, annotations: Mapping[str, str]) -> Knobs:
    """The knobs of a MachineOSConfig, with a Warning for every value that is none."""
    values: dict[str, Any] = {}
    warnings: list[Problem] = []
    for annotation, (field, read, allowed) in _KNOBS.items():
        text = annotations.get(annotation)
        if text is None:
            continue
        value = read(text)
        if value is None:
            message = (
                f"MachineOSConfig {config}: annotation {annotation} is {text[:60]!r}; allowed: {allowed}. "
                "The default is used; correct or remove it."
            )
            warnings.append(Problem(reason="AnnotationInvalid", message=message, severity="Warning"))
        else:
            values[field] = value
    return Knobs(**values, warnings=tuple(warnings))


def rebuild(annotations: Mapping[str, str]) -> RebuildWish | None:
    """The rebuild that is asked for: of the architectures that are named, or of all where anything else is said."""
    text = annotations.get(vocabulary.REBUILD)
    if text is None:
        return None
    words = [each.strip() for each in text.split(",")]
    if not all(is_architecture(each) for each in words):
        return RebuildWish()
    return RebuildWish(tuple(sorted({normal_architecture(each) for each in words})))


def _one_of(*allowed: str) -> tuple[Callable[[str], str | None], str]:
    return lambda text: text if text in allowed else None, ", ".join(allowed)


def _duration(text: str) -> str | None:
    try:
        return text if parse_duration(text) >= SHORTEST_TIMEOUT else None
    except ValueError:
        return None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


_KNOBS: Final[Mapping[str, tuple[str, Callable[[str], Any], str]]] = {
    vocabulary.STRATEGY: ("strategy", *_one_of("Native", "PreferNative", "Emulated")),
    vocabulary.FAIL_FAST: ("fail_fast", lambda text: {"true": True, "false": False}.get(text), "true, false"),
    vocabulary.MISSING: ("missing_containerfile", *_one_of("Error", "BaseOnly")),
    vocabulary.ON_NEW: ("on_new_architecture", *_one_of("Build", "NextBuild")),
    vocabulary.INDEX: ("index", *_one_of("Auto", "Always", "Never")),
    vocabulary.NODE_WAIT: ("node_wait", _duration, "durations of at least 10s, such as 15m"),
    vocabulary.BUILD_TIMEOUT: ("build_timeout", _duration, "durations of at least 10s, such as 1h"),
    vocabulary.MAX_PARALLEL: ("max_parallel", _count, "whole numbers; 0 is no limit"),
}
"""Annotation → field, what reads it (None: not allowed), and what is allowed."""
