"""Search for the sandbox's programs (SB-002).

Each program is looked for in ``--assets DIR``, then ``KUBEBUILDER_ASSETS``, then our cache; then it is downloaded from
its project's host, and if that fails built from the pinned Go modules. It appears in the cache under its name only when
it is complete. Of two processes that need the same program, one provides it while the other waits.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from polyarch.sandbox.binaries.download import OfficialReleases
from polyarch.sandbox.binaries.go_build import GoBuild
from polyarch.sandbox.binaries.versions import GO, PROGRAMS, Program, cache_key
from polyarch.sandbox.errors import BinariesUnavailable
from polyarch.sandbox.locks import file_lock
from polyarch.sandbox.progress import Progress, Silent


class Source(Protocol):
    """A way to provide programs: a download or a build."""

    @property
    def description(self) -> str:
        """What this source is, for the list of what was tried."""

    async def provide(self, programs: Sequence[Program], folder: Path, progress: Progress) -> dict[str, str]:
        """Put programs into ``folder`` under their names; return the reason for each that failed."""


def cache_home(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/polyarch/sandbox``."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".cache"
    return Path(base) / "polyarch" / "sandbox"


def usable(path: Path) -> bool:
    """Whether the file exists, is not empty and is executable."""
    return path.is_file() and path.stat().st_size > 0 and os.access(path, os.X_OK)


def given_folders(assets: str, environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    """(option, folder) for each folder that the user named; a missing folder is an error, not skipped."""
    given = [("--assets", assets), ("KUBEBUILDER_ASSETS", environ.get("KUBEBUILDER_ASSETS", ""))]
    folders = [(option, Path(value).expanduser()) for option, value in given if value]
    for option, folder in folders:
        if not folder.is_dir():
            raise BinariesUnavailable(
                f"{option} names {folder}, which is not a folder; give one that holds {_names(PROGRAMS)}"
            )
    return folders


def default_sources(environ: Mapping[str, str]) -> list[Source]:
    """Download before build: it takes seconds instead of minutes."""
    return [OfficialReleases(), GoBuild(tools=cache_home(environ) / f"go-{GO}", environ=environ)]


async def find(
    *,
    assets: str = "",
    environ: Mapping[str, str] = os.environ,
    progress: Progress | None = None,
    sources: Sequence[Source] | None = None,
) -> dict[str, Path]:
    """The path of each program, by name; downloads or builds missing ones. BinariesUnavailable lists the attempts."""
    progress = progress or Silent()
    tried: list[str] = []
    found: dict[str, Path] = {}
    for option, folder in given_folders(assets, environ):
        found = _look(folder) | found
        tried.append(_outcome(f"{option} ({folder})", {p.name: "not there" for p in PROGRAMS if p.name not in found}))
    cache = cache_home(environ) / cache_key()
    found = _look(cache) | found
    if not _missing(found):
        return found
    tried.append(_outcome(f"the cache ({cache})", {program.name: "not there" for program in _missing(found)}))

    def wait() -> None:
        progress.step(f"waiting for another process that fetches the binaries into {cache}")

    async with file_lock(cache / ".lock", waiting=wait):
        found = _look(cache) | found
        for source in default_sources(environ) if sources is None else sources:
            if missing := _missing(found):
                problems = await source.provide(missing, cache, progress)
                tried.append(_outcome(source.description, problems))
                found = _look(cache) | found
    if missing := _missing(found):
        raise BinariesUnavailable(_explain(missing, tried, cache))
    return found


def _look(folder: Path) -> dict[str, Path]:
    return {program.name: folder / program.name for program in PROGRAMS if usable(folder / program.name)}


def _missing(found: Mapping[str, Path]) -> list[Program]:
    return [program for program in PROGRAMS if program.name not in found]


def _names(programs: Sequence[Program]) -> str:
    return ", ".join(program.name for program in programs)


def _outcome(description: str, problems: Mapping[str, str]) -> str:
    """One line per reason, with the programs that it applies to."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in problems.items():
        by_reason.setdefault(reason, []).append(name)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return f"{description}\n" + "\n".join(f"      {line}" for line in lines)


def _explain(missing: Sequence[Program], tried: Sequence[str], cache: Path) -> str:
    attempts = "\n".join(f"  {number}. {text}" for number, text in enumerate(tried, 1))
    return (
        f"no binaries for {_names(missing)}. Tried, in order:\n{attempts}\n"
        "To provide them, any one of:\n"
        f"  - put them into a folder and give it with --assets DIR, or put them into {cache}\n"
        "  - install Go 1.26 or newer and let it reach a module proxy (GOPROXY), then run `polyarch sandbox fetch`\n"
        "  - run `polyarch sandbox fetch` on a machine with network access and copy its cache folder here"
    )
