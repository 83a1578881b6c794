"""The platforms that templates of autoscalers and clouds may bring."""

from typing import Any

import pytest

from polyarch.images.node_templates import KINDS, RESOURCES, TemplateError, aks_agent_pool, platforms_of_template
from polyarch.platforms import NodePlatform

pytestmark = pytest.mark.req("PL-218")

ARCH, OS = "kubernetes.io/arch", "kubernetes.io/os"
TOLD = "capacity.cluster-autoscaler.kubernetes.io/labels"


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def pool(*requirements: Any, **labels: str) -> dict[str, Any]:
    template = {"metadata": {"labels": labels}, "spec": {"requirements": list(requirements)}}
    return {"metadata": {"name": "p"}, "spec": {"template": template}}


def machines(told: str = "", own: Any = None, labels: Any = None, **metadata: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": labels or {}}, "spec": {"metadata": {"labels": own or {}}}}
    annotations = {TOLD: told} if told else {}
    return {"metadata": {"name": "m", "annotations": annotations, **metadata}, "spec": {"template": template}}


def described(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ng"}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "document", "platforms"),
    [
        pytest.param("NodePool", pool(), ["linux/amd64", "linux/arm64"], id="a NodePool that says nothing"),
        pytest.param(
            "NodePool",
            pool(needs(OS, "In", "windows"), needs(ARCH, "In", "amd64")),
            ["windows/amd64"],
            id="of windows",
        ),
        pytest.param(
            "NodePool",
            pool(needs(OS, "Exists"), needs(ARCH, "In", "arm64")),
            ["linux/arm64", "windows/arm64"],
            id="of any system",
        ),
        pytest.param(
            "NodePool", pool(needs(OS, "NotIn", "linux"), **{ARCH: "amd64"}), ["windows/amd64"], id="not of linux"
        ),
        pytest.param("NodePool", pool(needs(ARCH, "In", "amd64"), needs(ARCH, "In", "arm64")), [], id="of no node"),
        pytest.param("NodePool", pool(needs(OS, "In", "freebsd")), [], id="of a system that no node has"),
        pytest.param("MachineDeployment", machines(), ["linux/"], id="machines that say nothing"),
        pytest.param(
            "MachineDeployment", machines(f"{OS}=windows, {ARCH}=amd64"), ["windows/amd64"], id="by their annotation"
        ),
        pytest.param("MachineDeployment", machines(labels={OS: "windows"}), ["windows/"], id="by their labels"),
        pytest.param("MachinePool", machines(labels={ARCH: "arm64"}), ["linux/arm64"], id="of a MachinePool"),
        pytest.param("NodePool", pool({"key": None, "operator": "In"}), [], id="a NodePool that is not understood"),
        pytest.param(
            "MachineDeployment", machines(deletionTimestamp="2026-01-01T00:00:00Z"), [], id="that are being deleted"
        ),
        pytest.param("Nodegroup", described(amiType="WINDOWS_CORE_2022_x86_64"), ["windows/amd64"], id="EKS, windows"),
        pytest.param("Nodegroup", described(amiType="AL2023_ARM_64_STANDARD"), ["linux/arm64"], id="EKS, Arm"),
        pytest.param("Nodegroup", described(amiType="CUSTOM"), ["linux/"], id="EKS, an image of somebody's own"),
        pytest.param(
            "ContainerNodePool",
            described(nodeConfig={"machineType": "c4a-standard-4", "imageType": "COS_CONTAINERD"}),
            ["linux/arm64"],
            id="GKE, Arm",
        ),
        pytest.param(
            "ContainerNodePool",
            described(nodeConfig={"machineType": "n2-standard-4", "imageType": "windows_ltsc_containerd"}),
            ["windows/amd64"],
            id="GKE, windows",
        ),
        pytest.param(
            "ManagedClustersAgentPool",
            described(vmSize="Standard_D4s_v5", osType="Windows"),
            ["windows/amd64"],
            id="AKS, windows",
        ),
    ],
)
def test_a_template_says_which_platforms_may_come(kind, document, platforms) -> None:
    read = next(each for each in KINDS if each.kind == kind)
    assert sorted(map(str, platforms_of_template(read, document))) == platforms


def test_machines_of_openshift_say_their_system_by_a_label() -> None:
    kind = next(each for each in KINDS if each.group == "machine.openshift.io")
    document = machines(labels={"machine.openshift.io/os-id": "Windows"}, own={ARCH: "amd64"})
    assert platforms_of_template(kind, document) == {NodePlatform("windows", "amd64")}


def test_the_rights_name_every_kind_that_is_read() -> None:
    assert {(group, f"{kind.lower()}s") for group, kind, _ in KINDS} == {
        (group, plural) for group, plurals in RESOURCES.items() for plural in plurals
    }


@pytest.mark.parametrize("size", ["Standard_D4" + "p" * 16_000, "Standard_D4" + "p" * 118, "x" * 129])
def test_a_size_of_azure_that_is_longer_than_any_is_not_understood(size) -> None:
    """Reading it would take the square of its length."""
    with pytest.raises(TemplateError, match=r"^vmSize is .{60}, which has more than 128 characters$"):
        aks_agent_pool(described(vmSize=size))
    kind = next(each for each in KINDS if each.kind == "ManagedClustersAgentPool")
    assert platforms_of_template(kind, described(vmSize=size)) == frozenset()


def test_the_longest_size_of_azure_is_understood() -> None:
    size = "Standard_D4" + "p" * 116 + "_"
    assert aks_agent_pool(described(vmSize=size)).architectures == {"arm64"}
