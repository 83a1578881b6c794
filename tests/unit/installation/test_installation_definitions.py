"""What a newer version of a definition no longer has."""

from typing import Any

import pytest

from polyarch.installation import upgrade

Json = dict[str, Any]


def definition(*versions: str, stored: tuple[str, ...] = ("v1",), **properties: Json) -> Json:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"properties": properties}}}}
    return {
        "spec": {"versions": [{"name": name, "schema": schema} for name in versions]},
        "status": {"storedVersions": list(stored)},
    }


TEXT: Json = {"type": "string"}


@pytest.mark.req("IN-004")
@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        pytest.param(definition("v1", stored=("v1",)), definition("v1"), [], id="the same"),
        pytest.param(definition("v1", "v2", stored=("v1", "v2")), definition("v2"), ["v1"], id="stored in an old one"),
        pytest.param(definition("v1", "v2", stored=("v2",)), definition("v2"), [], id="served only"),
    ],
)
def test_versions_that_objects_are_stored_in_must_stay(live: Json, wanted: Json, expected: list[str]) -> None:
    assert upgrade.lost_versions(live, wanted) == expected


@pytest.mark.req("IN-004")
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"a": TEXT}, {"a": TEXT, "b": TEXT}, [], id="a field is added"),
        pytest.param({"a": TEXT, "b": TEXT}, {"a": TEXT}, ["spec.b"], id="a field is removed"),
        pytest.param(
            {"a": {"properties": {"b": {"properties": {"c": TEXT}}}}}, {"a": {}}, ["spec.a.b"], id="the outermost"
        ),
        pytest.param(
            {"a": {"items": {"properties": {"b": TEXT}}}}, {"a": {"items": {}}}, ["spec.a[].b"], id="in a list"
        ),
        pytest.param(
            {"a": {"additionalProperties": {"properties": {"b": TEXT}}}},
            {"a": {"additionalProperties": {}}},
            ["spec.a.*.b"],
            id="in a map",
        ),
    ],
)
def test_removed_fields_are_found(before: Json, after: Json, expected: list[str]) -> None:
    found = upgrade.removed_fields(definition("v1", **before), definition("v1", **after))
    assert [upgrade.shown(path) for path in found] == expected


@pytest.mark.req("IN-004")
@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        pytest.param({"a": 1}, ("spec", "a"), ["ns/x"], id="used"),
        pytest.param({}, ("spec", "a"), [], id="not used"),
        pytest.param({"a": [{"b": 1}, {}]}, ("spec", "a", "[]", "b"), ["ns/x"], id="in one element"),
        pytest.param({"a": {"k": {"b": 1}}}, ("spec", "a", "*", "b"), ["ns/x"], id="in one member"),
        pytest.param({"a": [{}]}, ("spec", "a", "[]", "b"), [], id="in no element"),
    ],
)
def test_objects_that_use_a_field_are_named(spec: Json, path: tuple[str, ...], expected: list[str]) -> None:
    document = {"metadata": {"namespace": "ns", "name": "x"}, "spec": spec}
    assert upgrade.using([document], path) == expected
