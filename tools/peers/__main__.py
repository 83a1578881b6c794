"""``python -m tools.peers [--long | NAME …]``: bring what is missing, with progress, and say what is there.

An interrupted build goes on where it stopped, and of two processes one builds while the other waits. skopeo is
installed where nobody has to be asked: as root, in continuous integration. A peer that could not be had is no failure
here: who needs it says so (a test that misses it fails in continuous integration, elsewhere it is skipped by name).
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from tools.peers.catalogue import (
    BY_NAME,
    PEERS,
    Absent,
    Found,
    Origin,
    Peer,
    continuous_integration,
    folder,
    found,
    installer,
    pinned,
    remember,
)

from polyarch.cli.output.messages import Messages
from polyarch.cli.sandbox.local_cluster import shown
from polyarch.sandbox.binaries import BuildTarget, GoBuild, cache_home
from polyarch.sandbox.errors import StepProgress
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.versions import GO

INSTALL_SECONDS = 300


async def provide(wanted: Sequence[Peer], progress: StepProgress, environ: Mapping[str, str] = os.environ) -> None:
    """Build and install what is missing of these; what could not be had is remembered with its reason."""
    if not _missing(wanted, environ):
        return

    def wait() -> None:
        progress.step(f"another process is building peers into {folder(environ)}: waiting for it")

    async with file_lock(folder(environ) / ".lock", waiting=wait):
        missing = _missing(wanted, environ)
        problems: dict[str, str] = {}
        built = [peer for peer in missing if peer.origin is Origin.GO]
        for source in dict.fromkeys(peer.source for peer in built):
            wanted_here = [peer for peer in built if peer.source == source]
            targets = [
                BuildTarget(peer.name, pinned(peer), source, peer.package, tags=peer.tags) for peer in wanted_here
            ]
            programs = folder(environ, source)
            programs.mkdir(parents=True, exist_ok=True)
            build = GoBuild(tools=cache_home(environ) / f"go-{GO}", environ=environ)
            problems |= await build.build(targets, programs, progress)
        for peer in missing:
            if peer.origin is Origin.SYSTEM and continuous_integration(environ) and (program := installer(environ)):
                problems |= await _install(program, peer, progress)
        remember(problems, environ)


def _missing(wanted: Sequence[Peer], environ: Mapping[str, str]) -> list[Peer]:
    return [peer for peer in wanted if isinstance(found(peer.name, environ), Absent)]


async def _install(program: str, peer: Peer, progress: StepProgress) -> dict[str, str]:
    """Installs its package; returns why not, by name."""
    package = peer.package or peer.name
    progress.step(f"installing {package} with {program}")
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
        process = await asyncio.create_subprocess_exec(
            program,
            *("-q", *arguments),
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(INSTALL_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            return {peer.name: f"`apt-get {' '.join(arguments)}` did not end within {INSTALL_SECONDS} s"}
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if process.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            return {peer.name: f"`apt-get {' '.join(arguments)}` ended with {process.returncode}: {''.join(last)}"}
    return {}


def _line(peer: Peer) -> str:
    match found(peer.name):
        case Found(program, version):
            return f"  {peer.name} {version}\t{program}"
        case Absent(why, excused):
            needed = continuous_integration() and not excused
            return f"  {peer.name} is not there{', and has to be' if needed else ''}: {why}"


def main(names: Sequence[str]) -> int:
    everything = list(names) == ["--long"]
    unknown = [] if everything else sorted(set(names) - BY_NAME.keys())
    if unknown:
        print(f"no peer is called {', '.join(unknown)}; there are {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    wanted = [peer for peer in PEERS if everything or (peer.name in names if names else not peer.long)]
    try:
        with shown(Messages()) as progress:
            asyncio.run(provide(wanted, progress))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    for peer in wanted:
        print(_line(peer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
