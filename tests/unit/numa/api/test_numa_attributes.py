"""Names of zones and attributes."""

import pytest

from polyarch.numa.api.topology import Attribute, attribute_value, zone_id, zone_name

TWICE = [Attribute("a", "1"), Attribute("b", "2"), Attribute("a", "3")]


@pytest.mark.req("NE-006")
@pytest.mark.parametrize(("name", "cell"), [("node-0", 0), ("node-7", 7), ("node-10", 10), ("node-63", 63)])
def test_a_zone_is_named_by_the_kernels_id(name: str, cell: int) -> None:
    """There and back."""
    assert zone_id(name) == cell
    assert zone_name(cell) == name


@pytest.mark.req("NE-006")
@pytest.mark.parametrize(
    "name",
    [
        *("", "node", "node-", "node-01", "node-00", "node-+1", "node--1", "node-1.0", "node-x", "node-1 ", " node-1"),
        *("Node-1", "socket-0", "node-0-core-1", "node-²", "node-٣", "node-" + "9" * 5000),
    ],
    ids=lambda name: name[:20],
)
def test_any_other_name_is_not_a_cell(name: str) -> None:
    """No sign, no leading zero, no digits of other scripts."""
    assert zone_id(name) is None


@pytest.mark.req("NE-006")
def test_there_is_no_cell_below_zero() -> None:
    with pytest.raises(ValueError, match="-1 is not the id of a cell"):
        zone_name(-1)


@pytest.mark.req("NE-006")
def test_the_first_attribute_of_a_name_counts() -> None:
    assert attribute_value(TWICE, "a") == "1"
    assert attribute_value(TWICE, "c") is None
