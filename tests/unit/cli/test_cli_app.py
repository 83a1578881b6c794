"""The command tree: what a wrong word gets, and what a start costs."""

import subprocess
import sys

import pytest

from polyarch.cli import main


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspct", "nginx"]) == 2
    assert 'Did you mean "inspect"?' in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["inspect", "explain", "index", "up", "down", "status", "sandbox", "run"])
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
