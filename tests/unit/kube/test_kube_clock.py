"""The clock that tests move by hand behaves like the machine's, only without waiting."""

import asyncio
from datetime import UTC, datetime

import pytest
from manual_clock import ManualClock

from polyarch.clock import Clock, SystemClock, Timer, deadline


async def test_sleepers_wake_in_the_order_of_their_deadlines():
    clock, woken = ManualClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (3, 1, 2):
            tasks.create_task(sleeper(seconds))
        await clock.settle()
        assert clock.sleepers == 3
        clock.advance(1.5)
        await clock.settle()
        assert woken == [1]
        clock.advance(2)
    assert woken == [1, 2, 3]


async def test_run_passes_through_every_deadline_on_the_way():
    clock, times = ManualClock(start=0), []

    async def loop() -> None:
        while True:
            await clock.sleep(10)
            times.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await clock.run(35)
    assert times == [10, 20, 30]
    assert clock.monotonic() == 35
    task.cancel()
    await asyncio.wait([task])
    assert clock.sleepers == 0


def test_now_moves_with_the_monotonic_clock():
    clock = ManualClock(now=datetime(2026, 2, 3, tzinfo=UTC))
    clock.advance(90)
    assert clock.now() == datetime(2026, 2, 3, 0, 1, 30, tzinfo=UTC)


async def test_a_sleep_of_nothing_returns_without_moving_time():
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.sleepers == 0


async def test_the_system_clock_gives_utc_and_sleeps():
    clock: Clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC


async def test_an_alarm_rings_once_at_the_time_last_set():
    clock, rung = ManualClock(start=0), []
    alarm = Timer(clock, lambda: rung.append(clock.monotonic()))
    alarm.set(10)
    alarm.set(4)
    await clock.run(20)
    assert rung == [4]
    alarm.set(30)
    alarm.stop()
    await clock.run(20)
    assert rung == [4]
    assert clock.sleepers == 0


@pytest.mark.parametrize("clock", [pytest.param(ManualClock(), id="manual"), pytest.param(SystemClock(), id="system")])
async def test_a_deadline_cancels_what_takes_too_long(clock):
    async def body() -> str:
        try:
            async with deadline(clock, 0.01) as scope:
                await asyncio.Event().wait()
        except TimeoutError:
            return "late" if scope.expired() else "other"
        return "in time"

    task = asyncio.create_task(body())
    if isinstance(clock, ManualClock):
        await clock.run(1)
    assert await task == "late"


async def test_a_deadline_that_is_kept_leaves_nothing_behind():
    clock = ManualClock()
    async with deadline(clock, 5):
        await asyncio.sleep(0)
    async with deadline(clock, None):
        await clock.sleep(0)
    await clock.settle()
    assert clock.sleepers == 0
