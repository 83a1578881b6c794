"""When the definition of NodeResourceTopology is replaced."""

import copy
from typing import Any

import pytest

from polyarch.numa.api.topology_crd import fields_beyond_ours, is_behind, topology_crd

Json = dict[str, Any]


def served(document: Json) -> list[Json]:
    versions: list[Json] = document["spec"]["versions"]
    return versions


@pytest.mark.req("NO-044")
def test_the_same_definition_is_left_alone() -> None:
    assert not is_behind(topology_crd(), topology_crd())


@pytest.mark.req("NO-044")
def test_a_definition_without_a_version_of_ours_is_completed() -> None:
    installed = topology_crd()
    installed["spec"]["versions"] = [each for each in served(installed) if each["name"] != "v1alpha1"]
    assert is_behind(installed, topology_crd())


@pytest.mark.req("NO-044")
def test_a_version_that_is_not_served_counts_as_missing() -> None:
    installed = copy.deepcopy(topology_crd())
    served(installed)[0]["served"] = False
    assert is_behind(installed, topology_crd())


@pytest.mark.req("NO-044")
def test_a_definition_without_a_field_of_ours_is_completed() -> None:
    installed = copy.deepcopy(topology_crd())
    newest = next(each for each in served(installed) if each["name"] == "v1alpha2")
    del newest["schema"]["openAPIV3Schema"]["properties"]["attributes"]
    assert is_behind(installed, topology_crd())


@pytest.mark.req("NO-044")
@pytest.mark.parametrize("lacks_something_of_ours", [False, True])
def test_a_definition_with_more_than_ours_is_never_replaced(lacks_something_of_ours: bool) -> None:
    installed = copy.deepcopy(topology_crd())
    newest = next(each for each in served(installed) if each["name"] == "v1alpha2")
    properties = newest["schema"]["openAPIV3Schema"]["properties"]
    properties["newer"] = {"type": "string"}
    if lacks_something_of_ours:
        del properties["attributes"]
    assert not is_behind(installed, topology_crd())
    assert fields_beyond_ours(installed, topology_crd()) == ("v1alpha2.newer",)


@pytest.mark.req("NO-044")
def test_a_definition_of_a_later_version_is_never_replaced() -> None:
    installed = copy.deepcopy(topology_crd())
    served(installed).append({"name": "v1", "served": True, "storage": False, "schema": {}})
    assert not is_behind(installed, topology_crd())
    assert fields_beyond_ours(installed, topology_crd()) == ("v1",)
