"""Options whose value may be left out: ``--rebuild`` is ``--rebuild=``, and never takes the next word for its value.

The words of a command line are rewritten before the parser reads them: to it an option has a value, or has none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

VALUELESS: Final[Mapping[tuple[str, ...], frozenset[str]]] = {("build", "run"): frozenset({"--rebuild"})}
"""Command → its options."""


def valueless(words: Sequence[str]) -> frozenset[str]:
    """Those of the command that the words name."""
    return next((each for command, each in VALUELESS.items() if tuple(words[: len(command)]) == command), frozenset())


def with_values(words: Sequence[str]) -> list[str]:
    """The words with an empty value where none was given."""
    options = valueless(words)
    end = words.index("--") if "--" in words else len(words)
    return [f"{word}=" if word in options and at < end else word for at, word in enumerate(words)]
