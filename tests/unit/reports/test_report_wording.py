"""Numbers and words of a report, as every form of it has them."""

import pytest

from polyarch.reports.document import Saving
from polyarch.reports.wording import cores, counted, few, memory, percent, saved, steps


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "-"),
        (0, "0.0 %"),
        (1, "100.0 %"),
        (0.9996, "99.9 %"),
        (0.29, "29.0 %"),
        (0.57, "57.0 %"),
        (1 / 3, "33.3 %"),
    ],
)
def test_a_share_is_never_more_than_there_is(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (-0.001, "0"),
        (0.25, "0.25"),
        (9.999, "10"),
        (12.34, "12.3"),
        (120, "120"),
        (999_999, "999999"),
        (2e6, "2M"),
        (-9.22e15, "-9.2P"),
    ],
)
def test_cores_have_few_digits(amount: float, text: str) -> None:
    assert cores(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 B"), (1023, "1023 B"), (1536 << 20, "1.5 GiB"), (5 << 60, "5120 PiB")]
)
def test_memory_has_a_unit(amount: int, text: str) -> None:
    assert memory(amount) == text


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [0, 1]), (8, list(range(9))), (80, list(range(0, 81, 10))), (0, [0])]
)
def test_an_axis_has_round_numbers(most: int, expected: list[int]) -> None:
    assert steps(most, 8) == expected


def test_what_is_counted_has_its_number_and_a_list_its_end() -> None:
    assert [counted(1, "image"), counted(2, "image"), counted(0, "is", "are")] == ["1 image", "2 images", "0 are"]
    assert few(["a", "b"], 2) == "a, b"
    assert few(["a", "b", "c", "d"], 2) == "a, b and 2 more"


@pytest.mark.req("RP-014")
@pytest.mark.parametrize(
    ("saving", "words"),
    [
        (Saving(1, 5.84, "1 x 5.84"), "moving 1 core that is ready would save about 5.84 a month"),
        (Saving(12, 70.08, "12 x 5.84"), "moving 12 cores that are ready would save about 70.08 a month"),
        (Saving(12, -1070.08, "12 x -89"), "moving 12 cores that are ready would cost about 1,070.08 a month"),
        (Saving(0, 0, "nothing is ready"), "nothing is ready"),
    ],
)
def test_a_saving_below_nothing_is_a_cost_and_none_is_no_sum(saving: Saving, words: str) -> None:
    assert saved(saving).split(" (an estimate: ")[0] == words
