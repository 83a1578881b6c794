"""Pods that nothing but a taint of ours keeps pending."""

from typing import Any

import msgspec
import pytest
from taint_nodes import document, node

from polyarch.objects import Pod
from polyarch.taints.node_rules import pending_because_of_taints
from polyarch.taints.settings import TaintSettings

ARM = "supported-arch=arm64:NoSchedule"
GPU = "nvidia.com/gpu=x:NoSchedule"
AMD64 = node(document("a", "amd64"))
ARM64 = node(document("b", "arm64", ARM))
TOLERATION = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Pod:
    metadata = {"name": "app", "namespace": "demo", "uid": "u1", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def found(pod: Pod, *nodes: Any, labels: dict[str, str] | None = None, **settings: Any) -> set[str]:
    pending = pending_because_of_taints([pod], nodes, TaintSettings(**settings), lambda namespace: labels)
    assert all(names == {"u1": "demo/app"} for names in pending.values())
    return set(pending)


@pytest.mark.req("TN-026")
def test_a_pod_that_only_tainted_nodes_would_take() -> None:
    assert found(pod(), ARM64) == {"arm64"}
    assert found(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), AMD64, ARM64) == {"arm64"}


@pytest.mark.req("TN-026")
@pytest.mark.parametrize(
    "nodes",
    [
        [AMD64, ARM64],
        [node(document("b", "arm64", ARM, GPU))],
        [node(document("b", "arm64"))],
        [],
    ],
    ids=["another node takes it", "a vendor's taint keeps it off, too", "nothing is tainted", "no nodes"],
)
def test_other_reasons_are_not_ours(nodes: list[Any]) -> None:
    assert found(pod(), *nodes) == set()


@pytest.mark.req("TN-026")
@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [TOLERATION]},
        {"schedulingGates": [{"name": "polyarch.dev/tolerations"}]},
        {"nodeName": "b"},
        {"nodeSelector": {"zone": "z"}},
    ],
    ids=["it tolerates the taint", "it is gated", "it has a node", "no node has its labels"],
)
def test_pods_that_do_not_wait_because_of_us(spec: dict[str, Any]) -> None:
    assert found(pod(**spec), ARM64) == set()


@pytest.mark.req("TN-026")
def test_who_has_opted_out_waits_because_of_that() -> None:
    assert found(pod({"polyarch.dev/taints": "disabled"}), ARM64) == set()
    assert found(pod(), ARM64, labels={"polyarch.dev/taints": "disabled"}) == set()


@pytest.mark.req("TN-026")
def test_a_taint_that_keeps_no_pod_off_is_no_reason() -> None:
    tainted = node(document("b", "arm64", "supported-arch=arm64:PreferNoSchedule"))
    assert found(pod(), tainted, effect="PreferNoSchedule") == set()


@pytest.mark.req("TN-026")
def test_each_architecture_that_would_take_it_counts() -> None:
    other = node(document("c", "s390x", "supported-arch=s390x:NoSchedule"))
    assert found(pod(), ARM64, other) == {"arm64", "s390x"}
