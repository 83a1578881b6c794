"""The time of one image and the flights that spend it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.oci.concurrency import SingleFlight
from polyarch.oci.traffic.exchange import TimeBudget
from polyarch.oci.traffic.failures import clean, read_errors

pytestmark = pytest.mark.req("RG-051", "RG-062", "RG-113")


@pytest.fixture
def budget(clock):
    return TimeBudget(clock, seconds=10.0, max_wait=60.0)


def test_only_work_counts(budget, clock):
    with budget.running():
        clock.advance(3)
        assert budget.remaining == 7
    clock.advance(100)  # in line
    assert budget.remaining == 7


def test_requests_of_one_image_that_run_together_count_once(budget, clock):
    with budget.running():
        clock.advance(1)
        with budget.running():
            clock.advance(2)
        clock.advance(1)
    assert budget.remaining == 6


def test_it_ends_at_nothing(budget, clock):
    with budget.running():
        clock.advance(11)
        assert budget.remaining == 0


@pytest.mark.req("RG-064")
def test_a_source_gets_half_of_what_is_left(budget, clock):
    with budget.running():
        clock.advance(2)
    part = budget.half()
    assert part.remaining == 4
    with part.running():
        clock.advance(3)
        assert (part.remaining, budget.remaining) == (1, 5)
    assert (part.remaining, budget.remaining, budget.half().remaining) == (1, 5, 2.5)


async def test_pauses_add_up(budget, clock):
    assert budget.may_wait(60)
    await budget.wait(40)
    assert budget.may_wait(20)
    assert not budget.may_wait(21)
    assert budget.remaining == 10


async def test_closing_ends_flights_and_tells_who_waits():
    flights, ended = SingleFlight(), []

    async def fly():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    waiting = asyncio.create_task(flights.join("key", fly))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await flights.close()
    assert ended == [True]
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(flights) == 0


@pytest.mark.req("PL-810", "RG-052")
async def test_a_flight_lasts_as_long_as_somebody_waits_for_it():
    flights, ended = SingleFlight(), []

    async def fly():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    waiting = [asyncio.create_task(flights.join("key", fly)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    assert (ended, "key" in flights) == ([], True)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert "key" not in flights  # who comes now gets a flight of his own
    await asyncio.sleep(0)
    assert (ended, len(flights)) == ([True], 0)


async def test_a_flight_that_has_just_landed_takes_nobody_on_board():
    """Whoever finds that its result is too old for him asks again, and would be given it for ever without a pause."""
    flights, flown = SingleFlight(), []

    async def fly():
        flown.append(True)
        return len(flown)

    first = asyncio.create_task(flights.join("key", fly))
    await asyncio.sleep(0)  # it is about to fly
    await asyncio.sleep(0)  # it has flown, and nobody was told yet
    assert (flown, first.done()) == ([True], False)
    assert "key" not in flights
    assert await flights.join("key", fly) == 2
    assert await first == 1


async def test_a_failure_reaches_all_who_wait_and_nobody_later():
    flights, flown = SingleFlight(), []

    async def fly():
        flown.append(True)
        await asyncio.sleep(0)
        raise LookupError("lost")

    results = await asyncio.gather(*(flights.join("key", fly) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in results] == ["lost"] * 3
    assert (len(flown), "key" in flights) == (1, False)
    with pytest.raises(LookupError):
        await flights.join("key", fly)
    assert len(flown) == 2


@pytest.mark.req("RG-060")
@given(st.binary(), st.lists(st.text(min_size=1)))
def test_any_error_body_makes_a_fit_text(body, secrets):
    """At most 200 characters, no control characters."""
    said = read_errors(body, secrets)
    assert len(said.message) <= 200
    assert str(said).isprintable()


@pytest.mark.req("RG-087")
@given(st.text(), st.text(min_size=4), st.text())
def test_a_secret_is_blotted_out_wherever_it_stands(before, secret, after):
    shown = clean(before + secret + after, [secret])
    assert secret not in shown or secret in clean(before + "…" + after)
