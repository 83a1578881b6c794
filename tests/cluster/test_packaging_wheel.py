"""What PyPI gets, installed as a user does: in an empty environment, with hashes, without a compiler."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = "polyarch-*-py3-none-any.whl"
SOURCE = ("src", "deploy", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "requirements.lock")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/arch: s390x}
  containers:
  - {name: web, image: "quay.io/acme/web:2"}
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def built(source: Path, *, at: str = "1700000000") -> dict[str, str]:
    """The digests of what `make dist` makes of a source tree, by file name; the files are in its dist/."""
    done = run(sys.executable, "-m", "hatchling", "build", "-d", "dist", cwd=source, SOURCE_DATE_EPOCH=at)
    assert done.returncode == 0, done.stderr
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in (source / "dist").iterdir()}


def copied(target: Path) -> Path:
    """A copy of what belongs to the source distribution, without the times of its files."""
    target.mkdir()
    for name in SOURCE:
        if (ROOT / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(ROOT / name, target / name, ignore=leave, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source tree with dist/ in it."""
    tree = copied(tmp_path_factory.mktemp("source") / "polyarch")
    built(tree)
    return tree


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it needs: no extra, no other package but pip."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = (source / "dist").glob(WHEEL)
    lock = (ROOT / "deploy" / "image" / "requirements.lock").read_text()
    plain = re.sub(r"^uvloop==.*\n(?:    .*\n)+", "", lock, flags=re.MULTILINE)
    assert plain != lock
    (folder / "requirements.lock").write_text(plain)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "polyarch.txt").write_text(f"-r requirements.lock\n{wheel} --hash=sha256:{digest}\n")
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / "bin"
    pip = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = ("--require-hashes", "--only-binary", ":all:")
    nowhere = {"PATH": str(programs), "CC": "/bin/false", "CXX": "/bin/false"}
    done = run(*pip, "install", *options, "-r", "polyarch.txt", cwd=folder, **nowhere)
    assert done.returncode == 0, done.stderr
    done = run(*pip, "check", cwd=folder)
    assert done.returncode == 0, done.stdout
    return programs


@pytest.mark.req("IN-014")
def test_the_same_source_makes_the_same_bytes(source: Path, tmp_path: Path) -> None:
    """Whenever and wherever it is built: times of files, folders and the clock leave no trace."""
    again = copied(tmp_path / "elsewhere")
    assert built(again) == built(source)
    assert built(again, at="1600000000").keys() == built(source).keys()


@pytest.mark.req("IN-014")
def test_the_wheel_can_be_built_from_the_source_distribution(source: Path, tmp_path: Path) -> None:
    (archive,) = (source / "dist").glob("polyarch-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        opened.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    (wheel,) = (source / "dist").glob(WHEEL)
    assert built(unpacked)[wheel.name] == hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.req("IN-014")
def test_the_version_is_said(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "polyarch", "--version", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", said.stdout)
    assert run(installed / "kubectl-polyarch", "--version", cwd=tmp_path).stdout == said.stdout
    assert run(installed / "kubectl_complete-polyarch", "num", cwd=tmp_path).stdout.startswith("numa\t")


@pytest.mark.req("IN-014")
def test_manifests_are_linted(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "platforms.yaml").write_text("quay.io/acme/web:2: [linux/amd64, linux/arm64]\n")
    known = ("--offline", "--platforms-file", "platforms.yaml")
    said = run(installed / "polyarch", "lint", *known, "pod.yaml", cwd=tmp_path)
    assert said.returncode == 1, said.stderr
    assert "pod.yaml:5" in said.stdout
    assert "s390x" in said.stdout


@pytest.mark.req("IN-014")
def test_images_are_inspected_offline(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "platforms.yaml").write_text("quay.io/acme/web:2: [linux/amd64, linux/arm64]\n")
    known = ("--offline", "--platforms-file", "platforms.yaml")
    said = run(installed / "polyarch", "inspect", *known, "quay.io/acme/web:2", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "linux/amd64" in said.stdout
    assert "linux/arm64" in said.stdout


@pytest.mark.req("IN-014")
def test_every_role_can_be_started_from_it(installed: Path, tmp_path: Path) -> None:
    """The image is made of this wheel: nothing that a role imports is missing."""
    said = run(installed / "polyarch", "run", "all", "--help", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
