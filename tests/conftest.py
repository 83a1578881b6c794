"""What every test gets: the settings of a process are as before, peers by name, and nothing is skipped in silence.

A *peer* is a program with which polyarch is compared or under which it runs (``tools/peers``). Which took part in a
run, in which version, and which did not and why, stands at its end. With ``CI=true`` a test that is skipped has
failed, unless its peer cannot be had on such a machine.
"""

import functools
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tools.peers.catalogue import BY_NAME, Absent, Origin, continuous_integration, found
from tools.peers.summary import PROPERTY, excused, summary, use
from xdist.remote import Producer

from lanes import LaneScheduling, durations, order, strays
from long import faults, mark

find = functools.cache(found)

TERMINAL: Final = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "COLORTERM")
ENVIRONMENT_ONLY: Final = [Path(__file__).parent / folder for folder in ("unit", "properties")]
"""Tests that `make check` runs, which builds and installs no peer."""

# Wall time proves nothing on a machine that runs several suites at once; `timeout` in pyproject.toml ends what hangs.
settings.register_profile("polyarch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polyarch")


def pytest_configure() -> None:
    """Shells start what they put in the background with SIGINT ignored, and so would be all that tests start."""
    # What a terminal shows does not depend on the terminal of who runs the tests.
    for name in TERMINAL:
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling | None:
    """``--dist loadfile`` gives a worker the files of a lane."""
    return LaneScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order(items)
    mark(items)
    found = strays(items)
    # Of a file of which some tests are asked for the others are not known.
    if not config.getoption("lf", default=False) and not any("::" in each for each in config.args):
        found += faults(item.nodeid for item in items)
    if found:
        raise pytest.UsageError("\n".join(found))


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command sends its logs to the stderr it was started with, which is closed when its test has ended."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def peer(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Callable[[str], str]:
    """``peer("helm-4")``: that program's path; where it is not there the test is skipped, with the reason."""

    def program(name: str) -> str:
        if BY_NAME[name].origin is not Origin.ENVIRONMENT and any(
            folder in request.path.parents for folder in ENVIRONMENT_ONLY
        ):
            pytest.fail(f"`make check` does not bring {name}: a test that runs it belongs in tests/oracles")
        found = find(name)
        record_property(PROPERTY, use(name, found))
        if isinstance(found, Absent):
            pytest.skip(f"{name}: {found.why}")
        return found.program

    return program


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Who reads of a run that it passed takes it that every test ran."""
    report = yield
    passed_over = report.skipped and not hasattr(report, "wasxfail")
    if passed_over and continuous_integration() and not excused(item.user_properties):
        report.outcome = "failed"
        report.longrepr = f"skipped, and with CI=true every test has to run: {report.longrepr[2]}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [
        report for each in terminalreporter.stats.values() for report in each if isinstance(report, pytest.TestReport)
    ]
    if lines := summary(
        (each.nodeid, each.user_properties) for each in reports if each.when == "call" or not each.passed
    ):
        terminalreporter.section("peers")
        for line in lines:
            terminalreporter.line(line)
    if config.getoption("dist", default="no") == "loadfile":
        terminalreporter.section("lanes")
        for line in durations((report.nodeid, report.duration) for report in reports):
            terminalreporter.line(line)
