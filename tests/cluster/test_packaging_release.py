"""The workflows: linted, and every step that needs no secret and no service of others run as it stands."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import polyarch

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
NOT_HERE = {
    ("ci", "Test"): "runs all tests, this one too",
    ("ci", "Long tests"): "runs the tests that are left to it",
    ("ci", "CNI plugins, buildah and an emulator"): "installs packages of the system",
    ("ci", "Tests on real nodes"): "runs the tests that need root and real nodes",
    ("ci", "The cache is the runner's"): "changes the owner of files",
    ("release", "Builder and emulation"): "installs packages of the system",
    ("release", "Log in to the registry"): "needs the token of a run; it stands in two jobs",
    ("release", "Build the image"): "python's slim image is on Docker Hub; test_packaging_image builds on another base",
    ("release", "Push the image"): "needs the token",
    ("release", "Join the images into an index"): "needs the images that were pushed",
    ("release", "Sign the index and its images, and attest the bill of materials"): "Sigstore signs for a run only",
    ("release", "Push the bundle and sign it"): "needs the token",
    ("release", "Push the chart"): "needs the token",
    ("release", "Release with its files; krew installs from polyarch.yaml"): "needs the token",
}
"""Steps that cannot be run by a test, by workflow and name, and why."""
DIGEST = "sha256:" + "a" * 64
ENVIRONMENT = {
    "GITHUB_REF_NAME": f"v{polyarch.__version__}",
    "IMAGE": "ghcr.io/polyarch/polyarch",
    "DIGEST": DIGEST,
    "SOURCE_DATE_EPOCH": "1700000000",
    "PLATFORMS": "linux-amd64",
    "PYTHONS": f"3.{sys.version_info.minor}",
}
"""What the runner and the steps before give; one plugin, as test_packaging_krew tells of the others."""


def workflow(name: str) -> dict[str, Any]:
    """The document; YAML takes its ``on`` for a boolean."""
    read = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    return {"on" if key is True else key: value for key, value in read.items()}


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job.get("steps", [])]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **environment}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=290
    )


@pytest.mark.req("IN-021")
def test_actionlint_finds_nothing(peer: Callable[[str], str]) -> None:
    done = run(peer("actionlint"), "-no-color", *sorted(WORKFLOWS.glob("*.yml")), cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.req("IN-021")
@pytest.mark.parametrize("name", ["ci", "release"])
def test_a_job_may_do_what_it_says_and_no_more(name: str) -> None:
    """No permission by default; actions by commit, but for two whose commit is not known for certain."""
    document = workflow(name)
    assert document["permissions"] == {}
    assert all("permissions" in job for job in document["jobs"].values())
    by_tag = {
        step["uses"] for step in steps(name) if not re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40))
    }
    assert by_tag <= {"sigstore/cosign-installer@v3", "pypa/gh-action-pypi-publish@release/v1"}
    assert not any("${{" in step.get("run", "") for step in steps(name)), "values reach a shell as variables only"


@pytest.mark.req("IN-021")
def test_what_a_cache_is_of_is_there() -> None:
    """The key of a cache that names a file of former days is never another one, whatever is pinned."""
    named = [
        name
        for text in re.findall(r"hashFiles\((.*?)\)", (WORKFLOWS / "ci.yml").read_text())
        for name in text.split(", ")
    ]
    assert named
    assert [name for name in named if not any(ROOT.glob(name.strip("'")))] == []


@pytest.mark.req("IN-021")
def test_every_test_is_run_before_a_release() -> None:
    """`make test` on each push, `make long` and `make real` every night; a release waits for all."""
    ci, release = workflow("ci"), workflow("release")
    lanes = [step["run"].rpartition("make ")[2] for step in steps("ci") if "run" in step and "make " in step["run"]]
    assert lanes == ["long", "real LONG=1"]
    assert ".ci/run" in [step.get("run") for step in ci["jobs"]["test"]["steps"]]
    for nightly in ("long", "real"):
        assert ci["jobs"][nightly]["if"] == "github.event_name == 'schedule' || github.ref_type == 'tag'"
    assert release["on"] == {"push": {"tags": ["v*"]}}
    assert ci["on"].keys() >= {"schedule", "workflow_call"}
    assert release["jobs"]["test"]["uses"] == "./.github/workflows/ci.yml"
    assert "test" in release["jobs"]["image"]["needs"]


@pytest.mark.req("IN-021")
def test_a_step_that_no_test_runs_is_still_there() -> None:
    named = {(name, step["name"]) for name in ("ci", "release") for step in steps(name) if "run" in step}
    assert NOT_HERE.keys() <= named


@pytest.mark.req("IN-021")
def test_every_other_step_is_run_as_it_stands(peer: Callable[[str], str], tmp_path: Path) -> None:
    """In a copy that is as the commit of a release is: with its section in the changelog."""
    tree, programs = tmp_path / "polyarch", tmp_path / "bin"
    leave = shutil.ignore_patterns(".git", ".venv", "dist", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, tree, ignore=leave)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    programs.mkdir()
    (programs / "helm").symlink_to(peer("helm-3"))
    environment = {**ENVIRONMENT, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(tree / "src")}
    wanted = [step for name in ("ci", "release") for step in steps(name) if "run" in step]
    done = run("make", "changelog", cwd=tree, **environment)
    assert done.returncode == 0, done.stderr
    ran = 0
    for step in wanted:
        if any(step["name"] == name for _, name in NOT_HERE):
            continue
        done = run("bash", "-eo", "pipefail", "-c", step["run"], cwd=tree, **environment)
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
        ran += 1
    assert ran == len(wanted) - len(NOT_HERE) - 1, "one name stands in two jobs"
    made = tree / "dist"
    assert "### Placement" in (made / "release-notes.md").read_text()
    assert (made / f"polyarch-{polyarch.__version__}.tgz").exists()
    assert DIGEST in (made / "bundle" / "manifests" / "polyarch.clusterserviceversion.yaml").read_text()
    components = json.loads((made / "polyarch.cdx.json").read_text())["components"]
    locked = re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "deploy/image/requirements.lock").read_text(), re.MULTILINE)
    assert {(each["name"], each["version"]) for each in components} == set(locked)
    assert all("hashes" in str(each["externalReferences"]) for each in components)
