"""When the report is made anew, and what is shown of it meanwhile."""

import asyncio

import pytest
from manual_clock import ManualClock
from placement_world import FakeWatches, facts_of, policy, value

from polyarch.kube.errors import KubernetesError
from polyarch.kube.metrics import Metrics
from polyarch.placement.api import POLICIES
from polyarch.run.report_controller import LATER, SOON, ReportController, ReportNotReady

HOURLY = {"enabled": True, "interval": "1h"}
CORES, WORKLOADS = "polyarch_report_weight_cores", "polyarch_report_workloads"


class Rounds:
    """Reports with these sums, or failures, one after another; the last one stays."""

    def __init__(self, *results) -> None:
        self.results = list(results)
        self.made = 0

    async def make(self):
        result = self.results[min(self.made, len(self.results) - 1)]
        self.made += 1
        if isinstance(result, Exception):
            raise result
        return result


class ReportControllerWorld:
    def __init__(self, rounds: Rounds, **report) -> None:
        self.clock, self.watches, self.metrics = ManualClock(), FakeWatches(), Metrics()
        self.facts = facts_of(self.watches, self.clock, policy={"report": report} if report else {})
        self.rounds, self.loaded = rounds, 0
        self.keeper = ReportController(self.load, facts=self.facts, metrics=self.metrics, clock=self.clock)
        self.tasks = [asyncio.create_task(self.facts.run()), asyncio.create_task(self.keeper.run())]

    def load(self) -> Rounds:
        self.loaded += 1
        return self.rounds

    def change(self, **report) -> None:
        self.watches[POLICIES.plural].put(policy(report=report))

    def cores(self, target: str, verdict: str) -> float:
        return value(self.metrics, CORES, target=target, verdict=verdict)

    @property
    def shown(self) -> list[str]:
        return [line for line in self.metrics.render()[0].decode().splitlines() if line.startswith("polyarch_report_")]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def make():
    made = []

    def world(rounds, **report):
        made.append(ReportControllerWorld(rounds, **report))
        return made[-1]

    yield world
    for each in made:
        await each.end()


@pytest.mark.req("RP-030")
async def test_without_the_setting_nothing_is_made_nor_loaded(make):
    world = make(Rounds([("arm64", "ready", 2.0, 1)]))
    await world.clock.run(100_000)
    assert (world.rounds.made, world.loaded, world.shown) == (0, 0, [])


@pytest.mark.req("RP-030")
async def test_a_report_is_made_at_once_and_then_at_the_interval(make):
    world = make(Rounds([("arm64", "ready", 2.5, 3)]), **HOURLY)
    await world.clock.run(1)
    assert world.rounds.made == 1
    assert world.cores("arm64", "ready") == 2.5
    assert value(world.metrics, WORKLOADS, target="arm64", verdict="ready") == 3
    await world.clock.run(3590)
    assert world.rounds.made == 1
    await world.clock.run(20)
    assert (world.rounds.made, world.loaded) == (2, 1)


@pytest.mark.req("RP-030")
async def test_what_a_new_report_no_longer_has_is_no_longer_shown(make):
    world = make(
        Rounds([("arm64", "ready", 2.0, 1), ("s390x", "image", 2.0, 1)], [("arm64", "runs", 2.0, 1)]), **HOURLY
    )
    await world.clock.run(3601)
    assert world.shown == [
        'polyarch_report_weight_cores{target="arm64",verdict="runs"} 2.0',
        'polyarch_report_workloads{target="arm64",verdict="runs"} 1.0',
    ]


@pytest.mark.req("RP-030")
async def test_a_policy_that_no_longer_wants_it_takes_the_numbers_away(make):
    world = make(Rounds([("arm64", "ready", 2.0, 1)]), **HOURLY)
    await world.clock.run(1)
    world.change(enabled=False)
    await world.clock.run(10_000)
    assert (world.rounds.made, world.shown) == (1, [])
    world.change(**HOURLY)
    await world.clock.run(1)
    assert world.rounds.made == 2


@pytest.mark.req("RP-030")
async def test_a_shorter_interval_counts_from_the_last_report(make):
    world = make(Rounds([]), **HOURLY)
    await world.clock.run(900)
    world.change(enabled=True, interval="10m")
    await world.clock.run(1)
    assert world.rounds.made == 2


@pytest.mark.req("RP-030")
async def test_who_no_longer_leads_shows_nothing(make):
    world = make(Rounds([("arm64", "ready", 2.0, 1)]), **HOURLY)
    await world.clock.run(1)
    await world.end()
    assert world.shown == []


@pytest.mark.req("RP-030")
@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (ReportNotReady("the operator makes it", again=SOON), SOON),
        (ReportNotReady("no node names its architecture"), LATER),
        (KubernetesError("no answer"), LATER),
        (RuntimeError("a mistake of ours"), LATER),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_after_a_failure_it_is_tried_again_and_the_former_numbers_stay(make, failure, seconds):
    world = make(Rounds([("arm64", "ready", 2.0, 1)], failure, [("arm64", "ready", 4.0, 1)]), **HOURLY)
    await world.clock.run(3601)
    assert (world.rounds.made, world.cores("arm64", "ready")) == (2, 2.0)
    await world.clock.run(seconds - 1.5)
    assert world.rounds.made == 2
    await world.clock.run(1)
    assert (world.rounds.made, world.cores("arm64", "ready")) == (3, 4.0)
    await world.clock.run(3000)
    assert world.rounds.made == 3
