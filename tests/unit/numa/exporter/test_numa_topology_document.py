"""The object of a node is what other programs expect to find, to the letter."""

import json

import msgspec
import pytest
from msgspec.structs import replace
from numa_facts import ALLOCATABLE, GIB, LISTING_ONLY, MACHINE, facts, pod

from polyarch.numa.exporter.topology_document import Document, topology_document
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import (
    Allocatable,
    HostZone,
    KubeletSettings,
    Machine,
    MemoryBlock,
    PodPattern,
    ScanFacts,
    ScanSettings,
    TopologyPolicy,
    TopologyScope,
)

ALIGNING = KubeletSettings(
    policy="single-numa-node",
    scope="pod",
    max_numa_nodes=16,
    topology_options=(("max-allowable-numa-nodes", "16"), ("prefer-closest-numa-nodes", "true")),
    cpu_manager_policy="static",
    cpu_manager_options=(("full-pcpus-only", "true"), ("distribute-cpus-across-numa", "false")),
    memory_manager_policy="Static",
    pod_level_managers=True,
)
OWN = "numa.polyarch.dev/"


def made(gathered: ScanFacts, settings: ScanSettings = LISTING_ONLY, *, refresh_period: float = 60) -> Document:
    return topology_document(
        gathered, node_zones(gathered, settings, "worker"), settings, refresh_period=refresh_period
    )


def attributes(of: Document) -> dict[str, str]:
    return {each["name"]: each["value"] for each in of.get("attributes", ())}


@pytest.mark.req("NE-010", "NE-011", "NE-012", "NE-013", "NE-014", "NE-015", "NE-016", "NE-017", "NE-018", "NE-019")
def test_the_whole_object_of_a_node() -> None:
    """Everything at once, as JSON in its order."""
    machine = replace(
        MACHINE,
        cores=tuple(frozenset((cpu, cpu + 1)) for cpu in range(0, 8, 2)),
        zones=tuple(replace(cell, socket=cell.id) for cell in MACHINE.zones[::-1]),
    )
    holder = pod("holder", cpus=(5, 6), memory=[MemoryBlock("memory", GIB, (0, 1))])
    gathered = replace(facts(holder, machine=machine), kubelet=ALIGNING, node_uid="uid-1")
    settings = replace(
        LISTING_ONLY, node_group="group-1", pod_exclude=(PodPattern("kube-*", "*"),), placement_vectors=False
    )
    found = made(gathered, settings, refresh_period=10)
    fingerprint = attributes(found)["nodeTopologyPodsFingerprint"]
    assert list(found) == ["apiVersion", "kind", "metadata", "topologyPolicies", "attributes", "zones"]
    assert found == {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "worker",
            "labels": {f"{OWN}node-group": "group-1"},
            "annotations": {"topology.node.k8s.io/fingerprint": fingerprint},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "uid-1"}],
        },
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "attributes": [
            {"name": "nodeTopologyPodsFingerprint", "value": fingerprint},
            {"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"},
            {"name": f"{OWN}cpu-manager-options", "value": "distribute-cpus-across-numa=false,full-pcpus-only=true"},
            {"name": f"{OWN}cpu-manager-policy", "value": "static"},
            {"name": f"{OWN}memory-manager-policy", "value": "Static"},
            {"name": f"{OWN}pod-exclude", "value": '[{"namespacePattern":"kube-*","namePattern":"*"}]'},
            {"name": f"{OWN}pod-level-managers", "value": "true"},
            {"name": f"{OWN}refresh-period", "value": "10s"},
            {"name": f"{OWN}threads-per-core", "value": "2"},
            {
                "name": f"{OWN}topology-manager-options",
                "value": "max-allowable-numa-nodes=16,prefer-closest-numa-nodes=true",
            },
            {"name": "topologyManagerMaxNUMANodes", "value": "16"},
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"},
        ],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}],
                "attributes": [
                    {"name": f"{OWN}cpus", "value": "0-3"},
                    {"name": f"{OWN}memory-group", "value": "0,1"},
                    {"name": f"{OWN}socket", "value": "0"},
                    {"name": f"{OWN}split-cpus", "value": "1"},
                ],
                "resources": [
                    {"name": "cpu", "capacity": "4", "allocatable": "3", "available": "3"},
                    {
                        "name": "memory",
                        "capacity": "4294967296",
                        "allocatable": "3221225472",
                        "available": "2147483648",
                    },
                    {"name": "vendor.example/nic", "capacity": "2", "allocatable": "2", "available": "2"},
                ],
            },
            {
                "name": "node-1",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 21}, {"name": "node-1", "value": 10}],
                "attributes": [
                    {"name": f"{OWN}cpus", "value": "4-7"},
                    {"name": f"{OWN}memory-group", "value": "0,1"},
                    {"name": f"{OWN}socket", "value": "1"},
                    {"name": f"{OWN}split-cpus", "value": "0"},
                ],
                "resources": [
                    {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "2"},
                    {
                        "name": "memory",
                        "capacity": "4294967296",
                        "allocatable": "4294967296",
                        "available": "4294967296",
                    },
                    {"name": "vendor.example/nic", "capacity": "1", "allocatable": "1", "available": "1"},
                ],
            },
        ],
    }


