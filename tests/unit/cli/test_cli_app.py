"""The command tree: what a wrong word gets, and what a start costs."""

import re
import subprocess
import sys

import pytest
import structlog

from polyarch.cli import main
from polyarch.cli.logs import errors_only


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspct", "nginx"]) == 2
    assert 'Did you mean "inspect"?' in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "command", ["inspect", "explain", "lint", "fix", "bundle", "index", "up", "down", "status", "sandbox", "run"]
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"Usage: polyarch {command}" in capsys.readouterr().out


def test_help_starts_without_a_network_stack() -> None:
    """DESIGN: sub-commands are loaded only when they run, so that a pure command starts at once."""
    code = (
        "import sys; from polyarch.cli import main; main(['--help']);"
        "heavy = {'aiohttp', 'asyncio.sslproto', 'cryptography', 'numpy'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_logs_of_a_command_are_errors_on_stderr_without_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """PL-850: what a frame holds may be a token; stdout is for the answer alone."""
    errors_only()
    log = structlog.get_logger("test")
    token = "marker-" + "secret"
    log.info("nobody asked")
    try:
        raise ValueError(len(token))
    except ValueError:
        log.exception("it broke")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "it broke" in shown.err
    assert "nobody asked" not in shown.err
    assert "marker-secret" not in shown.err


COMMANDS = [
    ["inspect"],
    ["explain"],
    ["lint"],
    ["fix"],
    ["bundle", "validate"],
    ["index", "create"],
    ["index", "inspect"],
    ["up"],
    ["down"],
    ["status"],
    ["sandbox", "fetch"],
    ["sandbox", "seed"],
    ["sandbox", "list"],
    ["run"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_option_is_there_only_because_a_library_makes_it_up(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """``--empty-…`` says nothing that leaving the option out would not; ``--no-…`` is there where the default is on."""
    assert main([*command, "--help"]) == 0
    options = re.findall(r"--[a-z-]+", capsys.readouterr().out)
    assert not [option for option in options if option.startswith("--empty-")]
    assert {option for option in options if option.startswith("--no-")} <= {"--no-cache", "--no-leader-elect"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_examples_and_exit_codes(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert f"polyarch {' '.join(command)} " in shown
    assert "Exit codes:" in shown
    assert "2: the command line" in shown
