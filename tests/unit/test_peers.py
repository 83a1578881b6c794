"""Where peers come from, and what a run says about them. The Go here is a script that says what the real one says."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.peers import __main__ as command
from tools.peers import catalogue
from tools.peers.catalogue import PEERS, Absent, Found, Origin, continuous_integration, found
from tools.peers.summary import PROPERTY, excused, summary, use

from polyarch.sandbox.errors import SilentStepProgress

ROOT = Path(__file__).parents[2]
BUILT = [peer.name for peer in PEERS if peer.origin is Origin.GO]
TOGETHER = ("kubelet-managers", "scheduler-filters", "credential-providers")
"""Programs of one module that one ``go build`` makes."""
GO = """#!/bin/sh
case "$1" in
  version) echo "go version go1.26.8 linux/amd64" ;;
  list) echo stale ;;
  build)
    case "$*" in *{broken}*) echo "dial tcp: no route to host" >&2; exit 1;; esac
    while [ "$1" != "-o" ]; do shift; done
    output="$2"; shift 2
    if [ -d "$output" ]; then
      for package in "$@"; do name="${{package##*/}}"; echo program > "$output/$name"; chmod +x "$output/$name"; done
    else echo program > "$output"; chmod +x "$output"; fi ;;
esac
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine of its own: nothing cached, nothing on PATH but the tools that a script needs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "chmod", "sleep"):
        (programs / name).symlink_to(shutil.which(name) or "")
    return {"PATH": str(programs), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def put(environ: dict[str, str], name: str, script: str) -> None:
    path = Path(environ["PATH"]) / name
    path.write_text(script)
    path.chmod(0o755)


@pytest.mark.parametrize("name", BUILT)
def test_what_is_not_built_names_the_command_that_builds_it(name: str, environ: dict[str, str]) -> None:
    assert found(name, environ) == Absent("it has not been built: python -m tools.peers")


async def test_what_was_built_is_found_in_the_version_of_the_module(environ: dict[str, str]) -> None:
    put(environ, "go", GO.format(broken="none"))
    await command.provide([peer for peer in PEERS if peer.origin is Origin.GO], SilentStepProgress(), environ)
    for name in BUILT:
        peer = found(name, environ)
        assert isinstance(peer, Found)
        assert Path(peer.program).read_text() == "program\n"
        assert peer.version[0].isdigit()


def test_the_guide_names_the_versions_of_helm_that_are_tested() -> None:
    guide = (ROOT / "docs" / "guide" / "integrations.md").read_text()
    for name in ("helm-3", "helm-4"):
        assert catalogue.pinned(catalogue.BY_NAME[name]) in guide


async def test_what_cannot_be_built_is_missing_with_the_reason_and_the_others_are_there(
    environ: dict[str, str],
) -> None:
    put(environ, "go", GO.format(broken="helm/v4"))
    await command.provide(PEERS, SilentStepProgress(), environ)
    missed = found("helm-4", environ)
    assert isinstance(missed, Absent)
    assert "dial tcp: no route to host" in missed.why
    assert not missed.excused
    assert isinstance(found("helm-3", environ), Found)
    put(environ, "go", GO.format(broken="none"))
    await command.provide(PEERS, SilentStepProgress(), environ)
    assert isinstance(found("helm-4", environ), Found)


@pytest.mark.parametrize(("named", "code", "words"), [("", 0, "  helm-4 4"), ("helm-5", 2, "no peer is called helm-5")])
def test_the_command_builds_what_is_missing_and_says_what_is_there(
    named: str, code: int, words: str, environ: dict[str, str]
) -> None:
    put(environ, "go", GO.format(broken="none"))
    called = [sys.executable, "-m", "tools.peers", *named.split()]
    done = subprocess.run(called, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    if not code:
        assert f"building helm-4 {catalogue.pinned(catalogue.BY_NAME['helm-4'])} (3 of 5)" in done.stderr
        assert "skopeo is not there" in done.stdout


async def test_two_processes_build_once(environ: dict[str, str], tmp_path: Path) -> None:
    put(
        environ, "go", GO.format(broken="none").replace("  build)", f"  build) echo $$ >> {tmp_path}/builds; sleep 0.2")
    )
    await asyncio.gather(*(command.provide(PEERS, SilentStepProgress(), environ) for _ in range(2)))
    assert len((tmp_path / "builds").read_text().split()) == len(BUILT) - len(TOGETHER) + 1


def test_another_source_is_another_cache(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = catalogue.folder(environ)
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "go.mod").write_text("module other\n")
    monkeypatch.setattr(catalogue, "MODULE", tmp_path / "module")
    assert catalogue.folder(environ) != before
    assert catalogue.folder(environ).parent == before.parent


SKOPEO_NEEDS = """#!/bin/sh
echo "$*" >> {log}
[ "$2" = install ] && {ending}
exit 0
"""


async def test_skopeo_is_installed_unasked_in_continuous_integration_only(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    wanted = [catalogue.BY_NAME["skopeo"]]
    log = tmp_path / "log"
    skopeo = Path(environ["PATH"]) / "skopeo"
    installs = f"printf '#!/bin/sh\\necho skopeo version 1.9.3' > {skopeo}; chmod +x {skopeo}"
    put(environ, "apt-get", SKOPEO_NEEDS.format(log=log, ending=installs))
    await command.provide(wanted, SilentStepProgress(), environ)
    assert not log.exists()
    missed = found("skopeo", environ)
    assert isinstance(missed, Absent)
    assert "apt install skopeo" in missed.why
    await command.provide(wanted, SilentStepProgress(), {**environ, "CI": "true"})
    assert log.read_text().splitlines() == ["-q update", "-q install -y --no-install-recommends skopeo"]
    assert found("skopeo", environ) == Found(str(skopeo), "1.9.3")


async def test_skopeo_that_cannot_be_installed_is_missing_with_the_reason(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    put(environ, "apt-get", SKOPEO_NEEDS.format(log=tmp_path / "log", ending="{ echo E: no network; exit 100; }"))
    await command.provide([catalogue.BY_NAME["skopeo"]], SilentStepProgress(), {**environ, "CI": "true"})
    why = "`apt-get install -y --no-install-recommends skopeo` ended with 100: E: no network"
    assert found("skopeo", environ) == Absent(why, excused=False)


@pytest.mark.parametrize(("root", "apt"), [(False, True), (True, False)])
def test_skopeo_is_excused_where_nobody_could_install_it(
    root: bool, apt: bool, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    if apt:
        put(environ, "apt-get", "#!/bin/sh\n")
    missed = found("skopeo", environ)
    assert isinstance(missed, Absent)
    assert missed.excused


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("", False)]
)
def test_continuous_integration_is_told_by_its_variable(value: str, expected: bool) -> None:
    assert continuous_integration({"CI": value}) is expected
    assert not continuous_integration({})


def test_the_summary_counts_tests_and_says_why_not() -> None:
    def asked(name: str, answer: Found | Absent, file: str = "test_a.py") -> tuple[str, list[tuple[str, object]]]:
        return f"tests/{file}::test_it", [(PROPERTY, use(name, answer))]

    reports = [
        asked("helm-4", Found("/x/helm-4", "4.3.1")),
        asked("skopeo", Absent("it is not installed", excused=True), "test_b.py"),
        asked("helm-4", Found("/x/helm-4", "4.3.1"), "test_c.py"),
        asked("skopeo", Absent("it is not installed", excused=True)),
        ("tests/test_a.py::test_other", [("other", 1)]),
    ]
    assert summary(reports) == [
        "helm-4  4.3.1, 2 tests",
        "skopeo  2 tests of tests/test_a.py, tests/test_b.py did not run: it is not installed",
    ]
    assert summary([("tests/test_a.py::test_other", [])]) == []
    assert [excused(properties) for _, properties in reports] == [False, True, False, True, False]


def test_a_unit_test_asks_for_no_peer_that_make_check_does_not_bring(peer: Callable[[str], str]) -> None:
    assert peer("shellcheck")
    with pytest.raises(pytest.fail.Exception, match=r"does not bring helm-4: .* belongs in tests/oracles"):
        peer("helm-4")


def test_only_make_long_builds_what_takes_longest(environ: dict[str, str]) -> None:
    put(environ, "go", GO.format(broken="none"))

    def brought(*options: str) -> str:
        called = [sys.executable, "-m", "tools.peers", *options]
        return subprocess.run(called, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout

    assert "numa-plugin" not in brought()
    assert "numa-plugin 0" in brought("--long")


INNER = """
import pytest

def test_there(peer):
    assert peer("pre-commit")

def test_missing(peer):
    peer("helm-4")

@pytest.mark.skipif(True, reason="it is too late")
def test_late(): ...
"""


@pytest.mark.parametrize(
    ("ci", "outcome", "code"), [("", "1 passed, 2 skipped", 0), ("true", "1 failed, 1 passed, 1 error", 1)]
)
def test_a_skipped_test_has_failed_in_continuous_integration(ci: str, outcome: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (tmp_path / "test_inner.py").write_text(INNER)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        env={
            **os.environ,
            "CI": ci,
            "XDG_CACHE_HOME": str(tmp_path / "empty"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert outcome in result.stdout, result.stdout
    assert result.returncode == code
    assert "1 test of test_inner.py did not run: it has not been built: python -m tools.peers" in result.stdout
    if ci:
        assert "every test has to run: Skipped: it is too late" in result.stdout