@pytest.mark.req("NE-010")
def test_the_object_is_named_like_the_node() -> None:
    assert topology_document(facts(), node_zones(facts(), LISTING_ONLY, "n-7"), LISTING_ONLY, refresh_period=0)[
        "metadata"
    ] == {
        "name": "n-7",
        "annotations": {"topology.node.k8s.io/fingerprint": "pfp0v001ef46db3751d8e999"},
    }


@pytest.mark.req("NE-011")
def test_zones_costs_and_names_ascend_by_number_and_by_byte() -> None:
    """node-10 comes after node-2, and Z before a."""
    cells = tuple(HostZone(id=cell, costs=((10, 20), (2, 30), (0, 10))) for cell in (10, 0, 2))
    blocks = tuple(MemoryBlock(name, 1, (0,)) for name in ("a", "Z", "é", "b"))
    found = made(facts(machine=Machine(zones=cells), allocatable=Allocatable(memory=blocks)))
    assert [each["name"] for each in found["zones"]] == ["node-0", "node-2", "node-10"]
    assert [each["name"] for each in found["zones"][0]["costs"]] == ["node-0", "node-2", "node-10"]
    assert [each["name"] for each in found["zones"][0]["resources"]] == ["Z", "a", "b", "cpu", "é"]


@pytest.mark.req("NE-011", "NE-034")
def test_a_zone_without_costs_has_no_list_of_them() -> None:
    """The row could not be read; other zones keep theirs."""
    cells = (MACHINE.zones[0], replace(MACHINE.zones[1], costs=()))
    found = made(facts(machine=Machine(zones=cells)))
    assert ["costs" in each for each in found["zones"]] == [True, False]


@pytest.mark.req("NE-012")
def test_quantities_are_plain_decimal_integers() -> None:
    """Also where more is used than may be allocated."""
    found = made(facts(pod("holder", cpus=(1, 2, 3, 0), memory=[MemoryBlock("memory", 99 * GIB, (0,))])))
    quantities = [
        each[name]
        for zone in found["zones"]
        for each in zone["resources"]
        for name in ("capacity", "allocatable", "available")
    ]
    assert [each for each in quantities if not (each.isdecimal() and str(int(each)) == each)] == []
    assert found["zones"][0]["resources"][0]["available"] == "0"


@pytest.mark.req("NE-013")
def test_the_number_of_cells_is_given_only_if_the_kubelet_has_the_option() -> None:
    assert "topologyManagerMaxNUMANodes" not in attributes(made(facts()))


