"""Tables that fit a terminal: folded within their columns, and with every character that they had."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from polyarch.cli.output import terminal
from polyarch.cli.output.tables import Row, StyledText, fitting, folded, table

pytestmark = pytest.mark.req("RP-020")

IMAGE = "registry.example.com/some/path/to/an-image:v1.2.3"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("it fits", 7, ["it fits"]),
        ("it does not fit", 8, ["it does", "not fit"]),
        (IMAGE, 30, ["registry.example.com/some/", "path/to/an-image:v1.2.3"]),
        ("aaaaaaaa", 3, ["aaa", "aaa", "aa"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
        ("漢", 1, ["漢"]),
        ("", 5, [""]),
    ],
)
def test_a_text_ends_its_lines_where_it_is_best_read(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width) == lines


@given(st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" ")), st.integers(2, 40))
def test_no_line_is_too_wide_and_only_white_space_is_lost(text: str, width: int) -> None:
    lines = folded(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("widths", "least", "most", "found"),
    [
        ([5, 5], [1, 1], 10, [5, 5]),
        ([5, 20, 30], [5, 8, 8], 35, [5, 15, 15]),
        ([5, 20, 12], [5, 8, 8], 29, [5, 12, 12]),
        ([9, 20], [9, 8], 3, [9, 8]),
    ],
)
def test_the_widest_columns_give_way(widths: list[int], least: list[int], most: int, found: list[int]) -> None:
    assert fitting(widths, least, most) == found


def test_a_name_is_broken_only_where_there_is_no_room_for_it() -> None:
    """What is broken cannot be copied; sentences of other columns give way first."""
    rows = [Row(("team/Deployment/billing", IMAGE, "a sentence of many words " * 4))]
    header = ("WORKLOAD", "IMAGE", "WHY")
    for width in (140, 120, 100, 84):
        lines = table(header, rows, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width
        assert any(IMAGE in line for line in lines), width
    assert IMAGE not in table(header, rows, width=60)


def test_a_table_is_as_wide_as_the_terminal_and_what_is_drawn_stays_whole() -> None:
    rows = [Row((IMAGE, StyledText("\x1b[32m████\x1b[0m", 4), "a sentence of many words " * 4), "red")]
    whole = table(("IMAGE", "SHARE", "WHY"), rows)
    assert len(whole.splitlines()) == 2, "a row is a line where no width is given"
    for width in (60, 100):
        lines = table(("IMAGE", "SHARE", "WHY"), rows, width=width).splitlines()
        assert max(cell_len(line.replace("\x1b[32m", "").replace("\x1b[0m", "")) for line in lines) <= width
        assert sum("████" in line for line in lines) == 1
        assert "".join("".join(lines).split()).count("words") == 4


def test_with_little_room_the_last_column_stands_below_its_row() -> None:
    rows = [Row(("shop/Deployment/web", "image", "it has linux/amd64, not arm64")), Row(("shop/Pod/a", "ready", ""))]
    assert table(("WORKLOAD", "VERDICT", "WHY"), rows, width=40).splitlines() == [
        "WORKLOAD              VERDICT",
        "   WHY",
        "shop/Deployment/web   image",
        "   it has linux/amd64, not arm64",
        "shop/Pod/a            ready",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_has_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert terminal.terminal_width() is None
    monkeypatch.setattr("sys.stdout", Terminal())
    assert terminal.terminal_width() == 97
