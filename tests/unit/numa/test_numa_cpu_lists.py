"""Lists of CPUs in the format of cpuset(7)."""

import pytest

from polyarch.numa.facts import cpu_list_text, parse_cpu_list


@pytest.mark.req("NE-032")
@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("", []),
        ("\n", []),
        ("0\n", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0-1,4,6-7", [0, 1, 4, 6, 7]),
        ("1023", [1023]),
    ],
)
def test_lists_are_read_and_written_alike(written: str, numbers: list[int]):
    assert parse_cpu_list(written) == frozenset(numbers)
    assert cpu_list_text(numbers) == written.strip()


@pytest.mark.req("NE-036")
@pytest.mark.parametrize("written", ["a", "0-", "-1", "3-1", "0,,1", "0 1", "0-3:2/4", "0-2000000", "٣"])
def test_anything_else_is_refused_by_name(written: str):
    with pytest.raises(ValueError, match=r"list such as|which is none"):
        parse_cpu_list(written)


@pytest.mark.req("NE-016")
def test_the_shortest_list_is_written_whatever_the_order():
    assert cpu_list_text([7, 0, 1, 2, 1, 9, 8]) == "0-2,7-9"
