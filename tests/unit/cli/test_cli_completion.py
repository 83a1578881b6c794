"""``polyarch completion SHELL``: what the scripts ask, and the scripts in the shells that are there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polyarch.cli import complete_for_kubectl, main
from polyarch.cli.app import COMMANDS, app
from polyarch.cli.completion import SCRIPTS, completions

SHELLS = [shell for shell in SCRIPTS if shutil.which(shell)]


def values(*words: str) -> list[str]:
    found = completions(app, words)
    return [found.prefix + value for value, _ in found.values]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["li"], ["lint"]),
        (["bundle", ""], ["validate"]),
        (["sandbox", "s"], ["seed"]),
        (["lint", "--fail"], ["--fail-if-no-objects", "--fail-on"]),
        (["lint", "--fail-on", ""], ["error", "warning", "info", "never"]),
        (["lint", "--fail-on=e"], ["--fail-on=error"]),
        (["lint", "-o", "s"], ["sarif"]),
        (["lint", "--only", "MA102,ma90"], ["MA102,MA901", "MA102,MA902", "MA102,MA903", "MA102,MA904", "MA102,MA905"]),
        (["lint", "--explain", "ma21"], ["MA210", "MA211"]),
        (["lint", "--require", "linux/s"], ["linux/s390x"]),
        (["run", "placement-c"], ["placement-controller"]),
        (["lint", "--he"], ["--help"]),
        (["inspect", "ng"], []),
        (["completion", ""], ["bash", "zsh", "fish", "kubectl"]),
    ],
    ids=lambda value: ",".join(value) or "nothing",
)
def test_what_can_stand_at_the_cursor(words: list[str], expected: list[str]) -> None:
    assert values(*words) == expected


@pytest.mark.parametrize(
    ("words", "kind", "prefix"),
    [
        (["lint", ""], "files", ""),
        (["lint", "--", "--o"], "files", ""),
        (["lint", "-o", "json=re"], "files", "json="),
        (["lint", "--output=json=re"], "files", "--output=json="),
        (["lint", "--baseline=kn"], "files", "--baseline="),
        (["lint", "--cache-dir", ""], "directories", ""),
        (["bundle", "validate", ""], "directories", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_shell_completes_files_itself(words: list[str], kind: str, prefix: str) -> None:
    found = completions(app, words)
    assert (found.kind, found.prefix, found.values) == (kind, prefix, ())


def test_every_command_comes_with_what_it_is_for() -> None:
    assert list(completions(app, [""]).values) == [(name, meaning) for name, _, _, meaning in COMMANDS]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["bundle", ""], "validate\tCheck that an operator bundle keeps what it promises\n:4\n"),
        (["lint", "--fail-on=e"], "--fail-on=error\t\n:4\n"),
        (["lint", ""], ":0\n"),
        (["bundle", "validate", ""], ":16\n"),
        (["lint", "-o", "json=re"], ":4\n"),
    ],
    ids=["a command", "a value", "files", "directories", "a file behind a format"],
)
def test_kubectl_is_answered_as_cobra_asks(
    words: list[str], printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ``kubectl polyarch <TAB>`` it runs ``kubectl_complete-polyarch``; the last line is a directive."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-polyarch", *words])
    assert complete_for_kubectl() == 0
    assert capsys.readouterr().out == printed
    assert main(["__complete-kubectl", *words]) == 0
    assert capsys.readouterr().out == printed


def test_who_has_the_plugin_alone_gets_a_program_that_asks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As krew installs it: ``kubectl-polyarch`` and nothing else. ``kubectl polyarch completion kubectl`` prints it."""
    assert main(["completion", "kubectl"]) == 0
    program = tmp_path / "kubectl_complete-polyarch"
    program.write_text(capsys.readouterr().out)
    plugin = tmp_path / "kubectl-polyarch"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m polyarch "$@"\n')
    for each in (program, plugin):
        each.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([program, "bundle", ""], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].split("\t")[0] == "validate"
    assert done.stdout.splitlines()[-1] == ":4"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_is_printed_and_nothing_written(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["completion", shell]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (SCRIPTS[shell], "")
    assert list(tmp_path.iterdir()) == []


def test_a_shell_that_is_not_known_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert '"bash", "zsh", "fish", "kubectl"' in capsys.readouterr().err


COMPLETE = {
    # What readline hands over for `polyarch lint -o json=w` and others: words are cut at `=`.
    "bash": """
source <(polyarch completion bash)
COMP_WORDS=(polyarch "$@"); COMP_CWORD=$#
_polyarch polyarch
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { : }
source <(polyarch completion zsh)
compset() { stays=$2 }
_files() { print -l -- "${words[CURRENT][stays+1,-1]}"*(N) }
_describe() { print -l -- "${candidates[@]%%:*}" }
words=(polyarch "$@"); CURRENT=$#words
_polyarch
""",
    "fish": """
source (polyarch completion fish | psub)
complete -C "polyarch $argv" | string replace -r '\\t.*' ''
""",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["li"], {"lint"}),
        (["lint", "--fail-on", ""], {"error", "warning", "info", "never"}),
        (["lint", "--baseline", "wi"], {"with blank.yaml"}),
        (["index", ""], {"create", "inspect"}),
    ],
    ids=["a command", "a value", "a file", "a sub-command"],
)
def test_the_script_works_when_it_is_sourced(shell: str, words: list[str], expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "with blank.yaml").write_text("")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    arguments = {
        "bash": ["bash", "--norc", "-c", COMPLETE["bash"], "bash", *words],
        "zsh": ["zsh", "-f", "-c", COMPLETE["zsh"], "zsh", *words],
        "fish": ["fish", "--no-config", "-c", COMPLETE["fish"], *words],
    }[shell]
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert set(done.stdout.replace("\\ ", " ").splitlines()) == expected, done.stderr


def test_bash_gets_the_part_behind_an_equals_sign(tmp_path: Path) -> None:
    """It cuts words there, and replaces only the last part."""
    (tmp_path / "web.yaml").write_text("")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for words, expected in (
        (["lint", "-o", "json", "=", "w"], "web.yaml\n"),
        (["lint", "--fail-on", "=", "e"], "error\n"),
        (["lint", "--only", "=", "MA102,MA90"], "MA102,MA901\nMA102,MA902\nMA102,MA903\nMA102,MA904\nMA102,MA905\n"),
    ):
        done = subprocess.run(
            ["bash", "--norc", "-c", COMPLETE["bash"], "bash", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == expected
