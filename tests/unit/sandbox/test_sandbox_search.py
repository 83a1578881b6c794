"""Where programs come from, with sources that are functions of the test."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from polyarch.operator.settings import OLDEST_KUBERNETES
from polyarch.sandbox import binaries, versions
from polyarch.sandbox.binaries import MODULES
from polyarch.sandbox.errors import BinariesUnavailable, StepProgress
from polyarch.sandbox.versions import PROGRAMS, Module, Program, emulated_node_programs, of_version

NAMES = [program.name for program in PROGRAMS]


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


class Steps:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def step(self, text: str) -> None:
        self.texts.append(text)

    def advance(self, done: int, total: int, detail: str = "") -> None:
        self.texts.append(f"{done}/{total}")


class Gives:
    """A source that has some programs."""

    def __init__(self, *names: str, description: str = "a source", seconds: float = 0.0) -> None:
        self.names = names
        self.description = description
        self.seconds = seconds
        self.asked: list[list[str]] = []

    async def provide(self, programs: Sequence[Program], folder: Path, progress: StepProgress) -> dict[str, str]:
        self.asked.append([program.name for program in programs])
        progress.step(self.description)
        await asyncio.sleep(self.seconds)
        put(folder, *self.names)
        return {program.name: "it has no such thing" for program in programs if program.name not in self.names}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


@pytest.mark.req("SB-001")
@pytest.mark.parametrize(
    ("module", "required", "version"),
    [
        (Module.KUBERNETES, "k8s.io/kubernetes", versions.KUBERNETES),
        (Module.ETCD, "go.etcd.io/etcd/server/v3", versions.ETCD),
        (Module.REGISTRY, "github.com/distribution/distribution/v3", versions.REGISTRY),
        (Module.CONTAINERD, "github.com/containerd/containerd/v2", versions.CONTAINERD),
    ],
)
def test_what_is_downloaded_is_what_the_go_modules_build(module: Module, required: str, version: str) -> None:
    text = (MODULES / module.value / "go.mod").read_text()
    assert re.search(rf"^\s*(require )?{re.escape(required)} v{re.escape(version)}(\s|$)", text, re.MULTILINE)


@pytest.mark.req("SB-020")
@pytest.mark.parametrize(("minor", "version"), versions.KUBERNETES_BY_MINOR.items(), ids=versions.KUBERNETES_BY_MINOR)
def test_each_version_of_kubernetes_has_a_module_of_that_version(minor: str, version: str) -> None:
    module, *others = {each.folder for each in of_version(PROGRAMS, version) if each.module is Module.KUBERNETES}
    assert others == []
    text = (MODULES / module / "go.mod").read_text()
    assert re.findall(r"^\s*(?:require )?k8s.io/kubernetes (\S+)", text, re.MULTILINE) == [f"v{version}"]
    of_staging = set(re.findall(r"^\s*k8s.io/\S+ => k8s.io/\S+ (\S+)", text, re.MULTILINE))
    assert of_staging == {f"v0.{version.removeprefix('1.')}"}
    assert versions.kubernetes_version(minor) == version
    for program in of_version(PROGRAMS, version):
        assert program.module is not Module.KUBERNETES or program.package in text


@pytest.mark.req("SB-020")
def test_the_oldest_version_that_can_be_run_is_the_oldest_that_is_supported() -> None:
    assert next(iter(versions.KUBERNETES_BY_MINOR)) == ".".join(map(str, OLDEST_KUBERNETES))


@pytest.mark.req("SB-001")
def test_every_tool_of_the_go_modules_is_a_program_of_ours() -> None:
    for program in (*PROGRAMS, *emulated_node_programs("arm64")):
        module = (MODULES / program.module.value / "go.mod").read_text()
        assert program.package == "." or program.package in module


@pytest.mark.req("SB-020")
async def test_another_version_is_looked_for_alone_and_shares_what_is_not_of_kubernetes(
    environ: dict[str, str],
) -> None:
    """An API server of the usual version in the place of an older one would make every test of that one worthless."""
    usual = binaries.cache_home(environ) / versions.cache_key()
    put(usual, *NAMES)
    source = Gives(*NAMES)
    found = await binaries.find(programs=of_version(PROGRAMS, "1.30.14"), environ=environ, sources=[source])
    of_kubernetes = [program.name for program in PROGRAMS if program.module is Module.KUBERNETES]
    assert source.asked == [of_kubernetes]
    assert {found[name].parent for name in ("etcd", "registry")} == {usual}
    assert {found[name].parent.name for name in of_kubernetes} == {versions.cache_key(kubernetes="1.30.14")}
    assert await binaries.find(programs=of_version(PROGRAMS, "1.30.14"), environ=environ, sources=[]) == found
    assert {path.parent for path in (await binaries.find(environ=environ, sources=[])).values()} == {usual}


@pytest.mark.req("SB-020")
async def test_who_lacks_another_version_is_told_how_to_fetch_it(environ: dict[str, str]) -> None:
    put(binaries.cache_home(environ) / versions.cache_key(), *NAMES)
    with pytest.raises(BinariesUnavailable, match=r"`polyarch sandbox fetch --kubernetes 1\.33`"):
        await binaries.find(programs=of_version(PROGRAMS, "1.33.13"), environ=environ, sources=[])


@pytest.mark.req("SB-002")
def test_another_version_or_architecture_has_another_cache() -> None:
    assert versions.cache_key("amd64") != versions.cache_key("s390x")
    assert versions.KUBERNETES in versions.cache_key()
    assert versions.host_architecture("aarch64") == "arm64"
    assert versions.host_architecture("sparc64") == "sparc64"


@pytest.mark.req("SB-002")
async def test_assets_win_over_the_cache_and_nothing_is_fetched(tmp_path: Path, environ: dict[str, str]) -> None:
    put(tmp_path / "assets", *NAMES)
    put(binaries.cache_home(environ) / versions.cache_key(), *NAMES)
    source = Gives()
    found = await binaries.find(assets=str(tmp_path / "assets"), environ=environ, sources=[source])
    assert {path.parent for path in found.values()} == {tmp_path / "assets"}
    assert source.asked == []


@pytest.mark.req("SB-002")
async def test_kubebuilder_assets_give_what_they_have_and_the_cache_the_rest(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    put(tmp_path / "kubebuilder", "etcd", "kube-apiserver")
    cache = binaries.cache_home(environ) / versions.cache_key()
    put(cache, *NAMES)
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "kubebuilder")
    found = await binaries.find(environ=environ, sources=[])
    assert found["etcd"].parent == tmp_path / "kubebuilder"
    assert found["kube-scheduler"].parent == cache


@pytest.mark.req("SB-002")
async def test_what_the_first_source_cannot_give_the_next_one_is_asked_for(environ: dict[str, str]) -> None:
    first, second = Gives("etcd"), Gives(*NAMES)
    found = await binaries.find(environ=environ, sources=[first, second])
    assert first.asked == [NAMES]
    assert second.asked == [[name for name in NAMES if name != "etcd"]]
    assert sorted(found) == sorted(NAMES)


@pytest.mark.req("SB-002")
async def test_an_interrupted_fetch_goes_on_where_it_stopped(environ: dict[str, str]) -> None:
    with pytest.raises(BinariesUnavailable):
        await binaries.find(environ=environ, sources=[Gives("etcd", "registry")])
    later = Gives(*NAMES)
    await binaries.find(environ=environ, sources=[later])
    assert later.asked == [["kube-apiserver", "kube-controller-manager", "kube-scheduler"]]


@pytest.mark.req("SB-002")
async def test_of_two_that_need_the_same_one_fetches_and_the_other_waits(environ: dict[str, str]) -> None:
    one, other, steps = Gives(*NAMES, seconds=0.3), Gives(*NAMES), Steps()
    first = asyncio.create_task(binaries.find(environ=environ, sources=[one]))
    await asyncio.sleep(0.05)
    found = await binaries.find(environ=environ, sources=[other], progress=steps)
    await first
    assert sorted(found) == sorted(NAMES)
    assert other.asked == []
    assert "waiting for another process" in steps.texts[0]


@pytest.mark.req("SB-002")
async def test_if_nothing_works_one_error_lists_all_that_was_tried(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "assets").mkdir()
    sources = [Gives(description="the moon"), Gives("etcd", description="the sea")]
    with pytest.raises(BinariesUnavailable) as caught:
        await binaries.find(assets=str(tmp_path / "assets"), environ=environ, sources=sources)
    text = str(caught.value)
    for expected in ("--assets", "the cache", "the moon", "the sea", "it has no such thing", "kube-apiserver"):
        assert expected in text
    assert "etcd" not in text.splitlines()[0], "etcd was found"
    assert "polyarch sandbox fetch" in text


@pytest.mark.req("SB-002")
async def test_a_folder_that_is_none_is_an_error_and_not_passed_over(environ: dict[str, str]) -> None:
    with pytest.raises(BinariesUnavailable, match="--assets names /nowhere"):
        await binaries.find(assets="/nowhere", environ=environ, sources=[])


@pytest.mark.req("SB-002")
@pytest.mark.parametrize("damage", ["empty", "not executable", "a folder"])
async def test_a_file_that_cannot_be_a_program_is_fetched_again(environ: dict[str, str], damage: str) -> None:
    cache = binaries.cache_home(environ) / versions.cache_key()
    put(cache, *[name for name in NAMES if name != "etcd"])
    broken = cache / "etcd"
    if damage == "a folder":
        broken.mkdir()
    else:
        broken.write_text("" if damage == "empty" else "x")
        broken.chmod(0o755 if damage == "empty" else 0o644)
    source = Gives()
    with pytest.raises(BinariesUnavailable):
        await binaries.find(environ=environ, sources=[source])
    assert source.asked == [["etcd"]]
