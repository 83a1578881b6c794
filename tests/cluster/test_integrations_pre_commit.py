"""The hooks with pre-commit itself: it clones polyarch, installs it, and runs before a commit.

What it clones is a repository made of these files as they are, so what is not committed yet is tested as well.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.req("MF-084")

ROOT = Path(__file__).parents[2]
PUBLISHED = (".pre-commit-hooks.yaml", "LICENSE", "README.md", "pyproject.toml", "src")
"""Of this repository, what hooks are installed from."""

CONFIGURATION = """\
repos:
- repo: {root}
  rev: {revision}
  hooks: [{{id: polyarch-fix}}, {{id: polyarch-lint}}]
"""
PLATFORMS = "quay.io/acme/web:2: [linux/amd64, linux/arm64]\n"
GOOD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: kubernetes.io/arch, operator: In, values: [amd64]}
          - {key: kubernetes.io/os, operator: In, values: [linux]}
  containers:
  - {name: web, image: "quay.io/acme/web:2"}  # the shop
"""
BAD = GOOD.replace("[amd64]", "[amd64, s390x]")
HOPELESS = GOOD.replace("[amd64]", "[s390x]")


class Repository:
    """A git repository, and who commits to it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PRE_COMMIT_HOME": str(home),
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        self.run("git", "init", "-q")
        for name, value in (("user.name", "a"), ("user.email", "a@example.com")):
            self.run("git", "config", name, value)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    def commit(self, text: str) -> subprocess.CompletedProcess[str]:
        """Commits the manifest with this text; the hooks run."""
        (self.folder / "web.yaml").write_text(text)
        return self.again()

    def again(self) -> subprocess.CompletedProcess[str]:
        self.run("git", "add", "-A")
        return self.run("git", "commit", "-m", "web")


class Hooks(NamedTuple):
    """Where hooks come from: a repository, a revision, and the home in which pre-commit keeps their environment."""

    root: Path
    revision: str
    home: Path


@pytest.fixture(scope="session")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Hooks:
    """Installed once: the tests share the environment that pre-commit makes."""
    home, root = tmp_path_factory.mktemp("pre-commit"), tmp_path_factory.mktemp("polyarch")
    published = Repository(root, home)
    for name in PUBLISHED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)
    result = published.again()
    assert result.returncode == 0, result.stderr
    return Hooks(root, published.run("git", "rev-parse", "HEAD").stdout.strip(), home)


@pytest.fixture
def repository(tmp_path: Path, hooks: Hooks, peer: Callable[[str], str]) -> Repository:
    """A repository of somebody who uses the hooks."""
    repository = Repository(tmp_path, hooks.home)
    (tmp_path / ".pre-commit-config.yaml").write_text(CONFIGURATION.format(root=hooks.root, revision=hooks.revision))
    (tmp_path / ".polyarch.yaml").write_text("platformsFile: platforms.yaml\n")
    (tmp_path / "platforms.yaml").write_text(PLATFORMS)
    installed = repository.run(peer("pre-commit"), "install", "--install-hooks")
    if "No matching distribution found" in installed.stdout:
        pytest.skip("no package index can be reached, from which pre-commit installs polyarch")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return repository


def test_a_manifest_that_fits_is_committed(repository: Repository) -> None:
    result = repository.commit(GOOD)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (result.stderr + result.stdout).count("Passed") == 2


def test_what_can_be_repaired_is_and_the_next_commit_passes(repository: Repository) -> None:
    result = repository.commit(BAD)
    assert result.returncode == 1
    assert "files were modified by this hook" in result.stderr + result.stdout
    assert (repository.folder / "web.yaml").read_text() == GOOD
    assert repository.again().returncode == 0


def test_what_cannot_be_repaired_is_not_committed(repository: Repository) -> None:
    result = repository.commit(HOPELESS)
    assert result.returncode == 1
    assert "error MA104 Pod web can run nowhere" in result.stderr + result.stdout
    assert (repository.folder / "web.yaml").read_text() == HOPELESS
