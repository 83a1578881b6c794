"""What people see of the zones, and what the status file says of the fingerprint."""

import pytest
from msgspec.structs import replace
from numa_facts import GIB, LISTING_ONLY, MACHINE, facts, pod

from polyarch.numa.exporter.topology_document import ZONE_TABLE_HEADER, fingerprint_status, in_bytes, zone_table_rows
from polyarch.numa.exporter.zones import node_zones
from polyarch.numa.facts import Allocatable, Checkpoints, CpuCheckpoint, HostZone, Machine, MemoryBlock, ScanSettings


@pytest.mark.req("NE-160")
def test_rows_of_zones() -> None:
    """One per zone and resource, memory in units that round nothing, notes where something is odd."""
    holder = pod("holder", cpus=(4,), memory=[MemoryBlock("memory", 512 << 20, (0, 1))])
    states = Checkpoints(cpu=CpuCheckpoint("static", frozenset({0, 1, 2, 3, 7})))
    machine = Machine(zones=(*MACHINE.zones, HostZone(id=2, memory=GIB)))
    decided = node_zones(replace(facts(holder, machine=machine), checkpoints=states), ScanSettings(), "worker")
    shared = "shared by node-0, node-1"
    kept = "2 kept for init containers that have ended"
    assert zone_table_rows(decided) == [
        ("node-0", "cpu", "4", "3", "0", "3", ""),
        ("node-0", "memory", "4Gi", "3Gi", "512Mi", "2560Mi", shared),
        ("node-0", "vendor.example/nic", "2", "2", "0", "2", ""),
        ("node-1", "cpu", "4", "4", "3", "1", kept),
        ("node-1", "memory", "4Gi", "4Gi", "0", "4Gi", shared),
        ("node-1", "vendor.example/nic", "1", "1", "0", "1", ""),
        ("node-2", "cpu", "0", "0", "0", "0", "memory alone"),
    ]
    assert {len(each) for each in zone_table_rows(decided)} == {len(ZONE_TABLE_HEADER)}


@pytest.mark.req("NE-160")
def test_bytes_are_exact() -> None:
    amounts = [0, 1, 1000, 1024, 1536, 1 << 20, (1 << 20) + 1, 3 << 30, 5 << 40, 1 << 50]
    assert [in_bytes(each) for each in amounts] == [
        *("0", "1", "1000", "1Ki", "1536", "1Mi", "1048577", "3Gi", "5Ti", "1024Ti"),
    ]


@pytest.mark.req("NE-160")
def test_nothing_to_show() -> None:
    """A kubelet that hands out nothing still has zones with CPUs."""
    decided = node_zones(facts(allocatable=Allocatable()), LISTING_ONLY, "worker")
    assert [row[:3] for row in zone_table_rows(decided)] == [("node-0", "cpu", "4"), ("node-1", "cpu", "4")]


@pytest.mark.req("NE-085")
def test_status_names_the_pods_behind_the_fingerprint() -> None:
    """Its members are those that tools read."""
    listed = [pod("b", cpus=(4,)), pod("a", cpus=(5,), namespace="zz"), pod("idle"), pod("a", cpus=(6,))]
    decided = node_zones(facts(*listed), LISTING_ONLY, "worker")
    assert fingerprint_status(decided, "pfp0v001ef46db3751d8e999") == {
        "fingerprintExpected": "pfp0v001ef46db3751d8e999",
        "fingerprintComputed": decided.fingerprint,
        "pods": [
            {"Namespace": "default", "Name": "a"},
            {"Namespace": "default", "Name": "b"},
            {"Namespace": "zz", "Name": "a"},
        ],
        "nodeName": "worker",
    }
