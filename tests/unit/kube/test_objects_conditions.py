"""Conditions are merged by type; the time moves with the status alone, and nothing is written twice."""

from datetime import UTC, datetime
from typing import Any

import pytest

from polyarch.kube.conditions import apply_status, merged, taking_over
from polyarch.kube.patches import add, replace, test
from polyarch.kube.resources import CRDS, Resource
from polyarch.objects import Condition, PartialObjectMetadata, Unstructured

NOW = datetime(2025, 6, 1, 12, 30, tzinfo=UTC)
THEN = "2025-01-01T00:00:00Z"
KNOWN = {
    "type": "Ready",
    "status": "True",
    "reason": "AsExpected",
    "message": "",
    "observedGeneration": 1,
    "lastTransitionTime": THEN,
}


@pytest.mark.req("KR-052")
@pytest.mark.parametrize(
    ("found", "generation", "since"),
    [
        pytest.param(Condition("Ready", "True", "AsExpected"), 1, THEN, id="the same"),
        pytest.param(Condition("Ready", "True", "Slow", "2 of 3"), 2, THEN, id="another reason"),
        pytest.param(Condition("Ready", "False", "AsExpected"), 1, "2025-06-01T12:30:00Z", id="another status"),
        pytest.param(Condition("Degraded", "False", "AsExpected"), 1, "2025-06-01T12:30:00Z", id="another type"),
    ],
)
def test_the_time_of_the_transition_moves_with_the_status_alone(found, generation, since):
    assert merged([found], [KNOWN], generation=generation, now=NOW) == [
        {
            "type": found.type,
            "status": found.status,
            "reason": found.reason,
            "message": found.message,
            "observedGeneration": generation,
            "lastTransitionTime": since,
        }
    ]


@pytest.mark.req("KR-052")
def test_what_was_found_again_is_the_same_document():
    assert merged([Condition("Ready", "True", "AsExpected")], [KNOWN], generation=1, now=NOW) == [KNOWN]


@pytest.mark.req("KR-052")
def test_conditions_of_others_are_not_ours_to_write():
    foreign = {"type": "Other", "status": "True"}
    assert [
        each["type"] for each in merged([Condition("A", "True", "X")], [foreign, KNOWN], generation=1, now=NOW)
    ] == ["A"]
    assert merged([], None, generation=1, now=NOW) == []


def live(status):
    return Unstructured({"metadata": {"name": "x", "resourceVersion": "7", "generation": 3}, "status": status})


DEAD = Condition("Ready", "False", "Dead", "nobody is there")
WANTED = {
    "type": "Ready",
    "status": "False",
    "reason": "Dead",
    "message": "nobody is there",
    "observedGeneration": 3,
    "lastTransitionTime": "2025-06-01T12:30:00Z",
}
OTHER = KNOWN | {"type": "Other"}


@pytest.mark.req("KR-052")
@pytest.mark.parametrize(
    ("status", "operation"),
    [
        pytest.param({}, add("/status", {"conditions": [WANTED]}), id="no status"),
        pytest.param({"key": "a"}, add("/status/conditions", [WANTED]), id="no conditions"),
        pytest.param({"conditions": [OTHER]}, add("/status/conditions/-", WANTED), id="others"),
        pytest.param({"conditions": [OTHER, KNOWN]}, replace("/status/conditions/1", WANTED), id="another value"),
    ],
)
def test_a_condition_of_a_dead_writer_is_set_where_it_stands(status, operation):
    assert taking_over(DEAD, live(status), now=NOW) == (test("/metadata/resourceVersion", "7"), operation)


@pytest.mark.req("KR-052")
def test_a_condition_that_is_set_already_is_not_written_again():
    assert taking_over(DEAD, live({"conditions": [OTHER, WANTED | {"observedGeneration": 1}]}), now=NOW) == ()


class StatusWrites:
    """Takes every status apply."""

    def __init__(self) -> None:
        self.applied: list[Any] = []

    async def apply(self, resource: Resource, document: Any, **options: Any) -> PartialObjectMetadata:
        self.applied.append(document["status"])
        return PartialObjectMetadata()


def beside_others(fields: dict[str, Any] | None) -> Unstructured:
    """Another manager has a status here; ``fields`` are those of ours, if we have applied any."""
    common = {"operation": "Apply", "subresource": "status", "apiVersion": CRDS.api_version}
    managers = [{"manager": "other", "fieldsV1": {"f:status": {"f:conditions": {}}}, **common}]
    managers += [{"manager": "ours", "fieldsV1": fields, **common}] if fields is not None else []
    metadata = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 3, "managedFields": managers}
    return Unstructured({"metadata": metadata, "status": {"conditions": [KNOWN]}})


@pytest.mark.req("KR-052")
@pytest.mark.parametrize(
    ("fields", "status", "writes"),
    [
        pytest.param(None, {}, 0, id="nothing to say, and never said anything"),
        pytest.param({"f:status": {}}, {}, 0, id="nothing to say again"),
        pytest.param({"f:status": {"f:note": {}}}, {}, 1, id="nothing any more"),
        pytest.param({"f:status": {}}, {"note": "x"}, 1, id="something at last"),
    ],
)
async def test_an_empty_status_beside_that_of_others_is_not_written_again_and_again(fields, status, writes):
    """The operator wrote one with each of its passes over ArchitectureTaints."""
    client = StatusWrites()
    assert await apply_status(client, CRDS, beside_others(fields), status, field_manager="ours") == bool(writes)
    assert client.applied == [status] * writes
