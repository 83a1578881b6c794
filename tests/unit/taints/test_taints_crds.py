"""The schema of ArchitectureTaints says what the settings mean, and a file is judged as the API server judges."""

import re
from typing import Any

import msgspec
import pytest
from taint_refusals import ACCEPTED, REFUSED, Json

from polyarch.taints.api import (
    ARCHITECTURE_TAINTS,
    ArchitectureTaints,
    ArchitectureTaintsStatus,
)
from polyarch.taints.crd import InvalidTaintsConfiguration, crds, validated
from polyarch.taints.settings import TaintSettings

(DOCUMENT,) = crds()
(STORED,) = DOCUMENT["spec"]["versions"]
ROOT = STORED["schema"]["openAPIV3Schema"]


def of(spec: Any, name: str = "cluster") -> Json:
    meta = {"apiVersion": ARCHITECTURE_TAINTS.api_version, "kind": ARCHITECTURE_TAINTS.kind, "metadata": {"name": name}}
    return meta | ({} if spec is None else {"spec": spec})


def refused(document: Any) -> str:
    with pytest.raises(InvalidTaintsConfiguration) as refusal:
        validated(document)
    assert len(refusal.value.problems) == 1, refusal.value
    return str(refusal.value)


def filled(schema: Json) -> Any:
    """What the API server makes of an object that says nothing."""
    if schema["type"] != "object" or not schema.get("properties"):
        return schema.get("default")
    members = {name: filled(member) for name, member in schema["properties"].items()}
    return {name: value for name, value in members.items() if value is not None} if "default" in schema else None


@pytest.mark.req("TN-010")
def test_the_resource() -> None:
    names = DOCUMENT["spec"]["names"]
    assert DOCUMENT["metadata"]["name"] == "architecturetaints.polyarch.dev"
    assert (DOCUMENT["spec"]["scope"], names["kind"], names["shortNames"]) == (
        "Cluster",
        "ArchitectureTaints",
        ["archtaints"],
    )
    assert (STORED["name"], STORED["subresources"]) == ("v1alpha1", {"status": {}})


@pytest.mark.req("TN-014")
def test_columns() -> None:
    assert [each["name"] for each in STORED["additionalPrinterColumns"]] == ["Mode", "Key", "Ready", "Nodes", "Age"]


@pytest.mark.req("TN-010")
def test_what_an_empty_spec_is_filled_with_means_the_default_settings() -> None:
    """Two places say the defaults, and mean the same."""
    defaults = filled(ROOT["properties"]["spec"])
    assert defaults["taint"] == {"preset": "archaware", "effect": "NoSchedule", "acknowledgeEviction": False}
    assert TaintSettings.of(defaults) == TaintSettings()
    assert TaintSettings.of({}) == TaintSettings()
    assert TaintSettings().problems == ()


@pytest.mark.req("TN-010", "TN-014")
def test_the_schema_has_the_fields_of_the_status_that_are_written() -> None:
    """The API server drops what the schema does not have."""
    written = msgspec.inspect.type_info(ArchitectureTaintsStatus)
    assert fields_of_type(written) == fields_of_schema(ROOT["properties"]["status"])


def fields_of_type(type: msgspec.inspect.Type) -> Any:
    if isinstance(type, msgspec.inspect.UnionType):
        return next(found for each in type.types if (found := fields_of_type(each)) is not None)
    if isinstance(type, msgspec.inspect.ListType):
        return fields_of_type(type.item_type)
    if isinstance(type, msgspec.inspect.StructType):
        return {field.encode_name: fields_of_type(field.type) for field in type.fields}
    return None if isinstance(type, msgspec.inspect.NoneType) else "value"


def fields_of_schema(schema: Json) -> Any:
    if schema["type"] == "array":
        return fields_of_schema(schema["items"])
    if properties := schema.get("properties"):
        return {name: fields_of_schema(member) for name, member in properties.items()}
    return "value"


@pytest.mark.req("TN-010")
def test_every_field_is_explained() -> None:
    """Kubectl explain has something to say on each."""

    assert unexplained(ROOT["properties"]["spec"], "spec") == []


def unexplained(schema: Json, path: str) -> list[str]:
    """Fields without a description; the entries of a list are explained by the list."""
    inner = schema.get("items", schema)
    members = inner.get("properties", {})
    lacking = [] if schema.get("description") else [path]
    return lacking + [found for name, each in members.items() for found in unexplained(each, f"{path}.{name}")]


@pytest.mark.req("TN-012")
@pytest.mark.parametrize(("spec", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_the_api_server_refuses_is_refused_of_a_file(spec: Json, said: list[str]) -> None:
    """With field and reason."""
    message = refused(of(spec))
    assert all(re.search(part, message) for part in map(escaped, said)), message


def escaped(part: str) -> str:
    return part.replace("[", r"\[").replace("]", r"\]")


@pytest.mark.req("TN-012")
@pytest.mark.parametrize("spec", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_what_the_api_server_accepts_is_read_from_a_file(spec: Json) -> None:
    """And means something without any replacement."""
    assert TaintSettings.of(validated(of(spec)).spec).problems == ()


@pytest.mark.req("TN-012")
@pytest.mark.parametrize(
    ("document", "said"),
    [
        (of({}, "mine"), ["metadata.name", "the only ArchitectureTaints is named cluster"]),
        ({**of({}), "metadata": None}, ["metadata.name", "the only ArchitectureTaints is named cluster"]),
        ({**of({}), "kind": "ArchitectureTaint"}, ["kind", "must be ArchitectureTaints"]),
        ({**of({}), "apiVersion": "polyarch.dev/v1"}, ["apiVersion", "must be polyarch.dev/v1alpha1"]),
        (of({"nodes": {"permInute": 5}}), ["spec.nodes.permInute", "does not exist", "perMinute"]),
        (of([]), ["spec", "must be an object"]),
        (of({"pods": {"podSelector": {"matchLabels": {"a": 1}}}}), ["spec.pods.podSelector.matchLabels.a", "a text"]),
        (of({"nodes": {"excludeControlPlane": "yes"}}), ["spec.nodes.excludeControlPlane", "true or false"]),
        (of({"nodes": {"perMinute": True}}), ["spec.nodes.perMinute", "a whole number"]),
        (of({"architectures": "arm64"}), ["spec.architectures", "must be a list"]),
        (of(taint := {"taint": {"preset": "custom", "key": "a\n"}}), ["spec.taint.key", "is not the key"]),
        ([of(taint)], ["the file must contain one ArchitectureTaints"]),
        (None, ["the file must contain one ArchitectureTaints"]),
    ],
)
def test_other_things_that_a_file_can_have_wrong(document: Any, said: list[str]) -> None:
    message = refused(document)
    assert all(part in message for part in said), message


@pytest.mark.req("TN-012")
def test_all_problems_of_a_file_are_told_at_once() -> None:
    with pytest.raises(InvalidTaintsConfiguration) as refusal:
        validated(of({"taint": {"key": "a", "effect": "NoExecute"}, "architectures": ["amd64"]}, "mine"))
    assert [each.field for each in refusal.value.problems] == ["metadata.name", "spec.taint", "spec.taint", "spec"]


@pytest.mark.req("TN-012")
def test_null_is_absence() -> None:
    """As for the API server."""
    read = TaintSettings.of(validated(of({"taint": None, "pods": {"gateTimeout": None}})).spec)
    assert read == TaintSettings()
    assert isinstance(validated(of(None)), ArchitectureTaints)
