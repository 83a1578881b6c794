"""Official releases, served by a server of the test on loopback."""

import hashlib
import io
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tools.pins import published

from polyarch.sandbox import versions
from polyarch.sandbox import versions as pins
from polyarch.sandbox.binaries import DownloadFailed, OfficialReleases, Release, fetch, release
from polyarch.sandbox.errors import SilentStepProgress
from polyarch.sandbox.versions import NODE_PROGRAMS, PROGRAMS, of_version

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

    def put(self, path: str, content: bytes) -> str:
        """Its SHA-256."""
        self.files[path] = content
        return hashlib.sha256(content).hexdigest()

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


@pytest.mark.req("SB-002")
async def test_a_release_is_verified_and_becomes_executable(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    pinned = files.put("/etcd", PROGRAM)
    await fetch(session, Release(f"{base}/etcd", pinned), tmp_path / "etcd", SilentStepProgress())
    assert (tmp_path / "etcd").read_bytes() == PROGRAM
    assert (tmp_path / "etcd").stat().st_mode & 0o111
    assert [path.name for path in tmp_path.iterdir()] == ["etcd"]


@pytest.mark.req("SB-002")
async def test_an_archive_gives_the_program_in_it(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    pinned = files.put("/r.tar.gz", archive("registry"))
    wanted = Release(f"{base}/r.tar.gz", pinned, "registry")
    await fetch(session, wanted, tmp_path / "registry", SilentStepProgress())
    assert (tmp_path / "registry").read_bytes() == PROGRAM


@pytest.mark.req("SB-002")
async def test_a_file_with_another_checksum_never_gets_its_name(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    other = files.put("/etcd", PROGRAM)
    files.files["/etcd.sha256"] = other.encode()  # what the host says of itself counts for nothing
    with pytest.raises(DownloadFailed, match=r"SHA-256 is .* pinned is 0000"):
        await fetch(session, Release(f"{base}/etcd", "0" * 64), tmp_path / "etcd", SilentStepProgress())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("SB-002")
async def test_a_broken_off_download_goes_on_where_it_stopped(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    files, base = host
    pinned = files.put("/etcd", PROGRAM)
    (tmp_path / ".etcd.partial").write_bytes(PROGRAM[:5000])
    await fetch(session, Release(f"{base}/etcd", pinned), tmp_path / "etcd", SilentStepProgress())
    assert files.ranges == ["bytes=5000-"]
    assert (tmp_path / "etcd").read_bytes() == PROGRAM


@pytest.mark.req("SB-002")
async def test_a_missing_file_is_named_with_its_status(
    host: tuple[Host, str], session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    _, base = host
    with pytest.raises(DownloadFailed, match="/etcd: HTTP 404"):
        await fetch(session, Release(f"{base}/etcd", "0" * 64), tmp_path / "etcd", SilentStepProgress())


@pytest.mark.req("SB-002")
async def test_what_nobody_has_pinned_is_not_downloaded(tmp_path: Path) -> None:
    """Before, the host of a file said what the file has to be."""
    steps: list[str] = []
    progress = SilentStepProgress()
    progress.step = steps.append  # type: ignore[method-assign]
    releases = OfficialReleases(architecture="s390x", where=lambda program, _: Release("http://nowhere.test/x", ""))
    problems = await releases.provide(PROGRAMS, tmp_path, progress)
    assert set(problems.values()) == {
        f"no checksum of {program.version} is pinned for linux/s390x" for program in PROGRAMS
    }
    assert steps == []


@pytest.mark.req("SB-020")
def test_the_checksums_of_one_version_are_not_taken_for_another() -> None:
    usual, other = (
        {each.name: release(each, "amd64") for each in of} for of in (PROGRAMS, of_version(PROGRAMS, "1.30.14"))
    )
    assert other["kube-apiserver"].url.endswith("/v1.30.14/bin/linux/amd64/kube-apiserver")
    assert {name for name in usual if other[name].sha256} == {"etcd", "registry"}
    assert all(other[name] == usual[name] for name in ("etcd", "registry"))


@pytest.mark.req("SB-002")
async def test_a_host_that_cannot_be_reached_answers_for_all_its_files(tmp_path: Path, unused_tcp_port: int) -> None:
    def nowhere(program: object, architecture: str) -> Release:
        url = f"http://127.0.0.1:{unused_tcp_port}/file"
        return Release(url, "0" * 64)

    steps: list[str] = []
    progress = SilentStepProgress()
    progress.step = steps.append  # type: ignore[method-assign]
    problems = await OfficialReleases(where=nowhere).provide(PROGRAMS, tmp_path, progress)
    assert sorted(problems) == sorted(program.name for program in PROGRAMS)
    assert all("no connection to 127.0.0.1" in problem for problem in problems.values())
    assert len(steps) == 1, "only the first file was tried"


@pytest.mark.req("SB-002")
def test_checksums_are_pinned_for_the_versions_that_are_run() -> None:
    """Whoever changes a version pins its checksums (``python -m tools.pins``)."""
    assert pins.VERSIONS == (versions.KUBERNETES, versions.ETCD, versions.REGISTRY)
    assert pins.SHA256.keys() == {program.name for program in (*PROGRAMS, *NODE_PROGRAMS)}
    for checksums in pins.SHA256.values():
        assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in checksums.values())


@pytest.mark.req("SB-002")
@pytest.mark.parametrize("architecture", ["amd64", "arm64", "ppc64le", "s390x"])
def test_every_program_has_an_official_release(architecture: str) -> None:
    for program in PROGRAMS:
        wanted = release(program, architecture)
        assert wanted.url.startswith(("https://dl.k8s.io/", "https://github.com/"))
        assert architecture in wanted.url
        assert wanted.sha256 == pins.SHA256[program.name].get(architecture, "")


@pytest.mark.req("SB-002")
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
def test_published_checksums_are_read_in_both_forms(text: str, expected: str | None) -> None:
    assert published(text, "etcd.tar.gz") == expected
