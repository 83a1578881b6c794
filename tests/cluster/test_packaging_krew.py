"""What krew installs, unpacked as krew does and called by a real kubectl. krew itself is not there."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tools.release import krew

import polyarch

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / ".venv" / "release"
PYTHON = f"3.{sys.version_info.minor}"
PLATFORM = {"x86_64": "linux-amd64", "aarch64": "linux-arm64"}.get(platform.machine(), "")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/arch: s390x}
  containers:
  - {name: web, image: "quay.io/acme/web:2"}
"""
SELECTORS = {"os": {"linux", "darwin"}, "arch": {"amd64", "arm64"}}


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **environment}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=290
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dist/ after `make krew` for this machine and this Python."""
    folder = tmp_path_factory.mktemp("krew")
    ready = run("make", ".venv/release/.ready", cwd=ROOT)
    assert ready.returncode == 0, ready.stderr
    environment = {"SOURCE_DATE_EPOCH": "1700000000"}
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT, **environment)
    assert built.returncode == 0, built.stderr
    only = ("--platform", PLATFORM, "--python", PYTHON) if PLATFORM else ()
    tool = (sys.executable, "-m", "tools.release.krew", "--uv", RELEASE / "bin" / "uv", "--dist", folder, *only)
    done = run(*tool, cwd=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def on_path(dist: Path) -> str:
    """A PATH that starts with a folder as krew fills it: a link to what was unpacked, and nothing else."""
    store, links = dist / "store", dist / "bin"
    (archive,) = (dist / "krew").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        assert all(each.isfile() for each in opened), "krew unpacks files and folders only"
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        opened.extractall(store)
    links.mkdir()
    (links / "kubectl-polyarch").symlink_to(store / "kubectl-polyarch")
    return f"{links}:{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.mark.req("IN-013")
def test_kubectl_runs_the_plugin(on_path: str, peer: Callable[[str], str], tmp_path: Path) -> None:
    done = run(peer("kubectl"), "polyarch", "--version", cwd=tmp_path, PATH=on_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{polyarch.__version__}\n", "")


@pytest.mark.req("IN-013")
def test_kubectl_completes_its_words(on_path: str, dist: Path, peer: Callable[[str], str], tmp_path: Path) -> None:
    """Once the program that it prints is beside it, as the guide says."""
    kubectl = peer("kubectl")
    program = dist / "bin" / "kubectl_complete-polyarch"
    program.write_text(run(kubectl, "polyarch", "completion", "kubectl", cwd=tmp_path, PATH=on_path).stdout)
    program.chmod(0o755)
    done = run(kubectl, "__complete", "polyarch", "lint", "--fail-on", "e", cwd=tmp_path, PATH=on_path)
    assert done.stdout.splitlines() == ["error", ":4"], done.stderr
    done = run(kubectl, "__complete", "polyarch", "unin", cwd=tmp_path, PATH=on_path)
    assert done.stdout.splitlines()[0].split("\t") == ["uninstall", "Remove polyarch from a cluster"]


@pytest.mark.req("IN-013")
def test_the_plugin_lints_with_its_own_packages(on_path: str, peer: Callable[[str], str], tmp_path: Path) -> None:
    """Not with those that the Python on PATH may have: a broken one of the same name does not matter."""
    (tmp_path / "other" / "msgspec").mkdir(parents=True)
    (tmp_path / "other" / "msgspec" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "platforms.yaml").write_text("quay.io/acme/web:2: [linux/amd64, linux/arm64]\n")
    words = ("polyarch", "lint", "--offline", "--platforms-file", "platforms.yaml", "pod.yaml")
    done = run(peer("kubectl"), *words, cwd=tmp_path, PATH=on_path, PYTHONPATH=str(tmp_path / "other"))
    assert done.returncode == 1, done.stderr
    assert "pod.yaml:5" in done.stdout


@pytest.mark.req("IN-013")
def test_the_manifest_is_as_krew_wants_it(dist: Path) -> None:
    """The rules of krew's validation (internal/index/validation) and of its page on manifests."""
    document = yaml.safe_load((dist / "krew" / "polyarch.yaml").read_text())
    assert document["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert document["kind"] == "Plugin"
    assert document["metadata"] == {"name": "polyarch"}, "named as its file"
    spec = document["spec"]
    assert set(spec) == {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert "\n" not in spec["shortDescription"]
    assert 0 < len(spec["shortDescription"]) <= 50
    assert f"from {krew.PYTHONS[0]} to {krew.PYTHONS[-1]}" in spec["caveats"]
    for each in spec["platforms"]:
        assert set(each) == {"selector", "uri", "sha256", "bin"}, "no files: all of the archive is installed"
        assert re.fullmatch(r"https://\S+\.tar\.gz", each["uri"])
        archive = dist / "krew" / each["uri"].rpartition("/")[2]
        assert each["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
        assert all(value in SELECTORS[key] for key, value in each["selector"]["matchLabels"].items())
        with tarfile.open(archive) as opened:
            assert opened.getmember(each["bin"]).mode == 0o755


@pytest.mark.req("IN-013")
def test_the_same_files_make_the_same_archive(dist: Path, on_path: str, tmp_path: Path) -> None:
    """Packed again from a copy with other times and modes."""
    (archive,) = (dist / "krew").glob("*.tar.gz")
    copy = shutil.copytree(dist / "store", tmp_path / "copy", copy_function=shutil.copyfile)
    (copy / "kubectl-polyarch").chmod(0o700)
    assert (
        krew.pack(copy, tmp_path / "again.tar.gz", epoch=1700000000) == hashlib.sha256(archive.read_bytes()).hexdigest()
    )


@pytest.mark.req("IN-013")
def test_a_python_without_packages_is_told_which_there_are(dist: Path, on_path: str, tmp_path: Path) -> None:
    """As with a python3 that is too old and no other one on PATH."""
    plugin = tmp_path / "plugin"
    (plugin / "packages" / "python3.8").mkdir(parents=True)
    (plugin / "packages" / "python3.9").mkdir()
    shutil.copy(dist / "store" / "kubectl-polyarch", plugin)
    done = run(sys.executable, plugin / "kubectl-polyarch", cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"kubectl-polyarch: needs Python 3.8 to 3.9 on PATH, and python3 is {PYTHON} (")


@pytest.mark.req("IN-013")
def test_a_newer_python_on_path_takes_over(dist: Path, on_path: str, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "packages" / "python3.99").mkdir(parents=True)
    shutil.copy(dist / "store" / "kubectl-polyarch", plugin)
    newer = tmp_path / "python3.99"
    newer.write_text('#!/bin/sh\nshift; echo "took over: $*"\n')
    newer.chmod(0o755)
    done = run(sys.executable, plugin / "kubectl-polyarch", "lint", "a b", cwd=tmp_path, PATH=str(tmp_path))
    assert done.stdout == "took over: lint a b\n"
