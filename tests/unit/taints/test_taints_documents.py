"""What ``polyarch taint plan --emit`` prints for other parts of the cluster."""

import pytest

from polyarch.taints.documents import (
    NODES_GUARD,
    PODS_GUARD,
    guard_policies,
    kubelet_flags,
    runtime_classes,
)
from polyarch.taints.settings import TaintSettings

ARCH = "kubernetes.io/arch"
USUAL = TaintSettings()
TAINT = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}


@pytest.mark.req("TN-054")
def test_there_is_a_runtime_class_for_each_managed_architecture_with_nodes() -> None:
    made = runtime_classes(USUAL, ["arm64", "amd64", "arm64"], handler="runc")
    assert [each["metadata"]["name"] for each in made] == ["arch-amd64", "arch-arm64"]
    assert made[1] == {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "arch-arm64"},
        "handler": "runc",
        "scheduling": {"nodeSelector": {ARCH: "arm64"}, "tolerations": [{**TAINT, "operator": "Equal"}]},
    }
    assert not runtime_classes(TaintSettings(given=frozenset({"arm64"})), ["amd64"], handler="runc")


@pytest.mark.req("TN-027")
def test_the_kubelet_of_each_tainted_architecture_has_a_flag() -> None:
    flags = kubelet_flags(TaintSettings(given=frozenset({"amd64", "s390x"})), ["amd64", "arm64"])
    assert [(each.architecture, each.flag) for each in flags] == [
        ("s390x", "--register-with-taints=supported-arch=s390x:NoSchedule")
    ]
    everything = kubelet_flags(TaintSettings(mode="tolerations", effect="NoExecute"), ["amd64", "arm64"])
    assert [each.flag for each in everything] == [
        "--register-with-taints=supported-arch=amd64:NoExecute",
        "--register-with-taints=supported-arch=arm64:NoExecute",
    ]


@pytest.mark.req("TN-054")
def test_guards_warn_and_never_refuse() -> None:
    documents = guard_policies(USUAL)
    bindings = [each for each in documents if each["kind"].endswith("Binding")]
    assert [each["metadata"]["name"] for each in bindings] == [PODS_GUARD, NODES_GUARD]
    assert all(each["spec"]["validationActions"] == ["Warn", "Audit"] for each in bindings)
    assert all(each["spec"]["failurePolicy"] == "Ignore" for each in documents if each not in bindings)
