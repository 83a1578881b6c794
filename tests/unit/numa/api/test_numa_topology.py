"""NodeResourceTopology: its definition is the one that other producers and readers know, and any of theirs is read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from polyarch.numa.api.topology import Attribute, NodeResourceTopology, Zone
from polyarch.numa.api.topology_crd import topology_crd

PROJECT = Path(__file__).parents[4]
DOCUMENT = topology_crd()
VERSIONS = {each["name"]: each for each in DOCUMENT["spec"]["versions"]}


def root(version: str) -> Any:
    return VERSIONS[version]["schema"]["openAPIV3Schema"]


def zone(version: str = "v1alpha2") -> Any:
    return root(version)["properties"]["zones"]["items"]


def everything(schema: Any) -> list[Any]:
    """The schema and all schemas within it."""
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(found for each in inner for found in everything(each))]


@pytest.mark.req("NE-001")
def test_names_and_scope() -> None:
    assert DOCUMENT["metadata"] == {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    }
    spec = DOCUMENT["spec"]
    assert spec["group"] == "topology.node.k8s.io"
    assert spec["scope"] == "Cluster"
    assert spec["conversion"] == {"strategy": "None"}
    assert spec["names"] == {
        "kind": "NodeResourceTopology",
        "listKind": "NodeResourceTopologyList",
        "plural": "noderesourcetopologies",
        "singular": "noderesourcetopology",
        "shortNames": ["node-res-topo", "nrt"],
    }
    assert all("subresources" not in each and "additionalPrinterColumns" not in each for each in spec["versions"])


@pytest.mark.req("NE-002")
def test_versions_and_what_they_require() -> None:
    assert {name: (each["served"], each["storage"]) for name, each in VERSIONS.items()} == {
        "v1alpha1": (True, False),
        "v1alpha2": (True, True),
    }
    assert root("v1alpha1")["required"] == ["topologyPolicies", "zones"]
    assert root("v1alpha2")["required"] == ["zones"]
    assert "attributes" not in root("v1alpha1")["properties"]
    assert root("v1alpha1")["properties"]["zones"] == root("v1alpha2")["properties"]["zones"]


@pytest.mark.req("NE-003")
def test_fields_and_what_they_require() -> None:
    assert set(root("v1alpha2")["properties"]) == {
        *("apiVersion", "kind", "metadata"),
        *("topologyPolicies", "zones", "attributes"),
    }
    assert zone()["required"] == ["name", "type"]
    assert set(zone()["properties"]) == {"name", "type", "parent", "costs", "attributes", "resources"}
    resources = zone()["properties"]["resources"]["items"]
    assert resources["required"] == ["name", "capacity", "allocatable", "available"]
    costs = zone()["properties"]["costs"]["items"]
    assert costs["required"] == ["name", "value"]
    assert (costs["properties"]["value"]["type"], costs["properties"]["value"]["format"]) == ("integer", "int64")
    for attributes in (root("v1alpha2")["properties"]["attributes"], zone()["properties"]["attributes"]):
        assert attributes["items"]["required"] == ["name", "value"]
        assert {each["type"] for each in attributes["items"]["properties"].values()} == {"string"}
    for name in ("capacity", "allocatable", "available"):
        assert resources["properties"][name]["x-kubernetes-int-or-string"] is True
        assert resources["properties"][name]["anyOf"] == [{"type": "integer"}, {"type": "string"}]


@pytest.mark.req("NE-003")
def test_no_list_says_its_type() -> None:
    """A patch replaces a whole list, and other tools apply what they always have."""
    for version in VERSIONS:
        assert not [each for each in everything(root(version)) if "x-kubernetes-list-type" in each]


@pytest.mark.req("NE-004")
def test_the_committed_definition_is_the_generated_one() -> None:
    """`make generate` writes it; every member of the structs is in it."""
    committed = PROJECT / "deploy" / "crds" / f"{DOCUMENT['metadata']['name']}.yaml"
    assert yaml.safe_load(committed.read_text(encoding="utf-8")) == DOCUMENT
    for of, schema in ((NodeResourceTopology, root("v1alpha2")), (Zone, zone())):
        assert {each.encode_name for each in msgspec.structs.fields(of)} <= set(schema["properties"])


@pytest.mark.req("NE-005")
def test_an_object_of_another_producer_is_read() -> None:
    """Unknown fields, null lists, missing fields, numbers, any spelling of a quantity."""
    found = msgspec.json.decode(
        b"""{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "unknown": {"a": [1]},
        "metadata": {"name": "worker", "managedFields": [{}], "labels": null},
        "topologyPolicies": null, "attributes": [{"name": "a", "value": "b", "more": 1}, {"name": "c"}],
        "zones": [
            {"name": "node-0", "type": "Node", "parent": null, "costs": null, "attributes": null, "resources": [
                {"name": "cpu", "capacity": 12, "allocatable": "12", "available": "500m"},
                {"name": "memory", "capacity": "16Gi", "allocatable": 1.5, "available": "1e9"},
                {"name": "bare"}]},
            {"name": "node-1", "type": "Node", "more": true},
            {}]}""",
        type=NodeResourceTopology,
    )
    assert found.zones is not None
    assert [each.name for each in found.zones] == ["node-0", "node-1", ""]
    assert [each.capacity for each in found.zones[0].resources or ()] == [12, "16Gi", 0]
    assert found.attributes == [Attribute("a", "b"), Attribute("c", "")]


@pytest.mark.req("NE-005")
@pytest.mark.parametrize("content", [b"{}", b'{"zones": null, "attributes": null}', b'{"metadata": {}, "zones": []}'])
def test_an_empty_object_is_read(content: bytes) -> None:
    assert not msgspec.json.decode(content, type=NodeResourceTopology).zones
