"""What reaches the logs of a process."""

import io
from pathlib import Path

import pytest
import structlog

from polyarch.run import logs
from polyarch.run.settings import LogFormat


@pytest.mark.req("PL-850")
@pytest.mark.parametrize("format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    """Frames of a client hold headers with tokens; a log line shows where it broke, never what was there."""
    logs.configure(format)
    try:
        token = "marker-" + "secret"
        try:
            raise ValueError(len(token))
        except ValueError:
            structlog.get_logger("test").exception("it broke")
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "it broke" in written
    assert "ValueError" in written
    assert "marker-secret" not in written


@pytest.mark.req("PL-811")
@pytest.mark.parametrize("format", ["json", "console"])
def test_a_full_disk_costs_log_lines_only(format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as disk:
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(disk, write_through=True))
        logs.configure(format)
        try:
            for _ in range(100):
                structlog.get_logger("test").error("nobody reads this", about="x" * 1000)
        finally:
            structlog.reset_defaults()
