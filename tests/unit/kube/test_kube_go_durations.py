"""Durations as Go writes and reads them, for APIs that always took them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.durations import InvalidDuration, go_duration, parse_duration, parse_go_duration


@pytest.mark.req("NO-005")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("1h2m3.5s", 3723.5), (".5s", 0.5), ("1.s", 1), ("0", 0), ("-0", 0), ("+1m", 60), ("-1m", -60)],
)
def test_read(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == seconds


@pytest.mark.req("NO-005")
@pytest.mark.parametrize("text", ["", "10", "s", "1d", " 1s", "1s ", "1s2", "--1s", "1e3s", ".s", "1,5s", "1s\n"])
def test_refused(text: str) -> None:
    with pytest.raises(InvalidDuration, match="such as 10s"):
        parse_go_duration(text)


@pytest.mark.req("NO-003")
@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (10, "10s"), (60, "1m0s"), (3600, "1h0m0s"), (1.5, "1.5s"), (0.0005, "500µs"), (-90, "-1m30s")],
)
def test_written(seconds: float, text: str) -> None:
    """A status shows them as Go does."""
    assert go_duration(seconds) == text


@pytest.mark.req("NO-003")
@given(st.integers(-(2**53), 2**53))
def test_nothing_is_lost(nanoseconds: int) -> None:
    """Whole nanoseconds survive, as far as a float holds them."""
    assert parse_go_duration(go_duration(nanoseconds / 10**9)) == pytest.approx(nanoseconds / 10**9, abs=1e-9)


@pytest.mark.req("BD-157")
@pytest.mark.parametrize("text", ["2562048h", "99999999999999h", "9" * 400 + "h", "2562047h2562047h", "9" * 30 + "ms"])
@pytest.mark.parametrize("parse", [parse_duration, parse_go_duration])
def test_what_gos_durations_cannot_hold_is_none(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(InvalidDuration, match="durations end at 2562047h"):
        parse(text)
    assert parse("2562047h47m16s") == 2562047 * 3600 + 47 * 60 + 16
