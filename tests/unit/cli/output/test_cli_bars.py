"""Bars are the same wherever one is drawn: in `numa top` and in a report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.cli.output.tables import EMPTY, FULL, PARTLY, Row, StyledText, bar, legend, table


@pytest.mark.req("NS-160")
@pytest.mark.parametrize(
    ("full", "partly", "shown"),
    [
        (0.0, 0.0, "········"),
        (0.5, 0.25, "████▒▒··"),
        (1.0, 0.0, "████████"),
        (0.0, 1.0, "▒▒▒▒▒▒▒▒"),
        (0.06, 0.06, "▒·······"),
    ],
)
def test_a_bar_shows_two_shares_and_what_is_left(full: float, partly: float, shown: str) -> None:
    drawn = bar(full, partly, width=8, style="green", partly_style="yellow", colour=False)
    assert drawn == StyledText(shown, 8)


@pytest.mark.req("NS-160")
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 40))
def test_no_rounding_makes_a_bar_longer_or_shorter(full: float, rest: float, width: int) -> None:
    drawn = bar(full, (1 - full) * rest, width=width, style="green", partly_style="yellow", colour=False)
    assert len(drawn.shown) == width
    assert drawn.shown == drawn.shown.count(FULL) * FULL + drawn.shown.count(PARTLY) * PARTLY + (
        drawn.shown.count(EMPTY) * EMPTY
    )


@pytest.mark.req("NS-160")
def test_without_colour_a_bar_has_no_escape_and_a_legend_says_what_it_means() -> None:
    assert "\x1b" not in bar(0.5, 0.5, width=4, style="red", partly_style="red", colour=False).shown
    assert legend("used", "reserved", "free") == "█ used  ▒ reserved  · free"


@pytest.mark.req("RP-020")
def test_a_table_aligns_coloured_bars_by_what_is_seen_of_them() -> None:
    drawn = bar(0.5, 0.0, width=4, style="green", partly_style="green", colour=True)
    lines = table(("A", "B"), [Row((drawn, "x")), Row(("longer", "\x1b[2J"))], colour=True).splitlines()
    assert lines[1].endswith(f"{drawn.shown}     x")
    assert lines[2] == "longer   �[2J"
