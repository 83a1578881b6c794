"""The status is written where it differs, and each transition is told once."""

from typing import Any

import pytest
from fake_api import FakeApi
from fake_recorder import FakeRecorder
from manual_clock import ManualClock

from polyarch.kube.metrics import Metrics
from polyarch.numa.api.resources import OPERATORS
from polyarch.objects import Condition, Unstructured
from polyarch.operator.components.numa_cluster import NumaMetrics, NumaStatusWriter, difference, transition
from polyarch.operator.components.numa_facts import OperatorCondition, PlannedEvent, four

Json = dict[str, Any]
AVAILABLE = four(OperatorCondition("Available", message="all: 3 nodes"))
DEGRADED = four(OperatorCondition("Degraded", "ValidationErrorUnderNodeGroups", "nodeGroups[0]: no name"))


class NumaStatusWorld:
    def __init__(self) -> None:
        self.clock, self.api, self.told, self.metrics = ManualClock(), FakeApi(), FakeRecorder(), Metrics()
        self.api.put(OPERATORS, {"metadata": {"name": "numaresourcesoperator", "uid": "u", "generation": 3}})
        self.telling = NumaStatusWriter(
            self.api,  # type: ignore[arg-type]  # as far as it is asked
            OPERATORS,
            self.api.informer(OPERATORS, Unstructured),  # type: ignore[arg-type]
            recorder=self.told,  # type: ignore[arg-type]
            metrics=NumaMetrics(self.metrics),
            clock=self.clock,
        )

    @property
    def live(self) -> Unstructured:
        return Unstructured(self.api.read(OPERATORS, "numaresourcesoperator"))

    async def tell(self, status: Json, conditions: tuple[Condition, ...], *announcements: PlannedEvent) -> bool:
        return await self.telling.write(self.live, status, conditions, announcements)


@pytest.mark.req("NO-092")
async def test_the_same_status_is_not_written_twice() -> None:
    world = NumaStatusWorld()
    for _ in range(3):
        assert await world.tell({"daemonsets": []}, AVAILABLE)
        world.clock.advance(60)
    assert world.api.writes() == [("patch", str(OPERATORS), "numaresourcesoperator")]
    assert {each["observedGeneration"] for each in world.live.status["conditions"]} == {3}


@pytest.mark.req("NO-092")
async def test_the_time_of_a_transition_moves_with_the_status_alone() -> None:
    world = NumaStatusWorld()
    await world.tell({}, AVAILABLE)
    before = {each["type"]: each["lastTransitionTime"] for each in world.live.status["conditions"]}
    world.clock.advance(60)
    await world.tell({}, four(OperatorCondition("Available", message="all: 4 nodes")))
    found = world.live.status["conditions"]
    assert {each["message"] for each in found} == {"all: 4 nodes"}
    assert {each["type"]: each["lastTransitionTime"] for each in found} == before


@pytest.mark.req("NO-092")
async def test_an_object_that_has_changed_meanwhile_is_read_again() -> None:
    world = NumaStatusWorld()
    seen = world.live
    world.api.put(OPERATORS, {"metadata": {"name": "numaresourcesoperator", "uid": "u", "generation": 4}})
    assert not await world.telling.write(seen, {}, AVAILABLE)
    assert world.live.status == {}


@pytest.mark.req("NO-095")
async def test_a_transition_is_one_event_and_a_metric() -> None:
    world = NumaStatusWorld()
    for conditions in (AVAILABLE, AVAILABLE, DEGRADED, DEGRADED, AVAILABLE):
        await world.tell({}, conditions)
    assert [reason for reason, _, _ in world.told.events] == [
        "Available",
        "ValidationErrorUnderNodeGroups",
        "Available",
    ]
    text = world.metrics.render()[0].decode()
    assert 'polyarch_operator_condition{kind="NUMAResourcesOperator",type="Available"} 1.0' in text
    assert 'polyarch_operator_condition{kind="NUMAResourcesOperator",type="Degraded"} 0.0' in text


@pytest.mark.req("NO-101")
async def test_what_is_announced_is_told_once_as_long_as_it_is_true() -> None:
    world = NumaStatusWorld()
    unknown = PlannedEvent("Warning", "UnknownAnnotation", "node group a has annotation b, which means nothing here")
    for several in ((unknown,), (unknown,), (), (unknown,)):
        await world.tell({}, AVAILABLE, *several)
    assert [reason for reason, _, _ in world.told.events].count("UnknownAnnotation") == 2


@pytest.mark.req("NO-095")
def test_another_reason_for_the_same_state_is_a_transition() -> None:
    before = [{"type": each.type, "status": each.status, "reason": each.reason} for each in DEGRADED]
    event = transition(before, four(OperatorCondition("Degraded", "CustomUserImage", "no")))
    assert event == PlannedEvent("Warning", "CustomUserImage", "no")
    assert transition(before, DEGRADED) is None


@pytest.mark.req("NO-092")
def test_what_is_not_wanted_any_more_is_removed() -> None:
    found = {"daemonsets": [1], "deployment": {"name": "a", "namespace": "b"}, "old": 1}
    wanted = {"daemonsets": [1], "deployment": {"name": "c"}}
    assert difference(found, wanted) == {"deployment": {"name": "c", "namespace": None}, "old": None}
