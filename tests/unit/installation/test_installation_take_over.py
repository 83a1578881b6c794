"""Kubectl's fields become ours, also while controllers write the status of the same object."""

from typing import Any

import pytest
from fake_api import FakeApi

from polyarch.installation.apply import take_over
from polyarch.kube.apply import READS
from polyarch.kube.errors import NO_FIT, Invalid, StatusCause
from polyarch.kube.resources import DEPLOYMENTS, ObjectRef, Resource
from polyarch.objects import ObjectKey

REF = ObjectRef(DEPLOYMENTS, ObjectKey("home", "polyarch-operator"))
CHANGED = Invalid(422, reason="Invalid", message=NO_FIT)


def deployment(manager: str) -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}
    return {"metadata": {"name": REF.key.name, "namespace": REF.key.namespace, "managedFields": [entry]}}


def api_with(*refusals: Invalid) -> FakeApi:
    """Before each read a controller writes the Deployment; each of these answers one patch."""
    api = FakeApi()
    api.put(DEPLOYMENTS, deployment("kubectl"))
    api.refuse(DEPLOYMENTS, "patch", error=refusals)

    async def write(verb: str, resource: Resource, name: str) -> None:
        if verb == "get":
            api.put(DEPLOYMENTS, deployment("kubectl"))

    api.hook = write
    return api


def versions_patched(api: FakeApi) -> list[str]:
    """The versions that patches are for."""
    return [patch.operations[0].value for _, patch in api.patches]


@pytest.mark.req("IN-004")
async def test_an_object_that_has_changed_meanwhile_is_read_again() -> None:
    api = api_with(CHANGED, CHANGED)
    await take_over(api, REF, api.read(DEPLOYMENTS, "polyarch-operator", "home"))
    assert versions_patched(api) == ["101", "102", "103"]


@pytest.mark.req("IN-004")
async def test_one_that_changes_all_the_time_is_an_error() -> None:
    api = api_with(*[CHANGED] * READS)
    with pytest.raises(Invalid):
        await take_over(api, REF, api.read(DEPLOYMENTS, "polyarch-operator", "home"))
    assert len(versions_patched(api)) == READS


@pytest.mark.req("IN-004")
async def test_a_patch_that_is_refused_for_another_reason_is_not_repeated() -> None:
    api = api_with(Invalid(422, reason="Invalid", message="bad", causes=(StatusCause(field="spec"),)))
    with pytest.raises(Invalid, match="bad"):
        await take_over(api, REF, api.read(DEPLOYMENTS, "polyarch-operator", "home"))
    assert versions_patched(api) == ["101"]


@pytest.mark.req("IN-004")
async def test_what_is_nobody_elses_is_not_patched() -> None:
    api = api_with()
    await take_over(api, REF, {"metadata": {"resourceVersion": "1", **deployment("polyarch")["metadata"]}})
    assert versions_patched(api) == []
