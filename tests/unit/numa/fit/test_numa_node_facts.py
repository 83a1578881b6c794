"""A NodeResourceTopology as scheduling by cells sees it."""

from typing import Any

import msgspec
import pytest

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.fit.facts import NodeFacts, node_facts

OWN = "numa.polyarch.dev/"


def facts(**document: Any) -> NodeFacts:
    topology = msgspec.convert({"metadata": {"name": "worker"}, **document}, NodeResourceTopology)
    return node_facts("worker", topology, None)


def attributes(**given: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in given.items()]


def own(**given: str) -> list[dict[str, str]]:
    return [{"name": f"{OWN}{name.replace('_', '-')}", "value": value} for name, value in given.items()]


def zone(name: str, type: str = "Node", **resources: Any) -> dict[str, Any]:
    listed = [{"name": each, "capacity": 8, "allocatable": 8, "available": value} for each, value in resources.items()]
    return {"name": name, "type": type, "resources": listed}


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("v1.31.4", True), ("v1.32.0", False), ("v1.031.0", True), (f"v1.{'9' * 5_000}", False),
        (f"v1.{'9' * 5_000}.0", False), (f"v1.{'0' * 5_000}1.0", False), ("v1", False), ("v1.x", False), ("", False),
        ("v1.\u0663.0", False), ("v1.-3", False),
    ],
)  # fmt: skip
def test_a_kubelet_whose_version_is_no_number_is_a_new_one(version: str, old: bool) -> None:
    assert NodeFacts(name="worker", kubelet=version).may_mix_blocks is old


@pytest.mark.req("NS-005")
def test_cells_are_zones_of_nodes_by_their_number() -> None:
    """Others are ignored and counted, and of two with one number the first one counts."""
    zones = [
        zone("node-10", cpu=1), zone("node-2", cpu=2), zone("node-2", cpu=3), zone("node-64"), zone("node-63"),
        zone("node-01"), zone("node--1"), zone("node-"), zone("Node-1"), zone("node-3", "Socket"), zone("node-4", ""),
    ]  # fmt: skip
    found = facts(zones=zones)
    assert [(each.id, each.available.get("cpu")) for each in found.cells] == [(2, 2000), (10, 1000), (63, None)]
    assert found.zones_ignored == 8


@pytest.mark.req("NS-005")
def test_negative_availability_reads_as_none() -> None:
    """So does what is no quantity."""
    (cell,) = facts(zones=[zone("node-0", cpu=-2, memory="much", nic="1500m")]).cells
    assert cell.available == {"cpu": 0, "memory": 0, "nic": 1500}


@pytest.mark.req("NS-006")
def test_the_order_of_what_an_object_lists_is_nobodys_matter() -> None:
    zones = [zone("node-0", cpu=1, memory=2), zone("node-1", cpu=3)]
    said = own(cpu_manager_policy="static", memory_manager_policy="Static")
    one = facts(zones=zones, attributes=said)
    turned = [{**each, "resources": each["resources"][::-1]} for each in zones[::-1]]
    assert facts(zones=turned, attributes=said[::-1]) == one


@pytest.mark.req("NS-001", "NS-044")
def test_no_object_is_not_the_same_as_one_without_cells() -> None:
    assert not node_facts("worker", None, {"cpu": "8"}).has_topology
    assert facts().has_topology
    assert node_facts("worker", None, {"cpu": "8"}).allocatable == {"cpu": 8000}
    assert facts().allocatable is None


def policy(**document: Any) -> tuple[str, str]:
    found = facts(**document).settings
    return found.policy, found.scope


@pytest.mark.req("NS-010")
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([], ("none", "container")),
        (["SingleNUMANodePodLevel"], ("single-numa-node", "pod")),
        (["SingleNUMANodeContainerLevel"], ("single-numa-node", "container")),
        (["RestrictedPodLevel"], ("restricted", "pod")),
        (["RestrictedContainerLevel"], ("restricted", "container")),
        (["BestEffortPodLevel"], ("best-effort", "pod")),
        (["BestEffortContainerLevel"], ("best-effort", "container")),
        (["Restricted"], ("restricted", "container")),
        (["BestEffort"], ("best-effort", "container")),
        (["None", "RestrictedPodLevel"], ("none", "container")),
        (["singlenumanodepodlevel"], ("none", "container")),
    ],
)
def test_the_first_word_sets_policy_and_scope(named: list[str], expected: tuple[str, str]) -> None:
    assert policy(topologyPolicies=named) == expected


