"""Quantities as whole thousandths."""

import pytest

from polyarch.quantity import MOST, InvalidQuantity, abbreviated, spelled, thousandths


@pytest.mark.req("NS-006")
@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("0", 0),
        ("1", 1000),
        (1, 1000),
        (1.5, 1500),
        ("1500m", 1500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("+3", 3000),
        ("-3", -3000),
        ("1k", 10**6),
        ("1Ki", 1024_000),
        ("16Gi", 16 * 2**30 * 1000),
        ("12e6", 12 * 10**9),
        ("12E6", 12 * 10**9),
        ("1E", MOST),
        ("5000000u", 5000),
        ("1e-3", 1),
    ],
)
def test_quantities_are_read_exactly(quantity: str | float, expected: int) -> None:
    """What Kubernetes writes, and what it accepts."""
    assert thousandths(quantity, "up") == thousandths(quantity, "down") == expected


@pytest.mark.req("NS-006")
def test_what_is_finer_than_a_thousandth_counts_against_the_pod() -> None:
    """A request is not more than it says on a node that has exactly that, and never less."""
    assert (thousandths("100u", "up"), thousandths("100u", "down")) == (1, 0)
    assert (thousandths("-100u", "up"), thousandths("-100u", "down")) == (0, -1)


@pytest.mark.req("NS-005", "NS-163")
@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1KI", "0x10", "1e", "1e+-2", "--1", "1.2.3", "١", "inf", "nan", "1" * 4001]
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a quantity such as 500m"):
        thousandths(text, "up")


@pytest.mark.req("NS-006")
def test_no_amount_is_more_than_an_array_holds() -> None:
    """The difference to more than that is nobody's."""
    assert thousandths("9e999", "up") == MOST
    assert thousandths("-9e999", "down") == -MOST


@pytest.mark.req("NS-006")
@pytest.mark.parametrize(
    ("quantity", "up", "down"),
    [
        ("10e399", MOST, MOST),
        ("1e9999999999", MOST, MOST),
        ("1e+00000000003", 1_000_000, 1_000_000),
        ("1" * 70, MOST, MOST),
        ("1e-1000", 1, 0),
        ("1e-9999999999", 1, 0),
        ("0e9999999999", 0, 0),
        ("0." + "0" * 70 + "1", 1, 0),
    ],
)
def test_what_an_api_server_takes_is_a_quantity_however_absurd(quantity: str, up: int, down: int) -> None:
    """A request that nobody can meet is not one for nothing, and not one that nobody can read."""
    assert (thousandths(quantity, "up"), thousandths(quantity, "down")) == (up, down)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_000_000, "1M"),
        (1_299_999, "1.2M"),
        (999_999_999, "999.9M"),
        (MOST / 1000, "9.2P"),
        (MOST, "9.2E"),
        (MOST * 10**6, "9.2e+24"),
        (float(MOST) * 10**6, "9.2e+24"),
    ],
)
def test_large_numbers_are_short_for_people(number: float, text: str) -> None:
    assert abbreviated(number) == text


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (1500, "1500m"), (2000, "2"), (2**34 * 1000, "16Gi"), (1536 * 1000, "1536")]
)
def test_amounts_are_spelled_for_people(amount: int, text: str) -> None:
    """As people write them."""
    assert spelled(amount) == text
    assert thousandths(spelled(amount), "up") == amount
