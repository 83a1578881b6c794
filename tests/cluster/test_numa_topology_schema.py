"""What the API server makes of NodeResourceTopologies, and that what we wrote comes back as written.

Every test has an object of its own: it is cluster-scoped, and its name is no Node's.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from namespaces import is_served
from numa_facts import GIB, LISTING_ONLY, facts, pod

from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.patches import MergePatch, merge_patch
from polyarch.kube.resources import CRDS, NODES
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.api.topology_crd import OLDER_VERSION, topology_crd
from polyarch.numa.exporter.topology_document import stamped, topology_document, topology_patch
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import MemoryBlock, ScanFacts
from polyarch.objects import Node

pytestmark = pytest.mark.req("NE-004")

OLDER = msgspec.structs.replace(TOPOLOGIES, version=OLDER_VERSION)
ESTABLISHED_SECONDS = 20
Json = dict[str, Any]


@pytest.fixture
async def api(client: Client) -> Client:
    """A client of an API server that serves both versions."""
    await client.apply(CRDS, topology_crd())
    async with asyncio.timeout(ESTABLISHED_SECONDS):
        while not all([await is_served(client, each) for each in (TOPOLOGIES, OLDER)]):
            await asyncio.sleep(0.1)
    return client


@pytest.fixture
async def name(api: Client) -> AsyncIterator[str]:
    """The name of an object that is gone after the test."""
    name = f"numa-{secrets.token_hex(4)}"
    yield name
    try:
        await api.delete(TOPOLOGIES, name)
    except NotFound:
        return


def made(name: str, gathered: ScanFacts) -> Json:
    return topology_document(gathered, node_zones(gathered, LISTING_ONLY, name), LISTING_ONLY, refresh_period=60)


HELD = facts(pod("holder", cpus=(5, 6), memory=[MemoryBlock("memory", GIB, (0, 1))]))


@pytest.mark.req("NE-001")
async def test_kubectl_knows_the_short_names(api: Client) -> None:
    served = msgspec.json.decode(await api.raw("GET", f"/apis/{TOPOLOGIES.group}/{TOPOLOGIES.version}"))
    (found,) = served["resources"]
    assert (found["name"], found["singularName"]) == ("noderesourcetopologies", "noderesourcetopology")
    assert (found["kind"], found["namespaced"]) == ("NodeResourceTopology", False)
    assert found["shortNames"] == ["node-res-topo", "nrt"]
    stored = await api.get(CRDS, topology_crd()["metadata"]["name"])
    assert stored["status"]["storedVersions"] == ["v1alpha2"]
    reasons = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert (reasons["Established"], reasons["NamesAccepted"]) == ("True", "True")
    assert reasons.get("NonStructuralSchema", "False") == "False"
    assert reasons["KubernetesAPIApprovalPolicyConformant"] == "True"


@pytest.mark.req("NE-002")
async def test_what_is_written_in_one_version_is_read_in_the_other(api: Client, name: str) -> None:
    """v1alpha1 has no attributes at the top."""
    wanted = made(name, HELD)
    await api.create(TOPOLOGIES, wanted)
    older = await api.get(OLDER, name)
    assert older["apiVersion"] == "topology.node.k8s.io/v1alpha1"
    assert (older["zones"], older["topologyPolicies"]) == (wanted["zones"], wanted["topologyPolicies"])
    assert "attributes" not in older

    await api.delete(TOPOLOGIES, name)
    await api.create(OLDER, {**older, "metadata": {"name": name}})
    newer = await api.get(TOPOLOGIES, name, type=NodeResourceTopology)
    patch = topology_patch(wanted, newer)
    assert patch is not None
    assert set(patch) == {"metadata", "attributes"}


@pytest.mark.req("NE-002")
async def test_v1alpha1_requires_the_policies_and_v1alpha2_does_not(api: Client, name: str) -> None:
    bare: Json = {"metadata": {"name": name}, "zones": []}
    for resource, missing in ((OLDER, "topologyPolicies"), (TOPOLOGIES, "zones")):
        content = {"apiVersion": resource.api_version, "kind": resource.kind, **bare}
        with pytest.raises(Invalid, match=f"{missing}: Required value"):
            await api.create(resource, {key: value for key, value in content.items() if key != missing})
    await api.create(TOPOLOGIES, {"apiVersion": TOPOLOGIES.api_version, "kind": TOPOLOGIES.kind, **bare})
    assert await api.get(OLDER, name)


@pytest.mark.req("NE-003")
@pytest.mark.parametrize(
    ("zone", "why"),
    [
        ({"name": "node-0"}, "type: Required value"),
        ({"type": "Node"}, "name: Required value"),
        ({"name": "a", "type": "b", "costs": [{"name": "c"}]}, "value: Required value"),
        ({"name": "a", "type": "b", "attributes": [{"name": "c"}]}, "value: Required value"),
        ({"name": "a", "type": "b", "resources": [{"name": "cpu", "capacity": 1}]}, "allocatable: Required value"),
        (
            {"name": "a", "type": "b", "resources": [{"name": "c", "capacity": "x", "allocatable": 1, "available": 1}]},
            "capacity",
        ),
    ],
)
async def test_what_is_incomplete_or_no_quantity_is_refused(api: Client, name: str, zone: Json, why: str) -> None:
    content = {"apiVersion": TOPOLOGIES.api_version, "kind": TOPOLOGIES.kind, "metadata": {"name": name}}
    with pytest.raises(Invalid, match=why):
        await api.create(TOPOLOGIES, {**content, "zones": [zone]})


@pytest.mark.req("NE-005", "NE-110")
async def test_an_object_of_another_producer_is_stored_and_read(api: Client, name: str) -> None:
    """Its numbers and spellings stay as they are, until one patch makes the object ours for good."""
    amounts = {"capacity": 4, "allocatable": "4k", "available": "1.5"}
    foreign: Json = {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "zones": [{"name": "node-0", "type": "Node", "attributes": [], "resources": [{"name": "cpu", **amounts}]}],
    }
    await api.create(TOPOLOGIES, foreign)
    found = await api.get(TOPOLOGIES, name)
    assert found["zones"] == foreign["zones"]

    wanted = made(name, HELD)
    patch = topology_patch(wanted, msgspec.convert(found, NodeResourceTopology))
    assert patch is not None
    body = stamped(patch, {"k8stopoawareschedwg/rte-update": "periodic"})
    after = await api.patch(TOPOLOGIES, name, MergePatch(body), type=NodeResourceTopology)
    assert topology_patch(wanted, after) is None
    assert (after.metadata.labels or {})["a"] == "b"
    assert (after.metadata.annotations or {})["c"] == "d"


@pytest.mark.req("NE-018", "NE-111")
async def test_the_api_server_merges_as_a_put_of_ours_does(api: Client, name: str) -> None:
    """Members removed, lists replaced, and the reference to a live Node left as it is."""
    (node, *_) = (await api.list(NODES, type=Node)).items
    gathered = replace(HELD, node_uid=node.metadata.uid)
    with_owner = made(node.metadata.name, gathered)
    owner = with_owner["metadata"]["ownerReferences"][0]
    first = {
        **made(name, HELD),
        "metadata": {"name": name, "labels": {"numa.polyarch.dev/node-group": "old", "a": "b"}},
    }
    await api.create(TOPOLOGIES, {**first, "metadata": {**first["metadata"], "ownerReferences": [owner]}})
    found = await api.get(TOPOLOGIES, name)
    wanted = {**made(name, facts()), "topologyPolicies": None}
    patch = topology_patch(wanted, msgspec.convert(found, NodeResourceTopology))
    assert patch is not None
    assert patch["metadata"]["labels"] == {"numa.polyarch.dev/node-group": None}
    here = merge_patch(found, patch)
    there = await api.patch(TOPOLOGIES, name, MergePatch(patch), type=dict)
    for changing in ("resourceVersion", "generation", "managedFields"):
        here["metadata"].pop(changing, None)
        there["metadata"].pop(changing, None)
    assert here == there
    assert there["metadata"]["ownerReferences"] == [owner]
    assert "topologyPolicies" not in there
