"""The platforms that templates of autoscalers and clouds may bring."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.images.node_templates import (
    KINDS,
    OFFERED,
    RESOURCES,
    TemplateError,
    aks_agent_pool,
    node_pool,
    platforms_of_template,
)
from polyarch.platforms import KNOWN_ARCHITECTURES, NodePlatform
from polyarch.selectors import Requirement

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


@pytest.mark.parametrize(
    "others",
    [
        [],
        [needs(ARCH, "Exists")] * 50,
        [needs(ARCH, "NotIn", *(f"b{n}" for n in range(2_000)))],
        [needs(ARCH, "Lt", "9")] * 50,
        [needs(ARCH, "In", *(str(n) for n in range(10, 2_000)), "arm64")],
    ],
    ids=["alone", "with Exists", "with NotIn", "with Lt", "with In"],
)
def test_reading_a_node_pool_of_many_values_takes_time_in_proportion(others: Any) -> None:
    """Four times the values take about four times as long, and not sixteen times."""

    def cpu_seconds(values: int) -> float:
        document = pool(needs(ARCH, "In", *(str(n) for n in range(values)), "arm64"), *others)
        least = 60.0
        for _ in range(3):
            begin = time.process_time()
            node_pool(document)
            least = min(least, time.process_time() - begin)
        return least

    assert cpu_seconds(16_000) < 9 * cpu_seconds(4_000)


VALUES = st.lists(st.sampled_from(["amd64", "arm64", "s390x", "x", "1", "2", "07", "-3"]), min_size=1, max_size=4)
EXPRESSIONS = st.one_of(
    st.tuples(st.sampled_from(["In", "NotIn"]), VALUES),
    st.tuples(st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    st.tuples(st.sampled_from(["Gt", "Lt"]), st.sampled_from([["0"], ["1"], ["2"], ["10"]])),
)


@given(st.lists(EXPRESSIONS, max_size=5))
def test_the_architectures_of_a_node_pool_are_those_that_match_each_requirement(expressions) -> None:
    requirements = [Requirement(ARCH, operator, tuple(values)) for operator, values in expressions]
    read = node_pool(pool(*(needs(ARCH, operator, *values) for operator, values in expressions)))
    expected = {each for each in OFFERED if all(known.matches({ARCH: each}) for known in requirements)}
    named = {value for known in requirements if known.operator == "In" for value in known.values}
    expected |= {each for each in named & KNOWN_ARCHITECTURES if all(k.matches({ARCH: each}) for k in requirements)}
    assert (read.architectures or set()) == expected
