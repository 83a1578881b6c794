"""What NUMA and builds say in a report."""

from typing import Any

import msgspec
import pytest
from report_world import BOTH, workload

from polyarch.builds.api.resources import ImageBuild
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.reports.features import build_rows, numa_rows


def topology(name: str, policy: str, *free: str, size: str = "8") -> NodeResourceTopology:
    """Zones of 8 CPUs each, with so many free."""
    zones = [
        {
            "name": f"node-{at}",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": size, "allocatable": size, "available": each}],
        }
        for at, each in enumerate(free)
    ]
    content: dict[str, Any] = {
        "metadata": {"name": name},
        "zones": zones,
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": "container"},
        ],
    }
    return msgspec.convert(content, NodeResourceTopology)


def build(name: str, wanted: list[str], built: list[str]) -> ImageBuild:
    images = [{"architecture": each, "reference": f"quay.io/acme/{name}@x"} for each in built]
    content = {
        "metadata": {"name": name, "namespace": "shop"},
        "status": {"architectures": wanted, "images": images},
    }
    return msgspec.convert(content, ImageBuild)


@pytest.mark.req("RP-016")
def test_nodes_by_policy_free_zones_and_what_fits_none() -> None:
    topologies = [topology("tight", "single-numa-node", "8", "2"), topology("loose", "none", "16", size="16")]
    bare = msgspec.convert({"name": "node-9", "type": "Node", "resources": []}, type(topologies[0].zones[0]))
    topologies[1] = msgspec.structs.replace(topologies[1], zones=[*topologies[1].zones, bare])
    large, small = workload("large", BOTH, cpu=9000), workload("small", BOTH, cpu=8000)
    gone = workload("gone", BOTH, cpu=9000, replicas=0)
    rows = {(each.what, each.message): (each.count, each.names) for each in numa_rows(topologies, [large, small, gone])}
    assert rows["NodesByPolicy", "nodes of policy single-numa-node"][0] == 1
    assert rows["NodesByPolicy", "nodes of policy none"][0] == 1
    assert rows["FreeZones", "NUMA zones of which nothing is taken"] == (2, ("loose/0", "tight/0"))
    assert rows["FitNoZone", "ask for more than any zone of a single-numa-node node has"] == (
        1,
        ("shop/Deployment/large",),
    )


@pytest.mark.req("RP-016")
def test_builds_whose_result_lacks_architectures() -> None:
    builds = [build("whole", ["amd64", "arm64"], ["amd64", "arm64"]), build("half", ["amd64", "arm64"], ["amd64"])]
    rows = {each.what: (each.count, each.names) for each in build_rows(builds)}
    assert rows == {"ImageBuilds": (2, ()), "LackingArchitectures": (1, ("shop/half: arm64",))}


@pytest.mark.req("RP-016")
def test_nothing_is_said_of_what_a_cluster_does_not_have() -> None:
    assert numa_rows([], [workload("w", BOTH)]) == ()
    assert build_rows([]) == ()
