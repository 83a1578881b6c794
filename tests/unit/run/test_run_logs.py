"""What reaches the logs of a process."""

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