@pytest.mark.req("NS-010")
def test_attributes_override_one_by_one() -> None:
    """An invalid one is ignored."""
    named = ["RestrictedPodLevel"]
    said = attributes(topologyManagerPolicy="single-numa-node", topologyManagerScope="machine")
    assert policy(topologyPolicies=named, attributes=said) == ("single-numa-node", "pod")
    said = attributes(topologyManagerPolicy="Restricted", topologyManagerScope="container")
    assert policy(topologyPolicies=named, attributes=said) == ("restricted", "container")


@pytest.mark.req("NS-010")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("2", 2),
        ("1", 8),
        ("0", 8),
        ("-4", 8),
        ("many", 8),
        ("", 8),
        ("1025", 1024),
        ("9" * 30, 8),
        ("१२", 8),
    ],
)
def test_the_most_cells_are_a_number_above_one(text: str, expected: int) -> None:
    assert facts(attributes=attributes(topologyManagerMaxNUMANodes=text)).settings.most_cells == expected


@pytest.mark.req("NS-011")
def test_what_our_exporter_says_is_read() -> None:
    said = own(
        cpu_manager_policy="static",
        cpu_manager_options="full-pcpus-only=true, strict-cpu-reservation=false",
        threads_per_core="2",
        memory_manager_policy="Static",
        topology_manager_options="prefer-closest-numa-nodes=true",
        pod_level_managers="true",
        refresh_period="10s",
        pod_exclude='[{"namespacePattern": "kube-*", "namePattern": "*"}]',
    )
    zones = [{**zone("node-0"), "attributes": own(memory_group="1,0", socket="3")}]
    found = facts(attributes=said, zones=zones)
    settings = found.settings
    assert (settings.cpu_manager, settings.memory_manager) == ("static", "Static")
    assert settings.cpu_options == {"full-pcpus-only": "true", "strict-cpu-reservation": "false"}
    assert (settings.threads_per_core, settings.refresh_period, settings.pod_level_managers) == (2, 10.0, True)
    assert settings.topology_options == {"prefer-closest-numa-nodes": "true"}
    assert [(each.namespace, each.name) for each in settings.pod_exclude] == [("kube-*", "*")]
    assert (found.cells[0].memory_group, found.cells[0].socket) == ((0, 1), 3)


@pytest.mark.req("NS-011")
def test_what_other_exporters_leave_out_is_not_known() -> None:
    """Which is not the same as off."""
    found = facts().settings
    assert (found.cpu_manager, found.memory_manager, found.threads_per_core) == (None, None, None)
    assert (found.refresh_period, found.pod_level_managers, found.pod_exclude) == (None, False, ())


@pytest.mark.req("NS-005", "NS-011")
def test_nonsense_is_as_if_it_were_not_there() -> None:
    said = own(
        cpu_manager_options="=,,x",
        threads_per_core="two",
        refresh_period="soon",
        pod_exclude="[{}, 3, {",
        pod_level_managers="yes",
    )
    found = facts(attributes=said, zones=[{**zone("node-0"), "attributes": own(memory_group="0,x", socket="-")}])
    assert found.settings.cpu_options == {"x": ""}
    assert (found.settings.threads_per_core, found.settings.refresh_period) == (None, None)
    assert (found.settings.pod_exclude, found.settings.pod_level_managers) == ((), False)
    assert (found.cells[0].memory_group, found.cells[0].socket) == ((), None)
    deep = own(pod_exclude="[" * 50_000 + "]" * 50_000)
    assert facts(attributes=deep).settings.pod_exclude == (), "one node's object must not keep the others unread"


@pytest.mark.req("NS-104")
def test_an_older_object_has_its_fingerprint_in_an_annotation() -> None:
    """It counts all pods then."""
    metadata = {"name": "worker", "annotations": {"topology.node.k8s.io/fingerprint": "pfp0v001old"}}
    assert (facts(metadata=metadata).fingerprint_method, facts(metadata=metadata).fingerprint) == ("all", "pfp0v001old")
    said = attributes(nodeTopologyPodsFingerprint="new", nodeTopologyPodsFingerprintMethod="with-exclusive-resources")
    found = facts(metadata=metadata, attributes=said)
    assert (found.fingerprint_method, found.fingerprint) == ("with-exclusive-resources", "new")
