"""What `polyarch up` and the demo print at their end works in the shell that it is typed in."""

import subprocess
from pathlib import Path

import pytest

from polyarch.cli.sandbox import next_steps
from polyarch.sandbox.state import Folder

SHELL_TEST = "for name in KUBECONFIG CONTAINERS_REGISTRIES_CONF; do eval echo '$'$name; done"


@pytest.mark.req("SB-002")
@pytest.mark.parametrize("installed", [True, False])
def test_the_shell_learns_the_cluster_and_the_registries(tmp_path: Path, *, installed: bool) -> None:
    """Also of a folder with a blank in its name; every other line is a command, its note a comment."""
    folder = Folder(tmp_path / "my sandboxes" / "second")
    title, *lines = next_steps.after_up(folder, name="second", installed=installed).splitlines()
    assert title == "Next:"
    exports = [line for line in lines if line.startswith("  export ")]
    said = subprocess.run(
        ["/bin/sh", "-c", "\n".join([*exports, SHELL_TEST])], check=True, capture_output=True, text=True
    )
    assert said.stdout.splitlines() == [str(folder.kubeconfig), str(folder.registries_conf)]
    assert "  polyarch status --name second" in lines
    assert any(line.startswith("  polyarch install --values ") for line in lines) is not installed
    assert any(line.startswith("  kubectl run web ") for line in lines) is installed


@pytest.mark.req("SB-002")
def test_what_was_asked_for_is_what_is_shown_next(tmp_path: Path) -> None:
    """Whoever asks for cells or builds is not left with a pod of nginx."""
    folder = Folder(tmp_path / "default")
    plain = next_steps.after_up(folder, name="default", installed=True)
    both = next_steps.after_up(folder, name="default", installed=True, has_cells=True, builds_to="127.0.0.1:5000")
    assert ("polyarch numa top" in plain, "polyarch build run" in plain) == (False, False)
    assert "  polyarch numa top " in both
    assert "  polyarch build run web --context DIR --repository 127.0.0.1:5000/team/web   # DIR has a " in both


@pytest.mark.req("SB-007")
def test_the_demos_commands_need_no_option_for_the_registries(tmp_path: Path) -> None:
    text = next_steps.after_demo(Folder(tmp_path / "default"), name="default")
    assert "--registries-conf" not in text
    assert "--name" not in text
    commands = [line.strip().split(" ")[0] for line in text.splitlines()[1:] if "no kubectl" not in line]
    assert set(commands) == {"export", "kubectl", "polyarch"}
    assert len({line.index("   #") for line in text.splitlines() if "   #" in line}) == 1, "notes are in one column"


@pytest.mark.req("SB-002")
def test_without_kubectl_the_block_says_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "kubectl"
    tool.parent.mkdir()
    monkeypatch.setenv("PATH", str(tool.parent))
    folder = Folder(tmp_path / "default")
    assert "there is no kubectl here" in next_steps.after_demo(folder, name="default")
    tool.touch(mode=0o755)
    assert "there is no kubectl here" not in next_steps.after_demo(folder, name="default")


@pytest.mark.req("SB-002")
def test_a_shell_that_does_not_find_the_program_is_told_where_it_is(tmp_path: Path) -> None:
    """After `make demo` it is in a virtual environment that nobody has activated."""
    home, other = tmp_path / "venv" / "bin", tmp_path / "bin"
    for folder in (home, other):
        folder.mkdir(parents=True)
    python = home / "python"
    assert next_steps.path_to_program({"PATH": str(other)}, python) == "", "there is none to find"
    for folder in (home, other):
        (folder / "polyarch").touch(mode=0o755)
    assert next_steps.path_to_program({"PATH": ""}, python) == str(home)
    assert next_steps.path_to_program({"PATH": f"{other}:{home}"}, python) == str(home), "another one is found first"
    assert next_steps.path_to_program({"PATH": f"{home}:{other}"}, python) == ""
