"""Download of official releases: Kubernetes from dl.k8s.io, etcd and the registry from GitHub (SB-002).

Each file's SHA-256 is checked against the pinned one (``pins.py``) before it gets its final name; a file without a pin
is not downloaded. Offline, this fails within seconds: connecting times out after three, and one failed connection
stands for all files of that host. An interrupted download is resumed.
"""

import asyncio
import hashlib
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from polyarch.sandbox.binaries import pins, versions
from polyarch.sandbox.binaries.versions import Module, Program
from polyarch.sandbox.progress import Progress

CONNECT_SECONDS = 3.0
STALL_SECONDS = 10.0
CHUNK_BYTES = 1 << 20


class Release(msgspec.Struct, frozen=True):
    """One file to download: the program itself, or an archive that contains it as ``member``."""

    url: str
    sha256: str
    """Empty: not pinned."""
    member: str = ""

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]


def release(program: Program, architecture: str) -> Release:
    """URL and pinned checksum of a program's release for linux on this architecture."""
    sha256 = pins.SHA256[program.name].get(architecture, "")
    match program.module:
        case Module.KUBERNETES:
            base = f"https://dl.k8s.io/release/v{versions.KUBERNETES}"
            return Release(f"{base}/bin/linux/{architecture}/{program.name}", sha256)
        case Module.ETCD:
            base = f"https://github.com/etcd-io/etcd/releases/download/v{versions.ETCD}"
            stem = f"etcd-v{versions.ETCD}-linux-{architecture}"
            return Release(f"{base}/{stem}.tar.gz", sha256, f"{stem}/etcd")
        case Module.REGISTRY:
            base = f"https://github.com/distribution/distribution/releases/download/v{versions.REGISTRY}"
            return Release(f"{base}/registry_{versions.REGISTRY}_linux_{architecture}.tar.gz", sha256, "registry")


class DownloadFailed(Exception):  # noqa: N818  named for what happened
    """A download failed; ``unreachable`` means that no connection to its host was possible."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class OfficialReleases:
    """A source of programs: downloads with checksums."""

    def __init__(self, *, architecture: str = "", where: Callable[[Program, str], Release] = release) -> None:
        self._architecture = architecture or versions.host_architecture()
        self._where = where

    @property
    def description(self) -> str:
        return "the official releases (dl.k8s.io, github.com)"

    async def provide(self, programs: Sequence[Program], folder: Path, progress: Progress) -> dict[str, str]:
        """Download what can be downloaded; return the reason for each program that could not."""
        problems: dict[str, str] = {}
        unreachable: dict[str, str] = {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
            for program in programs:
                wanted = self._where(program, self._architecture)
                host = urlsplit(wanted.url).netloc
                if not wanted.sha256:
                    problems[program.name] = f"no checksum is pinned for linux/{self._architecture}"
                    continue
                if host in unreachable:
                    problems[program.name] = unreachable[host]
                    continue
                try:
                    await fetch(session, wanted, folder / program.name, progress)
                except DownloadFailed as error:
                    problems[program.name] = str(error)
                    if error.unreachable:
                        unreachable[host] = str(error)
        return problems


async def fetch(session: aiohttp.ClientSession, wanted: Release, target: Path, progress: Progress) -> None:
    """Download, verify and unpack one release; ``target`` appears only when it is complete."""
    progress.step(f"downloading {wanted.url}")
    try:
        partial = target.with_name(f".{wanted.file_name}.partial")
        await _download(session, wanted.url, partial, progress)
    except TimeoutError as error:
        raise DownloadFailed(f"{wanted.url}: no answer after {STALL_SECONDS:.0f} s", unreachable=True) from error
    except aiohttp.ClientConnectorError as error:
        raise DownloadFailed(f"no connection to {error.host}: {error.os_error}", unreachable=True) from error
    except aiohttp.ClientError as error:
        raise DownloadFailed(f"{wanted.url}: {type(error).__name__}: {error}") from error
    await asyncio.to_thread(_install, partial, wanted, target)


async def _download(session: aiohttp.ClientSession, url: str, partial: Path, progress: Progress) -> None:
    present = await asyncio.to_thread(_size, partial)
    headers = {"Range": f"bytes={present}-"} if present else {}
    async with session.get(url, headers=headers) as answer:
        if answer.status == 416:  # the file is complete already; the checksum decides whether it is right
            return
        if answer.status not in {200, 206}:
            raise DownloadFailed(f"{url}: HTTP {answer.status}")
        resumed = answer.status == 206
        done = present if resumed else 0
        total = done + (answer.content_length or 0) if answer.content_length else 0
        with partial.open("ab" if resumed else "wb") as file:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                progress.advance(done, total, "bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _install(partial: Path, wanted: Release, target: Path) -> None:
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted.sha256:
        partial.unlink()
        raise DownloadFailed(f"{wanted.url}: SHA-256 is {found}, pinned is {wanted.sha256}; the file was deleted")
    program = partial
    if wanted.member:
        program = target.with_name(f".{target.name}.unpacked")
        with tarfile.open(partial) as archive:
            try:
                content = archive.extractfile(wanted.member)
            except KeyError:
                content = None
            if content is None:
                raise DownloadFailed(f"{wanted.url}: the archive does not contain {wanted.member}")
            with program.open("wb") as file:
                while chunk := content.read(CHUNK_BYTES):
                    file.write(chunk)
        partial.unlink()
    program.chmod(0o755)
    program.replace(target)
