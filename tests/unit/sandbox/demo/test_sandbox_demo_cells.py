"""The part of the demo about NUMA cells: which pods, and what became of them."""

from typing import Any

import msgspec
import pytest

from polyarch.sandbox.demo.components import REFUSED, count, documents
from polyarch.sandbox.kubelet_model import admission, layout, machine
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.nodes.pods import Pod, pod_request


def pods(numa: NumaLayout, nodes: int) -> list[Pod]:
    found = documents(numa, nodes)
    return [
        msgspec.convert({**each, "metadata": {**each["metadata"], "uid": each["metadata"]["name"]}}, Pod)
        for each in found
    ]


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("text", "nodes", "count"),
    [("2x16", 3, 12), ("8x8", 13, 200), ("1x4", 1, 2)],
    ids=["few", "many", "one"],
)
def test_the_demo_shows_the_same_pods_every_time(text: str, nodes: int, count: int) -> None:
    numa = NumaLayout.parse(text)
    assert len(documents(numa, nodes)) == count
    assert documents(numa, nodes) == documents(numa, nodes)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("text", ["2x16", "2x8", "8x8", "4x32"])
def test_no_cell_holds_two_of_the_large_pods_though_a_node_would_by_its_sums(text: str) -> None:
    """Else there were nothing to see."""
    numa = NumaLayout.parse(text)
    node, large = layout.node(numa), str(numa.cpus // 2 + 1)
    wanted = [
        each
        for each in (pod_request(with_requests(pod)) for pod in pods(numa, 2))
        if each.containers[0].requests["cpu"] == int(large)
    ]
    held, admitted, refusals = admission.at_first(node), [], []
    for pod in wanted[: numa.zones + 1]:
        held, refused = admission.admit(node, held, pod, admitted)
        if refused is None:
            admitted.append(pod)
        else:
            refusals.append(refused.reason)
    assert len(admitted) == numa.zones
    assert refusals == [REFUSED]
    assert (numa.zones + 1) * int(large) <= machine.allocatable(node)["cpu"], "its sums would hold them"


def with_requests(pod: Pod) -> Pod:
    """The API server completes requests from limits."""
    document: dict[str, Any] = msgspec.to_builtins(pod)
    for container in document["spec"]["containers"]:
        container["resources"]["requests"] = container["resources"]["limits"]
    return msgspec.convert(document, Pod)


@pytest.mark.req("NS-164")
def test_pods_are_counted_by_what_became_of_them() -> None:
    def pod(node: str, **status: str) -> Pod:
        return msgspec.convert({"spec": {"nodeName": node}, "status": status}, Pod)

    found = count(
        "any",
        [
            pod("a", phase="Running"),
            pod("a", phase="Failed", reason="TopologyAffinityError"),
            pod("b", phase="Failed", reason="OutOfcpu"),
            pod("", phase="Pending"),
            pod("b", phase="Pending"),
        ],
    )
    assert (found.running, found.refused, found.waiting) == (1, 1, 1)
