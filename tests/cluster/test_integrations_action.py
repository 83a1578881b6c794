"""The GitHub Action, step by step as a runner runs it: composite, bash, inputs as variables.

There is no runner here. What it does with ``action.yml`` is small and documented: it fills in expressions, writes each
``run`` to a file and starts ``bash --noprofile --norc -eo pipefail FILE`` in the workspace. The program is this
environment's, except in the one test that installs it as the action does.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.req("MF-084")

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INSTALL, LINT = range(2)
EXPRESSION = re.compile(r"\$\{\{ *([a-z_.-]+) *\}\}")

BAD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeSelector: {kubernetes.io/arch: s390x}
  containers:
  - {name: web, image: "quay.io/acme/web:2"}
"""
GOOD = BAD.replace("s390x", "amd64")
CONFIGURATION = "platformsFile: platforms.yaml\nignorePaths: [platforms.yaml]\nexclude: [MA106, MA109]\n"

Step = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checked-out repository whose images are known from a file."""
    folder = tmp_path / "workspace"
    (folder / "deploy").mkdir(parents=True)
    (folder / ".polyarch.yaml").write_text(CONFIGURATION)
    (folder / "platforms.yaml").write_text("quay.io/acme/web:2: [linux/amd64, linux/arm64]\n")
    (folder / "deploy" / "web.yaml").write_text(BAD)
    return folder


@pytest.fixture
def step(workspace: Path, tmp_path: Path) -> Step:
    """``step(LINT, paths="deploy")``: runs a step with these inputs, the others at their defaults."""
    temporary = tmp_path / "runner"
    temporary.mkdir()

    def run(number: int, **given: str) -> subprocess.CompletedProcess[str]:
        inputs = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        context = {f"inputs.{name}": value for name, value in inputs.items()}
        context |= {"runner.temp": str(temporary), "github.action_path": str(ROOT)}
        chosen = ACTION["runs"]["steps"][number]
        script = temporary / "step.sh"
        script.write_text(filled(chosen["run"], context))
        environment = {name: filled(value, context) for name, value in chosen.get("env", {}).items()}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=workspace,
            env={**os.environ, "CI": "true", "GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(temporary), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    return run


@pytest.fixture
def installed(tmp_path: Path, step: Step) -> None:
    """This environment in the place of the one that the first step makes."""
    (tmp_path / "runner" / "polyarch").symlink_to(sys.prefix)


def filled(text: str, context: Mapping[str, str]) -> str:
    return EXPRESSION.sub(lambda found: context[found.group(1)], text)


def sarif(path: Path) -> Any:
    return json.loads(path.read_text())["runs"][0]


def test_every_step_names_its_shell_and_every_expression_is_known() -> None:
    """A composite action has no default shell, and a mistyped expression is an empty text."""
    assert ACTION["runs"]["using"] == "composite"
    assert {each["shell"] for each in ACTION["runs"]["steps"]} == {"bash"}
    known = {f"inputs.{name}" for name in ACTION["inputs"]} | {"runner.temp", "github.action_path"}
    texts = [value for each in ACTION["runs"]["steps"] for value in each["env"].values()]
    texts += [each["value"] for each in ACTION["outputs"].values()]
    used = {name for text in texts for name in EXPRESSION.findall(text)}
    assert used <= known
    assert {f"inputs.{name}" for name in ACTION["inputs"]} <= used, "an input that nothing reads"
    assert all(each["description"] for each in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))


@pytest.mark.usefixtures("installed")
def test_a_finding_fails_the_job_with_an_annotation(step: Step) -> None:
    result = step(LINT, paths="deploy", args="--offline")
    assert result.returncode == 1, result.stderr
    (annotation,) = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert annotation.startswith("::error file=deploy/web.yaml,line=5,")


@pytest.mark.usefixtures("installed")
def test_a_clean_repository_passes_with_nothing_given(step: Step, workspace: Path) -> None:
    (workspace / "deploy" / "web.yaml").write_text(GOOD)
    result = step(LINT)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


@pytest.mark.usefixtures("installed")
def test_fail_on_never_reports_and_passes(step: Step) -> None:
    result = step(LINT, paths="deploy", fail_on="never")
    assert result.returncode == 0, result.stderr
    assert "::error file=deploy/web.yaml" in result.stdout


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("configured", "given", "code"), [("never", "", 0), ("never", "error", 1), ("error", "", 1)])
def test_fail_on_of_the_configuration_counts_unless_the_workflow_says_otherwise(
    step: Step, workspace: Path, configured: str, given: str, code: int
) -> None:
    (workspace / ".polyarch.yaml").write_text(f"{CONFIGURATION}failOn: {configured}\n")
    assert step(LINT, paths="deploy", fail_on=given).returncode == code


@pytest.mark.usefixtures("installed")
def test_required_platforms_are_asked_for(step: Step, workspace: Path) -> None:
    (workspace / "deploy" / "web.yaml").write_text(GOOD)
    result = step(LINT, paths="deploy", require="amd64,ppc64le")
    assert result.returncode == 1, result.stderr
    assert "ppc64le" in result.stdout


@pytest.mark.usefixtures("installed")
def test_the_report_for_code_scanning_is_where_the_output_says(step: Step, workspace: Path) -> None:
    """Written though the job fails, its folder made, its paths relative to the workspace as the upload needs them."""
    result = step(LINT, paths="deploy", sarif="reports/polyarch.sarif")
    assert result.returncode == 1, result.stderr
    assert ACTION["outputs"]["sarif"]["value"] == "${{ inputs.sarif }}"
    report = sarif(workspace / "reports" / "polyarch.sarif")
    places = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in report["results"]]
    assert places == ["deploy/web.yaml"]


@pytest.mark.usefixtures("installed")
def test_several_paths_and_patterns_are_polyarchs_to_read(step: Step, workspace: Path) -> None:
    (workspace / "other").mkdir()
    (workspace / "other" / "b.yaml").write_text(BAD)
    result = step(LINT, paths="deploy/*.yaml other")
    assert re.findall("file=([^,]+)", result.stdout) == ["deploy/web.yaml", "other/b.yaml"], result.stderr


@pytest.mark.usefixtures("installed")
def test_a_path_of_a_pull_request_is_no_option(step: Step, workspace: Path) -> None:
    """A changed file with such a name must not decide what is looked for."""
    assert step(LINT, paths="--exclude=MA* deploy").returncode == 2
    (workspace / "--exclude=MA*").write_text("kind: ConfigMap\n")
    result = step(LINT, paths="--exclude=MA* deploy")
    assert result.returncode == 1, result.stderr
    assert "MA104" in result.stdout


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("field", ["paths", "require", "sarif", "args"])
def test_an_input_is_never_program_text(step: Step, workspace: Path, field: str) -> None:
    step(LINT, **{field: '$(touch hacked)`touch hacked`";touch hacked;"'})
    assert not (workspace / "hacked").exists()


def test_an_old_python_is_told_by_name(step: Step, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = workspace / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}:{os.environ['PATH']}")
    result = step(INSTALL)
    assert result.returncode == 2
    assert result.stdout.startswith("::error::polyarch needs Python 3.11")


def test_the_whole_action(step: Step) -> None:
    """Both steps with nothing prepared: a new environment, the package built from the action's own folder."""
    probe = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "hatchling"], capture_output=True, check=False
    )
    if probe.returncode:
        pytest.skip("no package index can be reached, from which the action installs polyarch")
    result = step(INSTALL)
    assert result.returncode == 0, result.stderr
    result = step(LINT, paths="deploy", sarif="polyarch.sarif")
    assert result.returncode == 1, result.stderr
    assert "::error file=deploy/web.yaml,line=5," in result.stdout
