"""Nodes as builds see them."""

from typing import Any

import msgspec
import pytest

from polyarch.builds.facts.build_facts import NodeFacts
from polyarch.builds.facts.objects import NodeObject, node_facts

pytestmark = pytest.mark.req("BD-152")

TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}


def read(labels: dict[str, str] | None = None, **status: Any) -> NodeFacts:
    document = {"metadata": {"name": "n1", "labels": labels}, "status": status}
    return node_facts(msgspec.convert(document, NodeObject))


def info(architecture: str, system: str = "linux") -> dict[str, str]:
    return {"architecture": architecture, "operatingSystem": system}


def labelled(architecture: str, system: str = "linux") -> dict[str, str]:
    return {"kubernetes.io/arch": architecture, "kubernetes.io/os": system}


TOLD: dict[str, tuple[NodeFacts, tuple[str, str, bool]]] = {
    "the kubelet says it": (read(nodeInfo=info("arm64")), ("linux", "arm64", False)),
    "labels say it where the kubelet does not": (read(labelled("arm64")), ("linux", "arm64", False)),
    "each where the other says nothing": (
        read({"kubernetes.io/os": "linux"}, nodeInfo={"architecture": "arm64"}),
        ("linux", "arm64", False),
    ),
    "both say the same": (read(labelled("arm64"), nodeInfo=info("arm64")), ("linux", "arm64", False)),
    "the kubelet is right where they differ": (
        read(labelled("amd64"), nodeInfo=info("arm64")),
        ("linux", "arm64", True),
    ),
    "also about the system": (
        read(labelled("arm64", "windows"), nodeInfo=info("arm64")),
        ("linux", "arm64", True),
    ),
    "another spelling in a label is another label": (
        read(labelled("x86_64"), nodeInfo=info("amd64")),
        ("linux", "amd64", True),
    ),
    "spellings are brought to Go's": (read(nodeInfo=info("aarch64")), ("linux", "arm64", False)),
    "an old label does not count": (
        read({"beta.kubernetes.io/arch": "arm64", "beta.kubernetes.io/os": "linux"}),
        ("", "", False),
    ),
    "nobody says it": (read(), ("", "", False)),
    "nonsense is nothing": (read(nodeInfo=info("not an architecture!")), ("linux", "", False)),
    "an architecture that nobody knows": (read(nodeInfo=info("sw64")), ("linux", "sw64", False)),
}


@pytest.mark.req("BD-040")
@pytest.mark.parametrize("case", TOLD, ids=str)
def test_what_a_node_runs(case: str) -> None:
    facts, expected = TOLD[case]
    assert (facts.operating_system, facts.architecture, facts.mismatch) == expected


def test_the_rest_of_a_node() -> None:
    document = {
        "metadata": {
            "name": "n1",
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "deletionTimestamp": "2026-01-31T13:00:00Z",
            "labels": {"pool": "a"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "z", "effect": "NoExecute"}, TAINT]},
        "status": {
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "runtimeHandlers": [
                {"name": "", "features": {"userNamespaces": True}},
                {"name": "kata", "features": {"userNamespaces": False}},
                {"name": "gvisor", "features": {"recursiveReadOnlyMounts": True}},
                {"name": "runc", "features": {"userNamespaces": True}},
                {"name": "old"},
            ],
        },
    }
    assert node_facts(msgspec.convert(document, NodeObject)) == NodeFacts(
        name="n1",
        labels={"pool": "a"},
        created=1769860800.0,
        deleting=True,
        ready=True,
        schedulable=False,
        taints=(("a", "b", "NoSchedule"), ("z", "", "NoExecute")),
        user_namespaces=frozenset({"", "runc"}),
    )


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_does_not_answer_is_not_ready(status: str) -> None:
    assert not read(conditions=[{"type": "Ready", "status": status}]).ready


@pytest.mark.req("BD-100")
def test_heartbeats_and_the_order_of_lists_make_no_difference() -> None:
    def seen(time: str, taints: list[Any], handlers: list[Any]) -> NodeFacts:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": time}
        document = {
            "metadata": {"name": "n1", "resourceVersion": time, "annotations": {"beat": time}},
            "spec": {"taints": taints},
            "status": {"conditions": [ready], "runtimeHandlers": handlers},
        }
        return node_facts(msgspec.convert(document, NodeObject))

    taints = [TAINT, {"key": "c", "effect": "NoExecute"}]
    handlers = [{"name": each, "features": {"userNamespaces": True}} for each in ("", "runc")]
    assert seen("1", taints, handlers) == seen("2", taints[::-1], handlers[::-1])


@pytest.mark.req("BD-348")
def test_equal_labels_of_nodes_are_kept_once_and_annotations_of_others_not_at_all() -> None:
    def node(name: str) -> NodeObject:
        image = "machineconfiguration.openshift.io/currentImage"
        document = {
            "metadata": {
                "name": name,
                "labels": {"example.com/a-label-that-every-node-has": "a value of some length"},
                "annotations": {image: "quay.io/os@sha256:1", "csi.example.com/nodeid": "long"},
            }
        }
        return msgspec.json.decode(msgspec.json.encode(document), type=NodeObject)

    one, other = node("n1").metadata, node("n2").metadata
    assert one.annotations == {"machineconfiguration.openshift.io/currentImage": "quay.io/os@sha256:1"}
    [(key, text)], [(same_key, same_text)] = (one.labels or {}).items(), (other.labels or {}).items()
    assert key is same_key
    assert text is same_text
