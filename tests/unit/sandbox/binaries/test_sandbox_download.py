"""Official releases (SB-002), served by a server of the test on loopback."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from polyarch.sandbox.binaries.download import DownloadFailed, OfficialReleases, Release, fetch, parse_checksum, release
from polyarch.sandbox.binaries.versions import PROGRAMS
from polyarch.sandbox.progress import Silent

PROGRAM = b"\x7fELF a program" * 1000


def archive(member: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo(member)
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return packed.getvalue()


class Host:
    """A download host: files by path, and the ranges it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str] = []

    def put(self, path: str, content: bytes, checksum: str | None = None) -> None:
        self.files[path] = content
        self.files[f"{path}.sha256"] = (checksum or hashlib.sha256(content).hexdigest()).encode()

    async def serve(self, request: web.Request) -> web.Response:
        content = self.files.get(request.path)
        if content is None:
            return web.Response(status=404)
        asked = request.headers.get("Range", "")
        if not asked:
            return web.Response(body=content)
        self.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start >= len(content):
            return web.Response(status=416)
        return web.Response(status=206, body=content[start:])


@pytest.fixture
async def host() -> AsyncIterator[tuple[Host, str]]:
    host = Host()
    application = web.Application()
    application.router.add_get("/{path:.*}", host.serve)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server()
    yield host, f"http://127.0.0.1:{server.port}"
    await server.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_sb_002_a_release_is_verified_and_becomes_executable(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    files.put("/etcd", PROGRAM)
    await fetch(session, Release(f"{base}/etcd", f"{base}/etcd.sha256"), tmp_path / "etcd", Silent())
    assert (tmp_path / "etcd").read_bytes() == PROGRAM
    assert (tmp_path / "etcd").stat().st_mode & 0o111
    assert [path.name for path in tmp_path.iterdir()] == ["etcd"]


async def test_sb_002_an_archive_gives_the_program_in_it(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    files.put("/r.tar.gz", archive("registry"))
    wanted = Release(f"{base}/r.tar.gz", f"{base}/r.tar.gz.sha256", "registry")
    await fetch(session, wanted, tmp_path / "registry", Silent())
    assert (tmp_path / "registry").read_bytes() == PROGRAM


async def test_sb_002_a_file_with_another_checksum_never_gets_its_name(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    files.put("/etcd", PROGRAM, checksum="0" * 64)
    with pytest.raises(DownloadFailed, match=r"SHA-256 is .* published is 0000"):
        await fetch(session, Release(f"{base}/etcd", f"{base}/etcd.sha256"), tmp_path / "etcd", Silent())
    assert list(tmp_path.iterdir()) == []


async def test_sb_002_a_broken_off_download_goes_on_where_it_stopped(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    files.put("/etcd", PROGRAM)
    (tmp_path / ".etcd.partial").write_bytes(PROGRAM[:5000])
    await fetch(session, Release(f"{base}/etcd", f"{base}/etcd.sha256"), tmp_path / "etcd", Silent())
    assert files.ranges == ["bytes=5000-"]
    assert (tmp_path / "etcd").read_bytes() == PROGRAM


@pytest.mark.parametrize("missing", ["/etcd", "/etcd.sha256"])
async def test_sb_002_a_missing_file_is_named_with_its_status(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path, missing: str
) -> None:
    files, base = host
    files.put("/etcd", PROGRAM)
    del files.files[missing]
    with pytest.raises(DownloadFailed, match=rf"{missing}: HTTP 404"):
        await fetch(session, Release(f"{base}/etcd", f"{base}/etcd.sha256"), tmp_path / "etcd", Silent())


async def test_sb_002_a_host_that_cannot_be_reached_answers_for_all_its_files(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    def nowhere(program: object, architecture: str) -> Release:
        url = f"http://127.0.0.1:{unused_tcp_port}/file"
        return Release(url, f"{url}.sha256")

    steps: list[str] = []
    progress = Silent()
    progress.step = steps.append  # type: ignore[method-assign]
    problems = await OfficialReleases(where=nowhere).provide(PROGRAMS, tmp_path, progress)
    assert sorted(problems) == sorted(program.name for program in PROGRAMS)
    assert all("no connection to 127.0.0.1" in problem for problem in problems.values())
    assert len(steps) == 1, "only the first file was tried"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("A" * 64, "a" * 64, id="the digest alone"),
        pytest.param(f"{'b' * 64}  other\n{'c' * 64}  etcd.tar.gz\n", "c" * 64, id="a list"),
        pytest.param(f"{'d' * 64} *etcd.tar.gz\n", "d" * 64, id="binary mark"),
        pytest.param("<html>not found</html>", None, id="a page"),
        pytest.param(f"{'e' * 64}  other\n", None, id="another file's"),
        pytest.param(f"{'e' * 63}\n", None, id="too short"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_sb_002_checksum_files_are_read_in_both_forms(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(DownloadFailed, match=r"no SHA-256 of etcd\.tar\.gz"):
            parse_checksum(text, "etcd.tar.gz", "https://host/sums")
    else:
        assert parse_checksum(text, "etcd.tar.gz", "https://host/sums") == expected


@pytest.mark.parametrize("architecture", ["amd64", "arm64", "ppc64le", "s390x"])
def test_sb_002_every_program_has_an_official_release_with_a_checksum(architecture: str) -> None:
    for program in PROGRAMS:
        wanted = release(program, architecture)
        assert wanted.url.startswith(("https://dl.k8s.io/", "https://github.com/"))
        assert architecture in wanted.url
        assert wanted.checksum_url.startswith(wanted.url.rpartition("/")[0])
