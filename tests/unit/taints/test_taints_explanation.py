"""What is said of a pod's tolerations, per architecture of the nodes."""

from typing import Any

import msgspec
import pytest
from taint_cluster import answers, pod
from taint_nodes import document, node

from polyarch.objects import Pod
from polyarch.taints.decision import TolerationLookupProgress
from polyarch.taints.events import explain_tolerations
from polyarch.taints.pod_rules import PodFacts, decide, examine
from polyarch.taints.settings import TaintSettings

TAINT = "supported-arch=arm64:NoSchedule"
NODES = [node(document(name, architecture, *taints)) for name, architecture, *taints in (
    ("a", "amd64"),
    ("b", "arm64", TAINT),
    ("c", "arm64"),
    ("d", "s390x", "supported-arch=s390x:NoSchedule"),
    ("e", ""),
)]  # fmt: skip


def explained(image: str, **spec: Any) -> dict[str, Any]:
    given = msgspec.convert(pod("p", image, **spec), Pod)
    settings = TaintSettings()
    case = examine(PodFacts(pod=given, namespace="shop", settings=settings, existing=frozenset({"amd64", "arm64"})))
    return explain_tolerations(case, decide(case, answers(given), TolerationLookupProgress.FIRST), NODES)


@pytest.mark.req("TN-084")
def test_each_architecture_of_the_nodes_has_its_taint_and_what_covers_it() -> None:
    covering = {"key": "supported-arch", "operator": "Exists", "effect": "NoSchedule"}
    found = explained("both", tolerations=[{"key": "x"}, covering])
    assert found["nodes"] == [
        {"architecture": "amd64", "nodes": 1, "taint": None, "tainted": 0, "toleratedBy": None, "added": False},
        {
            "architecture": "arm64",
            "nodes": 2,
            "taint": TAINT,
            "tainted": 1,
            "toleratedBy": covering,
            "added": False,
        },
        {
            "architecture": "s390x",
            "nodes": 1,
            "taint": "supported-arch=s390x:NoSchedule",
            "tainted": 1,
            "toleratedBy": covering,
            "added": False,
        },
    ]
    assert found["reason"] == "Covered"


@pytest.mark.req("TN-084")
def test_what_is_added_and_what_is_missing_is_told_apart() -> None:
    found = explained("both")
    assert {each["architecture"]: (each["toleratedBy"], each["added"]) for each in found["nodes"]} == {
        "amd64": (None, False),
        "arm64": (None, True),
        "s390x": (None, False),
    }
    assert (found["outcome"], found["adds"], found["architectures"]) == ("tolerated", ["arm64"], ["amd64", "arm64"])
    assert "arm64" in found["message"]
