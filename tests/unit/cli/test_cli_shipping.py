"""What is shipped beside the program calls it with options that it has."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import FIXED, WEB, Command

ROOT = Path(__file__).parents[3]


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    return Command("lint", capsys, monkeypatch, tmp_path)


@pytest.mark.req("MF-084")
def test_pre_commit_hooks_are_for_yaml_and_run_one_at_a_time() -> None:
    hooks = {hook["id"]: hook for hook in load(".pre-commit-hooks.yaml")}
    assert set(hooks) == {"polyarch-lint", "polyarch-fix"}
    assert all(hook["types"] == ["yaml"] and hook["require_serial"] for hook in hooks.values())
    assert all(hook["language"] == "python" for hook in hooks.values())


@pytest.mark.req("MF-084")
def test_pre_commit_hooks_work_on_the_files_they_are_given(run: Command) -> None:
    """The entries with file names behind them, as pre-commit calls them."""
    path = run.write("web.yaml")
    for hook in load(".pre-commit-hooks.yaml"):
        program, command, *arguments = shlex.split(hook["entry"])
        assert program == "polyarch"
        run.name = command
        assert run(*arguments, "web.yaml").code in (0, 1)
    assert path.read_text() == FIXED


@pytest.mark.req("MF-084")
def test_the_action_takes_what_the_specification_says_and_inputs_never_become_program_text() -> None:
    action = load("action.yml")
    assert {"paths", "require", "fail-on", "sarif"} <= set(action["inputs"])
    assert action["runs"]["using"] == "composite"
    assert all("${{" not in step["run"] for step in action["runs"]["steps"])


def test_the_action_calls_lint_as_it_is(run: Command) -> None:
    run.write("web.yaml")
    script = load("action.yml")["runs"]["steps"][1]["run"]
    assert "--output github" in script
    assert '--output "sarif=$SARIF"' in script
    result = run("--fail-on", "warning", "--output", "github", "--output", "sarif=s", ".")
    assert result.code == 1
    assert result.out.startswith("::")
    assert (run.folder / "s").exists()


@pytest.mark.req("MF-050", "MF-084")
def test_the_post_renderer_passes_everything_through(run: Command) -> None:
    """A program for Helm 3, run by a plugin of Helm 4; what is left to do keeps no release back."""
    plugin = load("deploy/helm-post-renderer/plugin.yaml")
    assert (plugin["apiVersion"], plugin["type"]) == ("v1", "postrenderer/v1")
    assert plugin["runtimeConfig"]["platformCommand"] == [{"command": "${HELM_PLUGIN_DIR}/polyarch-fix"}]
    program = ROOT / "deploy" / "helm-post-renderer" / "polyarch-fix"
    result = subprocess.run(
        [program, "--offline", "--platforms-file", "platforms.yaml"],
        input=WEB + "---\n" + WEB.replace("web:2", "away:1"),
        cwd=run.folder,
        env={"HOME": str(run.folder), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, FIXED + "---\n" + WEB.replace("web:2", "away:1")), result.stderr