@pytest.mark.req("NE-013", "NE-014")
@pytest.mark.parametrize(
    ("policy", "scope", "word"),
    [
        ("none", "container", "None"),
        ("none", "pod", "None"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
        ("restricted", "container", "RestrictedContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
    ],
)
def test_old_consumers_get_policy_and_scope_in_one_word(
    policy: TopologyPolicy, scope: TopologyScope, word: str
) -> None:
    found = made(replace(facts(), kubelet=KubeletSettings(policy=policy, scope=scope)))
    assert found["topologyPolicies"] == [word]
    assert (attributes(found)["topologyManagerPolicy"], attributes(found)["topologyManagerScope"]) == (policy, scope)


@pytest.mark.req("NE-014")
def test_without_legacy_fields() -> None:
    """Neither the annotation nor the policies; the attributes stay."""
    found = made(facts(), replace(LISTING_ONLY, legacy_fields=False))
    assert "topologyPolicies" not in found
    assert "annotations" not in found["metadata"]
    assert "nodeTopologyPodsFingerprint" in attributes(found)


@pytest.mark.req("NE-083")
def test_without_a_fingerprint() -> None:
    """Neither attribute nor annotation."""
    found = made(facts(), replace(LISTING_ONLY, pods_fingerprint=False))
    assert "annotations" not in found["metadata"]
    assert not [name for name in attributes(found) if "Fingerprint" in name]


@pytest.mark.req("NE-083")
def test_method_all_counts_every_listed_pod() -> None:
    gathered = facts(pod("idle"), pod("holder", cpus=(5,)))
    exclusive = attributes(made(gathered))
    every = attributes(made(gathered, replace(LISTING_ONLY, pods_fingerprint_method="all")))
    alone = attributes(made(facts(gathered.pods[1]), replace(LISTING_ONLY, pods_fingerprint_method="all")))
    assert every["nodeTopologyPodsFingerprintMethod"] == "all"
    assert every["nodeTopologyPodsFingerprint"] != exclusive["nodeTopologyPodsFingerprint"]
    assert alone["nodeTopologyPodsFingerprint"] == exclusive["nodeTopologyPodsFingerprint"]


@pytest.mark.req("NE-015", "NE-016")
def test_own_attributes_can_be_left_out() -> None:
    """All of them, and nothing else."""
    gathered = replace(facts(pod("holder", memory=[MemoryBlock("memory", GIB, (0, 1))])), kubelet=ALIGNING)
    found = made(gathered, replace(LISTING_ONLY, extra_attributes=False))
    assert OWN not in json.dumps(found)
    assert set(attributes(found)) == {
        *("nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod"),
        *("topologyManagerMaxNUMANodes", "topologyManagerPolicy", "topologyManagerScope"),
    }


@pytest.mark.req("NE-015")
def test_what_is_not_set_or_not_known_is_absent() -> None:
    """Options that are empty, and managers of a kubelet that was not asked."""
    found = attributes(made(replace(facts(), kubelet=KubeletSettings(cpu_manager_policy="", memory_manager_policy=""))))
    assert {name.removeprefix(OWN) for name in found if name.startswith(OWN)} == {
        *("pod-exclude", "refresh-period", "threads-per-core"),
    }


@pytest.mark.req("NE-015")
@pytest.mark.parametrize(("seconds", "words"), [(0, "0s"), (60, "1m0s"), (10, "10s"), (1.5, "1.5s"), (90, "1m30s")])
def test_the_period_is_a_go_duration(seconds: float, words: str) -> None:
    """0s is no timer."""
    assert attributes(made(facts(), refresh_period=seconds))[f"{OWN}refresh-period"] == words


@pytest.mark.req("NE-016", "NE-032")
def test_a_cell_of_memory_alone_has_neither_cpus_nor_a_socket() -> None:
    found = made(facts(machine=Machine(zones=(*MACHINE.zones, HostZone(id=2)))))
    assert "attributes" not in found["zones"][2]


@pytest.mark.req("NE-017")
def test_the_label_of_the_group_is_written_only_if_there_is_one() -> None:
    assert "labels" not in made(facts())["metadata"]


@pytest.mark.req("NE-018")
@pytest.mark.parametrize(
    ("settings", "uid"), [(replace(LISTING_ONLY, add_nrt_owner=False), "uid-1"), (LISTING_ONLY, "")]
)
def test_no_owner_unless_wanted_and_known(settings: ScanSettings, uid: str) -> None:
    """Without the live Node's uid there is nothing to refer to."""
    assert "ownerReferences" not in made(replace(facts(), node_uid=uid), settings)["metadata"]


@pytest.mark.req("NE-019")
def test_the_document_does_not_say_why_or_when_it_was_made() -> None:
    """So neither can cause a write."""
    found = made(facts(), replace(LISTING_ONLY, expose_timing=True))
    assert list(found["metadata"]["annotations"]) == ["topology.node.k8s.io/fingerprint"]


@pytest.mark.req("NE-092")
def test_vectors_are_attributes_of_object_and_zone() -> None:
    """Absent in the zone whose vector is empty or left out."""
    settings = replace(LISTING_ONLY, placement_vectors=True, extra_attributes=False)
    found = made(facts(pod("one", cpus=(1,)), pod("two", cpus=(5,)), pod("three", cpus=(6,))), settings)
    key = "topology.node.k8s.io/numaplacement-"
    assert attributes(found)[f"{key}metadata"] == "npv0v001::ve=leb89::cc=3::nn=2::bn=1"
    assert list(attributes(found["zones"][0])) == [f"{key}vector"]
    assert "attributes" not in found["zones"][1]


@pytest.mark.req("NE-011")
def test_equal_facts_give_equal_bytes() -> None:
    first, second = (msgspec.json.encode(made(facts(pod("holder", cpus=(5,))))) for _ in range(2))
    assert first == second
    assert facts().allocatable == ALLOCATABLE
