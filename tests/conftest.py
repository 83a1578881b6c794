"""What every test gets: the settings of a process that a test changed are as before when the next one begins."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command sends its logs to the stderr it was started with, which is closed when its test has ended."""
    yield
    structlog.reset_defaults()
