"""What a kubelet checks beside zones: sums of the node, node affinity, host ports, taints and the operating system."""

from typing import Any

import msgspec
import pytest
from kubelet_cases import Kubelet, guaranteed, numa_node

from polyarch.sandbox.kubelet_model import admission
from polyarch.sandbox.kubelet_model.requests import NodeObject, PodRejected
from polyarch.sandbox.nodes.plans import PLAIN_NODE
from polyarch.sandbox.nodes.pods import Pod, pod_request
from polyarch.tolerations import Taint

pytestmark = pytest.mark.req("NS-164")

AFFINITY = "NodeAffinity"
PORTS = "NodePorts"
TAINTS = "TaintToleration"
FAST = {"disk": "fast"}
BROKEN = Taint("broken", "yes", "NoExecute")


def refused(spec: dict[str, Any], seen: NodeObject, *others: dict[str, Any], **metadata: Any) -> PodRejected | None:
    made = [
        pod_request(msgspec.convert({"metadata": {"uid": str(number), **metadata}, "spec": each}, Pod))
        for number, each in enumerate((spec, *others))
    ]
    return admission.misfit(PLAIN_NODE, made[0], made[1:], seen)


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [each]} for each in expressions]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def ports(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "ports": list(given)}], **more}


def sidecar(port: int) -> dict[str, Any]:
    return {"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": port}]}]}


IN = {"key": "disk", "operator": "In", "values": ["fast"]}
SLOW = {"key": "disk", "operator": "In", "values": ["slow"]}


@pytest.mark.parametrize(
    ("spec", "labels", "reason"),
    [
        ({}, {}, ""),
        ({"nodeSelector": FAST}, FAST, ""),
        ({"nodeSelector": FAST}, {}, AFFINITY),
        (required(IN), FAST, ""),
        (required(IN), {"disk": "slow"}, AFFINITY),
        (required(SLOW, IN), FAST, ""),
        (required({"key": "disk", "operator": "DoesNotExist"}), {}, ""),
        (required(), FAST, AFFINITY),
        ({"nodeSelector": {"disk": "slow"}, **required(IN)}, FAST, AFFINITY),
    ],
)
def test_the_node_must_be_one_that_the_pod_may_be_on(spec: dict[str, Any], labels: dict[str, str], reason: str) -> None:
    found = refused(spec, NodeObject(name="n", labels=labels))
    assert (found.reason if found else "") == reason
    if found is not None:
        assert found.message == "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("wanted", "taken", "reason"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, PORTS),
        ({"hostPort": 80}, {"hostPort": 81}, ""),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, ""),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80}, PORTS),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "127.0.0.1"}, PORTS),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.2"}, ""),
        ({"containerPort": 80}, {"containerPort": 80}, ""),
    ],
)
def test_a_host_port_is_given_once(wanted: dict[str, Any], taken: dict[str, Any], reason: str) -> None:
    found = refused(ports(wanted), NodeObject(), ports(taken))
    assert (found.reason if found else "") == reason


def test_ports_of_sidecars_count() -> None:
    assert refused(ports({"hostPort": 80}), NodeObject(), sidecar(80)) is not None
    assert refused(ports({"hostPort": 80}), NodeObject(), sidecar(81)) is None


@pytest.mark.parametrize(
    ("taint", "tolerations", "reason"),
    [
        (BROKEN, [], TAINTS),
        (Taint("broken", "yes", "NoSchedule"), [], ""),
        (BROKEN, [{"key": "broken", "operator": "Exists"}], ""),
        (BROKEN, [{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], ""),
        (BROKEN, [{"key": "broken", "value": "no"}], TAINTS),
    ],
)
def test_a_taint_that_evicts_keeps_pods_off(taint: Taint, tolerations: list[dict[str, Any]], reason: str) -> None:
    found = refused({"tolerations": tolerations}, NodeObject(taints=(taint,)))
    assert (found.reason if found else "") == reason


@pytest.mark.parametrize(
    ("spec", "labels", "reason"),
    [
        ({"os": {"name": "windows"}}, {}, "PodOSNotSupported"),
        ({}, {"kubernetes.io/os": "windows"}, "PodOSSelectorNodeLabelDoesNotMatch"),
        ({"os": {"name": "linux"}}, {"kubernetes.io/os": "linux"}, ""),
    ],
)
def test_the_pod_must_be_for_linux(spec: dict[str, Any], labels: dict[str, str], reason: str) -> None:
    found = refused(spec, NodeObject(), labels=labels)
    assert (found.reason if found else "") == reason


def test_of_several_reasons_the_sums_of_the_node_come_first() -> None:
    many = {"containers": [{"name": "a", "resources": {"requests": {"cpu": "17"}}}], "nodeSelector": FAST}
    found = refused(many, NodeObject(taints=(BROKEN,)))
    assert found is not None
    assert (found.reason, found.message) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 17000, used: 0, capacity: 16000",
    )


def test_zones_are_asked_before_everything_else() -> None:
    kubelet = Kubelet(numa_node("2x4"))
    kubelet.held, found = admission.admit(
        kubelet.node, kubelet.held, guaranteed("large", cpu=6, memory=1), [], NodeObject(taints=(BROKEN,))
    )
    assert found is not None
    assert found.reason == "TopologyAffinityError"


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    kubelet = Kubelet(numa_node("2x4,pods=2"))
    reasons = [kubelet.reason(guaranteed(name, cpu=1, memory=1)) for name in ("a", "b", "c")]
    assert reasons == ["", "", "OutOfpods"]
