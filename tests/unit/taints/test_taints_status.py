"""The one writer of the status, and what parts contribute to it."""

from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import NotFound
from polyarch.objects import Condition, ObjectKey, ObjectMeta
from polyarch.taints.api import (
    ARCHITECTURE_TAINTS,
    ArchitectureTaints,
    ArchitectureTaintsStatus,
    Problem,
    StatusPart,
    composed,
)
from polyarch.taints.api import StatusCondition as Stored
from polyarch.taints.status import StatusWriter

KEY = ObjectKey("", "cluster")


class TaintStatusWorld:
    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.configuration: ArchitectureTaints | None = ArchitectureTaints(
            metadata=ObjectMeta(name="cluster", uid="u1", generation=3)
        )
        self.contribution = StatusPart(fields={"nodes": {"managed": 2, "tainted": 1}})
        self.applied: list[Any] = []
        self.gone = False
        self.writer = StatusWriter(self, self, [lambda: self.contribution], clock=self.clock, **options)

    async def apply(self, resource: Any, document: Any, *, subresource: str = "") -> Any:
        assert (resource, subresource) == (ARCHITECTURE_TAINTS, "status")
        if self.gone:
            raise NotFound(404)
        self.applied.append(document)
        assert self.configuration is not None
        status = msgspec.convert(document["status"], ArchitectureTaintsStatus)
        self.configuration = msgspec.structs.replace(self.configuration, status=status)

    async def look(self, after: float = 0.0) -> Any:
        self.clock.advance(after)
        return await self.writer.reconcile(KEY)


@pytest.mark.req("TN-014")
async def test_it_is_written_when_it_changed_and_not_otherwise() -> None:
    world = TaintStatusWorld()
    assert await world.look() == RequeueAfter(10.0)
    assert [each["metadata"] for each in world.applied] == [{"name": "cluster", "uid": "u1"}]
    status = world.applied[0]["status"]
    assert status["observedGeneration"] == 3
    assert status["nodes"] == {"managed": 2, "tainted": 1}
    assert {each["type"]: (each["status"], each["observedGeneration"]) for each in status["conditions"]} == {
        "Ready": ("True", 3),
        "Degraded": ("False", 3),
    }
    for _ in range(5):
        await world.look(60)
    assert len(world.applied) == 1


@pytest.mark.req("TN-014")
async def test_conditions_of_others_are_left_alone() -> None:
    world = TaintStatusWorld()
    await world.look()
    theirs = Stored(type="AffinityCovered", status="False", reason="PlacementNotConfigured")
    status = world.configuration.status
    status = msgspec.structs.replace(status, conditions=[theirs, *reversed(status.conditions)])
    world.configuration = msgspec.structs.replace(world.configuration, status=status)
    await world.look(60)
    assert len(world.applied) == 1


@pytest.mark.req("TN-014")
async def test_at_most_every_ten_seconds() -> None:
    world = TaintStatusWorld()
    await world.look()
    world.contribution = StatusPart(fields={"nodes": {"managed": 3}})
    assert await world.look(4) == RequeueAfter(6.0)
    assert len(world.applied) == 1
    await world.look(6)
    assert len(world.applied) == 2


@pytest.mark.req("TN-014")
async def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    world = TaintStatusWorld()
    world.contribution = StatusPart(conditions=(Condition("NodesTainted", "False", "InProgress", "1 of 2"),))
    await world.look()
    world.contribution = StatusPart(conditions=(Condition("NodesTainted", "False", "InProgress", "2 of 3"),))
    await world.look(60)
    world.contribution = StatusPart(conditions=(Condition("NodesTainted", "True", "AllTainted"),))
    await world.look(60)
    times = [
        next(each["lastTransitionTime"] for each in document["status"]["conditions"] if each["type"] == "NodesTainted")
        for document in world.applied
    ]
    assert times == ["2025-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "2025-01-01T00:02:00Z"]


async def test_without_the_object_nothing_is_written() -> None:
    world = TaintStatusWorld()
    world.gone = True
    await world.look()
    world.configuration = None
    assert await world.look(60) == NoRequeue()
    assert world.applied == []


async def test_a_configuration_from_a_file_is_only_logged(capsys: pytest.CaptureFixture[str]) -> None:
    world = TaintStatusWorld(from_file=True)
    for _ in range(3):
        await world.look(60)
    assert world.applied == []
    assert capsys.readouterr().out.count("managed") == 1


@pytest.mark.req("TN-014")
def test_parts_make_one_status_together() -> None:
    fields, conditions = composed(
        [
            StatusPart(fields={"nodes": 1}, conditions=(Condition("NodesTainted", "True", "AllTainted"),)),
            StatusPart(fields={"pods": 2}, problems=(Problem("A", "first"), Problem("B", "second"))),
            StatusPart(problems=(Problem("C", "first"),), unready=(Problem("AdmissionNotReady", "no webhook"),)),
        ]
    )
    assert fields == {"nodes": 1, "pods": 2}
    assert [(each.type, each.status, each.reason, each.message) for each in conditions] == [
        ("Ready", "False", "AdmissionNotReady", "no webhook"),
        ("NodesTainted", "True", "AllTainted", ""),
        ("Degraded", "True", "A", "first; second"),
    ]


@pytest.mark.parametrize(
    "part",
    [StatusPart(fields={"nodes": 1}), StatusPart(conditions=(Condition("NodesTainted", "True", "AllTainted"),))],
)
def test_two_parts_do_not_give_the_same(part: StatusPart) -> None:
    with pytest.raises(ValueError, match="two parts"):
        composed([part, part])


@pytest.mark.req("TN-083")
async def test_an_alert_can_see_whether_it_is_degraded() -> None:
    """And no longer once the object is gone."""
    world = TaintStatusWorld()
    await world.look()
    assert not world.writer.is_degraded
    world.contribution = StatusPart(problems=(Problem("PodsBecamePending", "stopped"),))
    await world.look(10)
    assert world.writer.is_degraded
    world.configuration = None
    await world.look(10)
    assert not world.writer.is_degraded
