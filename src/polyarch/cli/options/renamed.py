"""Options by their earlier names, which are understood for one release with a word about the new one.

The words of a command line are rewritten before anybody else reads them, so that a command knows the new names alone.
"""

from collections.abc import Callable, Mapping, Sequence

RENAMED: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("inspect",): {"--file": "--from-file", "-f": "--from-file", "--jobs": "--concurrency"},
}
"""Command → earlier name → name."""


def with_new_names(words: Sequence[str], warn: Callable[[str], None]) -> list[str]:
    """The command line with the names of today; ``warn`` is told once of each that was replaced."""
    found = next((names for command, names in RENAMED.items() if tuple(words[: len(command)]) == command), None)
    if found is None:
        return list(words)
    end = words.index("--") if "--" in words else len(words)
    result: list[str] = []
    told: set[str] = set()
    for word in words[:end]:
        name, equals, value = word.partition("=")
        new = found.get(name)
        if new is not None and name not in told:
            told.add(name)
            warn(f"{name} is deprecated: use {new}")
        result.append(f"{new}{equals}{value}" if new is not None else word)
    return [*result, *words[end:]]
