"""Selects the files of a directory tree by path.

These rules apply to files found in directories; a file named on the command line is always checked.

Pure: the command line walks and reads.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
SKIPPED_DIRECTORIES = frozenset({"node_modules", "vendor"})

_GLOB = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]")


def is_manifest(path: str) -> bool:
    """Whether a file found in a directory may hold manifests."""
    return path.endswith(MANIFEST_SUFFIXES)


def is_skipped_directory(name: str) -> bool:
    """Whether a directory is vendored or hidden, such as ``.git``; never the directory that was named."""
    return name in SKIPPED_DIRECTORIES or (name.startswith(".") and name not in (".", ".."))


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path (relative, with ``/``) or a directory above it matches one of the globs of ``--ignore-path``.

    ``*`` and ``?`` stay within one name, ``**`` spans directories. A pattern without ``/`` matches a name anywhere, as
    in ``.gitignore``; a trailing ``/`` changes nothing.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    for pattern in patterns:
        glob = pattern.removeprefix("./").strip("/")
        wanted = places if "/" in glob else parts
        if glob and any(_expression(glob).fullmatch(place) for place in wanted):
            return True
    return False


@lru_cache(maxsize=256)
def _expression(glob: str) -> re.Pattern[str]:
    found, at = [], 0
    for match in _GLOB.finditer(glob):
        found += [re.escape(glob[at : match.start()]), _translated(match[0])]
        at = match.end()
    return re.compile("".join([*found, re.escape(glob[at:])]))


def _translated(sign: str) -> str:
    match sign:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    return f"[^{re.escape(sign[2:-1])}]" if sign.startswith("[!") else f"[{_members(sign[1:-1])}]"


def _members(characters: str) -> str:
    return re.escape(characters).replace(r"\-", "-")
