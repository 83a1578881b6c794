"""``polyarch run numa-exporter``: its words, its help, what it prints before it starts, and how it ends."""

import json
from pathlib import Path

import pytest
import yaml

from polyarch import __version__
from polyarch.cli import main
from polyarch.cli.app import app
from polyarch.cli.completion import completions
from polyarch.cli.roles.reexec import Reexec
from polyarch.numa.exporter.flags import FLAGS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NODE_NAME", "node-1")
    return tmp_path


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Reexec]:
    """What would be run."""
    found: list[Reexec] = []
    monkeypatch.setattr(Reexec, "run", lambda self, *, own: found.append(self) or 0)
    return found


@pytest.mark.req("NE-132")
def test_help_lists_every_flag_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", "--help"]) == 0
    page = capsys.readouterr().out
    for flag in FLAGS:
        assert f" {flag}" in page
    assert page.index("Published object:") < page.index("Triggers of a scan:") < page.index("Configuration:")
    assert "Examples:" in page
    assert "Exit codes:" in page


def test_the_page_of_run_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    page = capsys.readouterr().out
    assert "Usage: polyarch run [OPTIONS] ROLE" in page
    assert "numa-exporter  Publish this node's NUMA zones" in page


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "numa-e"], ["numa-exporter", "numa-extender"]),
        (
            ["run", "numa-exporter", "--metrics-mode="],
            ["--metrics-mode=disabled", "--metrics-mode=http", "--metrics-mode=httptls"],
        ),
        (["run", "numa-exporter", "--strict"], ["--strict-config"]),
    ],
)
def test_what_can_stand_at_the_cursor(words: list[str], expected: list[str]) -> None:
    found = completions(app, words)
    assert [found.prefix + value for value, _ in found.values] == expected


@pytest.mark.req("NE-132")
def test_flags_reach_the_daemon(handed_over: list[Reexec]) -> None:
    assert main(["run", "numa-exporter", "-v4", "--sleep-interval=10s", "--podreadiness=false"]) == 0
    (found,) = handed_over
    assert found.settings.hostname == "node-1"
    assert found.settings.verbosity == 4
    assert found.settings.triggers.sleep_interval == 10.0
    assert not found.settings.publish.podreadiness


@pytest.mark.req("NE-135")
@pytest.mark.parametrize("words", [["--sleep-intervall=1s"], ["/etc"], ["--metrics-port=x", "--version"]])
def test_bad_input_ends_with_2_and_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("polyarch: run numa-exporter: ")
    assert error.count("\n") == 1


@pytest.mark.req("NE-132")
def test_the_version(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    home.joinpath(".rte/daemon/config.yaml").mkdir(parents=True)  # a file that cannot be read is no matter
    assert main(["run", "numa-exporter", "--version", str(home / ".rte")]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


# The four places of a dump ----------------------------------------------------------------------------------


@pytest.mark.req("NE-133")
def test_printed_and_then_it_starts(handed_over: list[Reexec], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", "--dump-config=-"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["nrtUpdater"]["hostname"] == "node-1"
    assert len(handed_over) == 1


@pytest.mark.req("NE-133")
def test_printed_and_that_was_all(handed_over: list[Reexec], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", "--dump-config", ".andexit"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["nrtUpdater"]["hostname"] == "node-1"
    assert handed_over == []


@pytest.mark.req("NE-133")
def test_logged(handed_over: list[Reexec], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", "--dump-config=.log"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["settings"]["nrtUpdater"]["hostname"] == "node-1"
    assert len(handed_over) == 1


@pytest.mark.req("NE-133")
def test_written_to_a_file(handed_over: list[Reexec], home: Path) -> None:
    assert main(["run", "numa-exporter", f"--dump-config={home}/dump.yaml"]) == 0
    assert yaml.safe_load(home.joinpath("dump.yaml").read_text())["nrtUpdater"]["hostname"] == "node-1"
    assert len(handed_over) == 1


@pytest.mark.req("NE-133")
def test_a_file_that_cannot_be_written_ends_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", f"--dump-config={home}/nowhere/dump.yaml"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.req("NE-135")
def test_warnings_are_entries_of_the_log(handed_over: list[Reexec], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "numa-exporter", "--watch-namespace=default"]) == 0
    entry = json.loads(capsys.readouterr().err)
    assert entry["level"] == "warning"
    assert "usage of all namespaces counts" in entry["event"]
    assert len(handed_over) == 1
