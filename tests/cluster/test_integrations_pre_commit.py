"""The hooks with pre-commit itself (MF-084): it clones this repository, installs it, and runs before a commit.

The hooks are those of the last commit here, as for everybody who names a revision.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRE_COMMIT = shutil.which("pre-commit") or ""
pytestmark = [
    pytest.mark.skipif(not PRE_COMMIT, reason="there is no pre-commit on PATH"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no git repository for pre-commit to clone"),
]

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
    """A repository of somebody who uses the hooks."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PRE_COMMIT_HOME": str(home),
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        self.git("init", "-q")
        for name, value in (("user.name", "a"), ("user.email", "a@example.com")):
            self.git("config", name, value)

    def git(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder or self.folder,
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
        self.git("add", "-A")
        return self.git("commit", "-m", "web")


@pytest.fixture(scope="session")
def pre_commit_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed once: the tests share the environment that pre-commit makes."""
    return tmp_path_factory.mktemp("pre-commit")


@pytest.fixture
def repository(tmp_path: Path, pre_commit_home: Path) -> Repository:
    repository = Repository(tmp_path, pre_commit_home)
    revision = repository.git("rev-parse", "HEAD", folder=ROOT).stdout.strip()
    (tmp_path / ".pre-commit-config.yaml").write_text(CONFIGURATION.format(root=ROOT, revision=revision))
    (tmp_path / ".polyarch.yaml").write_text("platformsFile: platforms.yaml\n")
    (tmp_path / "platforms.yaml").write_text(PLATFORMS)
    installed = subprocess.run(
        [PRE_COMMIT, "install", "--install-hooks"],
        cwd=tmp_path,
        env=repository.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
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
