"""What ``polyarch taint plan --emit`` prints for other parts of the cluster."""

from typing import Any

import pytest

from polyarch.kube.patches import apply_patch
from polyarch.kube.resources import Resource
from polyarch.taints.documents import (
    MACHINE_SETS,
    NODE_POOLS,
    NODES_GUARD,
    PODS_GUARD,
    guard_policies,
    kubelet_flags,
    lacking,
    runtime_classes,
)
from polyarch.taints.settings import TaintSettings

ARCH = "kubernetes.io/arch"
USUAL = TaintSettings()
POOLS = Resource(NODE_POOLS[0], "v1", "nodepools", "NodePool", namespaced=False)
SETS = Resource(MACHINE_SETS[0], "v1beta1", "machinesets", "MachineSet")
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


def pool(*architectures: str, **spec: Any) -> dict[str, Any]:
    requirements = [{"key": ARCH, "operator": "In", "values": list(architectures)}] if architectures else []
    return {
        "metadata": {"name": "pool"},
        "spec": {"template": {"spec": {"requirements": requirements, **spec}}},
    }


def machines(labels: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {"capacity.cluster-autoscaler.kubernetes.io/labels": labels} if labels else {}
    metadata = {"name": "machines", "namespace": "openshift-machine-api", "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("resource", "document"),
    [
        pytest.param(POOLS, pool("arm64"), id="a NodePool without taints"),
        pytest.param(POOLS, pool("arm64", taints=[{"key": "gpu", "effect": "NoSchedule"}]), id="with another"),
        pytest.param(POOLS, pool("arm64", startupTaints=[TAINT]), id="startupTaints are no place"),
        pytest.param(SETS, machines("a=b, kubernetes.io/arch=arm64"), id="a MachineSet that is told its labels"),
        pytest.param(SETS, machines(metadata={"labels": {ARCH: "aarch64"}}), id="a MachineSet that labels"),
    ],
)
def test_the_patch_adds_the_taint_that_a_template_lacks(resource, document) -> None:
    found = lacking(resource, document, USUAL)
    assert found is not None
    patched = apply_patch(document, found.patch)
    assert TAINT in patched["spec"]["template"]["spec"]["taints"]
    assert lacking(resource, patched, USUAL) is None, "done once, it is done"
    others = document["spec"]["template"]["spec"].get("taints", [])
    assert patched["spec"]["template"]["spec"]["taints"][: len(others)] == others


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("resource", "document"),
    [
        pytest.param(POOLS, pool("amd64"), id="of a primary architecture"),
        pytest.param(POOLS, pool(), id="of an architecture that it does not say"),
        pytest.param(POOLS, pool("arm64", taints=[TAINT]), id="with the taint"),
        pytest.param(SETS, machines(), id="a MachineSet that says nothing"),
    ],
)
def test_a_template_is_not_listed_that_is_as_it_should_be(resource, document) -> None:
    assert lacking(resource, document, USUAL) is None


@pytest.mark.req("TN-028")
def test_a_template_of_several_architectures_cannot_have_one_taint() -> None:
    found = lacking(POOLS, pool("amd64", "arm64"), USUAL)
    assert found is not None
    assert not found.patch
    assert "make a NodePool for each architecture" in found.detail


@pytest.mark.req("TN-028")
def test_the_patch_is_printed_as_a_command() -> None:
    found = lacking(SETS, machines(metadata={"labels": {ARCH: "arm64"}}), USUAL)
    assert found is not None
    assert found.command == (
        "kubectl patch machinesets.machine.openshift.io machines -n openshift-machine-api --type=json -p "
        '\'[{"op":"add","path":"/spec/template/spec/taints","value":'
        '[{"key":"supported-arch","value":"arm64","effect":"NoSchedule"}]}]\''
    )
