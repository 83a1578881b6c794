"""Templates of autoscalers and pools of clouds: what they say of their nodes, and what adds the taint."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from taint_nodes import document as node_document

from polyarch.images.node_templates import KINDS
from polyarch.kube.patches import apply_patch
from polyarch.kube.resources import Resource
from polyarch.objects import Node
from polyarch.taints.node_templates import NodeTemplate, cloud_pools, lacking, unsaid
from polyarch.taints.settings import TaintSettings

ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
USUAL = TaintSettings()
RECORDED = TaintSettings.of({"taint": {"preset": "custom", "key": "arch"}})
TAINT = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
TEXT = "supported-arch=arm64:NoSchedule"
GPU = {"key": "gpu", "effect": "NoSchedule"}
AUTOSCALER = "capacity.cluster-autoscaler.kubernetes.io"
Json = dict[str, Any]


def resource(group: str, kind: str) -> Resource:
    assert (group, kind) in {(each.group, each.kind) for each in KINDS}
    return Resource(group, "v1", f"{kind.lower()}s", kind)


POOLS = resource("karpenter.sh", "NodePool")
SETS = resource("machine.openshift.io", "MachineSet")
DEPLOYMENTS = resource("cluster.x-k8s.io", "MachineDeployment")
EKS = resource("eks.services.k8s.aws", "Nodegroup")
GKE = resource("container.cnrm.cloud.google.com", "ContainerNodePool")
AKS = resource("containerservice.azure.com", "ManagedClustersAgentPool")


def needs(operator: str, *values: str, key: str = ARCH) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def pool(*requirements: Json, labels: Json | None = None, **spec: Any) -> Json:
    template = {"metadata": {"labels": labels or {}}, "spec": {"requirements": list(requirements), **spec}}
    return {"metadata": {"name": "pool"}, "spec": {"template": template}}


def arm(**spec: Any) -> Json:
    return pool(needs("In", "arm64"), **spec)


def machines(labels: str = "", taints: str = "", /, **spec: Any) -> Json:
    told = {f"{AUTOSCALER}/labels": labels, f"{AUTOSCALER}/taints": taints}
    annotations = {name: text for name, text in told.items() if text}
    metadata = {"name": "machines", "namespace": "ns", "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


def described(**spec: Any) -> Json:
    return {"metadata": {"name": "ng", "namespace": "cloud"}, "spec": spec}


def lacked(kind: Resource, document: Json, settings: TaintSettings = USUAL) -> NodeTemplate:
    found = lacking(kind, document, settings)
    assert found is not None
    return found


# -- what a NodePool says of architectures -----------------------------------------------------------------------------


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("requirements", "architectures"),
    [
        pytest.param([needs("In", "arm64")], ("arm64",), id="in one"),
        pytest.param([needs("In", "aarch64")], (), id="in one by a name that no node is labelled with"),
        pytest.param([needs("In", "aarch64", "arm64")], ("arm64",), id="in one by both names"),
        pytest.param([needs("NotIn")], ("amd64", "arm64"), id="not in none"),
        pytest.param([needs("Exists", "arm64")], ("amd64", "arm64"), id="exists with values, which are ignored"),
        pytest.param([needs("In", "arm64"), needs("Gte", "1", key="cpu")], ("arm64",), id="beside a bound"),
        pytest.param([needs("Lte", "9")], (), id="a bound for a name"),
        pytest.param([{**needs("In", "arm64", "amd64"), "minValues": 2}], ("amd64", "arm64"), id="several at once"),
        pytest.param(
            [{**needs("Exists"), "minValues": 2}, needs("NotIn", "amd64")], (), id="more at once than are left"
        ),
        pytest.param([needs("In", "s390x")], ("s390x",), id="in one that few offer"),
        pytest.param([needs("In", "arm64", key=f"beta.{ARCH}")], ("arm64",), id="in one by the former key"),
        pytest.param([needs("NotIn", "amd64")], ("arm64",), id="not in the other one"),
        pytest.param([needs("In", "amd64", "arm64"), needs("NotIn", "amd64")], ("arm64",), id="both together"),
        pytest.param([needs("Exists"), needs("In", "arm64")], ("arm64",), id="exists, and in one"),
        pytest.param([needs("In", "amd64", "arm64")], ("amd64", "arm64"), id="in several"),
        pytest.param([needs("Exists")], ("amd64", "arm64"), id="exists"),
        pytest.param([needs("NotIn", "s390x")], ("amd64", "arm64"), id="not in one that nobody offers"),
        pytest.param([], ("amd64", "arm64"), id="nothing is said"),
        pytest.param([needs("In", "spot", key="karpenter.sh/capacity-type")], ("amd64", "arm64"), id="of other things"),
        pytest.param([needs("In", "amd64"), needs("In", "arm64")], (), id="contradicting each other"),
        pytest.param([needs("NotIn", "amd64", "arm64")], (), id="nothing that is offered"),
        pytest.param([needs("DoesNotExist")], (), id="a label that every node has"),
        pytest.param([needs("Gt", "1")], (), id="a number"),
    ],
)
def test_requirements_of_a_nodepool_add_up(requirements, architectures) -> None:
    found = lacked(POOLS, pool(*requirements))
    assert found.architectures == architectures
    assert bool(found.patch) == (len(architectures) == 1)
    assert ("make a NodePool for each architecture" in found.detail) == (len(architectures) > 1)
    assert ("makes no node" in found.detail) == (not architectures)


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pool(needs("In", "amd64")), id="of a primary architecture"),
        pytest.param(pool(needs("NotIn", "arm64")), id="of a primary architecture by exclusion"),
        pytest.param(pool(labels={ARCH: "amd64"}), id="of a primary architecture by its label"),
        pytest.param(arm(taints=[TAINT]), id="with the taint"),
        pytest.param(pool(needs("In", "arm64"), needs("In", "windows", key=OS)), id="for another system"),
        pytest.param(pool(needs("In", "arm64"), needs("NotIn", "linux", key=OS)), id="not for linux"),
        pytest.param(pool(needs("In", "arm64"), needs("In", "windows", key=f"beta.{OS}")), id="by the former key"),
        pytest.param(arm(labels={"polyarch.dev/taints": "disabled"}), id="whose nodes opt out"),
    ],
)
def test_a_nodepool_that_is_as_it_should_be_is_not_listed(document) -> None:
    assert lacking(POOLS, document, USUAL) is None


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("document", "place"),
    [
        pytest.param(pool(needs("Near", "arm64")), 'requirements[0] has operator "Near"', id="unknown operator"),
        pytest.param(pool(needs("In", "arm64"), needs("Near", key="a")), "requirements[1]", id="for another label"),
        pytest.param(pool(needs("In")), "requirements[0]", id="in none"),
        pytest.param(pool(None), "requirements[0] is null, not an object", id="null"),
        pytest.param(pool({"operator": "Exists"}), "requirements[0].key is null", id="without a key"),
        pytest.param(pool({"key": ARCH, "operator": "In", "values": "arm64"}), "requirements[0].values", id="a text"),
        pytest.param(pool({**needs("In"), "values": [1]}), "requirements[0].values", id="numbers"),
        pytest.param(pool({**needs("In", "arm64"), "minValues": "2"}), "requirements[0].minValues", id="minValues"),
        pytest.param(pool(needs("Gte", "four", key="a")), "not one integer as Gte needs it", id="no number"),
        pytest.param(pool(needs("Lt", "1", "2", key="a")), "not one integer as Lt needs it", id="two numbers"),
        pytest.param(pool(needs("Gt", "-1", key="a")), "not one integer as Gt needs it", id="negative"),
        pytest.param(pool(labels={ARCH: None}), "labels is", id="label without a value"),
        pytest.param(arm(taints=[None]), "taints[0] is null, not an object", id="null for a taint"),
        pytest.param(arm(taints=[GPU, {"value": "arm64"}]), "taints[1] is", id="taint without a key"),
        pytest.param(arm(taints=TEXT), "taints is", id="a text for the taints"),
        pytest.param(arm(startupTaints={"a": 1}), "startupTaints is", id="an object for the startup taints"),
        pytest.param({**pool(), "spec": {"template": {"spec": {"requirements": {}}}}}, "requirements is", id="object"),
    ],
)
def test_a_nodepool_that_is_not_understood_is_not_judged_and_the_place_is_named(document, place) -> None:
    assert lacking(POOLS, document, USUAL) is None
    why = unsaid(POOLS, document)
    assert why.startswith("not understood: ")
    assert place in why


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("kind", "document", "place"),
    [
        pytest.param(SETS, machines(metadata={"labels": {ARCH: "arm64"}}, taints=[None]), "taints[0]", id="OpenShift"),
        pytest.param(DEPLOYMENTS, machines("kubernetes.io/arch=arm64", taints="a"), "taints is", id="Cluster API"),
        pytest.param(EKS, described(amiType="AL2_ARM_64", taints=[{"effect": "NO_SCHEDULE"}]), "taints[0]", id="EKS"),
        pytest.param(GKE, described(nodeConfig={"machineType": "t2a-1", "taint": [1]}), "taint[0]", id="GKE"),
        pytest.param(AKS, described(vmSize="Standard_D4pds_v5", nodeTaints=[None]), "nodeTaints[0]", id="AKS"),
        pytest.param(AKS, described(vmSize="Standard_D4pds_v5", nodeTaints=["arm"]), "nodeTaints[0]", id="AKS text"),
        pytest.param(AKS, described(vmSize="Standard_D4pds_v5", nodeLabels=["a"]), "nodeLabels is", id="AKS labels"),
    ],
)
def test_a_pool_that_is_not_understood_is_not_judged_and_the_place_is_named(kind, document, place) -> None:
    assert lacking(kind, document, USUAL) is None
    assert place in unsaid(kind, document)


@pytest.mark.req("TN-028")
def test_requirements_that_may_decide_the_architecture_are_named() -> None:
    found = lacked(POOLS, pool(needs("In", "m7g", key="karpenter.k8s.aws/instance-family")))
    assert "karpenter.k8s.aws/instance-family" in found.detail
    assert "(what karpenter.k8s.aws/instance-family leaves of the architectures was not looked at)" in found.detail


# -- what the patch makes of the taints --------------------------------------------------------------------------------


def taints_of(document: Json, name: str = "taints") -> list[Json]:
    return document["spec"]["template"]["spec"].get(name, [])


EVICTING = {**TAINT, "effect": "NoExecute"}


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [TAINT], id="without taints"),
        pytest.param({"taints": [GPU]}, [GPU, TAINT], id="beside another"),
        pytest.param({"taints": [{**TAINT, "value": "aarch64"}, GPU]}, [TAINT, GPU], id="by another name"),
        pytest.param({"taints": [GPU, {**TAINT, "value": "amd64"}]}, [GPU, TAINT], id="of another architecture"),
        pytest.param({"taints": [TAINT, GPU, {**TAINT, "value": "amd64"}]}, [TAINT, GPU], id="twice"),
        pytest.param(
            {"taints": [{**TAINT, "effect": "NoExecute"}]}, [{**TAINT, "effect": "NoExecute"}, TAINT], id="effect"
        ),
        pytest.param({"startupTaints": [TAINT]}, [TAINT], id="among those that go away"),
        pytest.param({"taints": [TAINT], "startupTaints": [TAINT]}, [TAINT], id="in both lists"),
        pytest.param({"startupTaints": [{**TAINT, "value": "aarch64"}, GPU]}, [TAINT], id="by another name at startup"),
    ],
)
def test_a_patched_nodepool_has_the_taint_once_and_keeps_what_is_somebody_elses(spec, expected) -> None:
    document = arm(**spec)
    found = lacked(POOLS, document)
    patched = apply_patch(document, found.patch)
    assert taints_of(patched) == expected
    assert [each for each in taints_of(patched, "startupTaints") if each["key"] != "gpu"] == []
    assert lacking(POOLS, patched, USUAL) is None, "done once, it is done"
    assert "Karpenter replace every node" in found.detail


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("settings", "taint"),
    [
        pytest.param(RECORDED, {"key": "arch", "value": "amd64", "effect": "NoSchedule"}, id="of a key of one's own"),
        pytest.param(USUAL, {**TAINT, "value": "true"}, id="no architecture"),
        pytest.param(USUAL, {"key": "supported-arch", "effect": "NoSchedule"}, id="without a value"),
    ],
)
def test_a_taint_in_the_way_that_is_not_polyarchs_is_named_and_not_patched(settings, taint) -> None:
    found = lacked(POOLS, arm(taints=[taint]), settings)
    assert not found.patch
    assert not found.command
    assert "which is not polyarch's and excludes" in found.detail


@pytest.mark.req("TN-028")
def test_a_key_of_ones_own_by_another_name_of_the_architecture_is_replaced() -> None:
    found = lacked(POOLS, arm(taints=[{"key": "arch", "value": "aarch64", "effect": "NoSchedule"}]), RECORDED)
    assert [each.op for each in found.patch] == ["test", "replace"]


@pytest.mark.req("TN-028")
def test_the_patch_is_printed_as_a_command() -> None:
    found = lacked(SETS, machines(metadata={"labels": {ARCH: "arm64"}}))
    assert found.command == (
        "kubectl patch machinesets.machine.openshift.io machines -n ns --type=json -p "
        '\'[{"op":"add","path":"/spec/template/spec/taints","value":'
        '[{"key":"supported-arch","value":"arm64","effect":"NoSchedule"}]}]\''
    )


# -- machines ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("document", "taints"),
    [
        pytest.param(machines("a=b, kubernetes.io/arch=arm64"), TEXT, id="told its labels"),
        pytest.param(machines("kubernetes.io/arch=aarch64"), TEXT, id="by another name"),
        pytest.param(
            machines("kubernetes.io/arch=arm64", "gpu=yes:NoExecute"), f"gpu=yes:NoExecute,{TEXT}", id="beside"
        ),
        pytest.param(machines("kubernetes.io/arch=arm64", "supported-arch=aarch64:NoSchedule"), TEXT, id="replaced"),
        pytest.param(
            machines("kubernetes.io/arch=arm64", "later,supported-arch=aarch64:NoSchedule,:x"),
            f"later,:x,{TEXT}",
            id="beside what is no taint",
        ),
        pytest.param(
            machines("kubernetes.io/arch=arm64", metadata={"labels": {ARCH: "amd64"}}), TEXT, id="over its template"
        ),
    ],
)
def test_machines_of_cluster_api_get_an_annotation(document, taints) -> None:
    found = lacked(DEPLOYMENTS, document)
    patched = apply_patch(document, found.patch)
    assert patched["metadata"]["annotations"][f"{AUTOSCALER}/taints"] == taints
    assert lacking(DEPLOYMENTS, patched, USUAL) is None
    assert "bootstrap configuration" in found.detail


@pytest.mark.req("TN-028")
def test_what_is_no_taint_in_an_annotation_is_named() -> None:
    found = lacked(DEPLOYMENTS, machines("kubernetes.io/arch=arm64,spot", "later"))
    assert "not understood, and kept: 'spot', 'later'" in found.detail
    assert "'kubernetes.io/arch:arm64'" in unsaid(DEPLOYMENTS, machines("kubernetes.io/arch:arm64"))


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("taints", "told", "detail"),
    [
        pytest.param([TAINT], "", None, id="which every machine of it gets"),
        pytest.param([{**TAINT, "value": "amd64"}], TEXT, "excludes", id="with another value"),
        pytest.param([{**TAINT, "value": "amd64"}], "", "excludes", id="alone, with another value"),
        pytest.param([TAINT], TEXT, None, id="in both"),
    ],
)
def test_taints_that_cluster_api_itself_puts_on_nodes_count(taints, told, detail) -> None:
    found = lacking(DEPLOYMENTS, machines("kubernetes.io/arch=arm64", told, taints=taints), USUAL)
    assert (found is None) == (detail is None)
    assert found is None or (detail in found.detail and not found.patch)


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("kind", "document"),
    [
        pytest.param(SETS, machines("kubernetes.io/arch=arm64"), id="told its labels"),
        pytest.param(SETS, machines(metadata={"labels": {ARCH: "aarch64"}}), id="labelled"),
    ],
)
def test_machines_of_openshift_get_a_taint(kind, document) -> None:
    patched = apply_patch(document, lacked(kind, document).patch)
    assert taints_of(patched) == [TAINT]
    assert lacking(kind, patched, USUAL) is None


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("document", "silent"),
    [
        pytest.param(machines(), True, id="says nothing"),
        pytest.param(machines("kubernetes.io/arch=amd64"), False, id="of a primary architecture"),
        pytest.param(machines("kubernetes.io/arch=amd64,kubernetes.io/os=windows"), False, id="of another system"),
        pytest.param(machines("kubernetes.io/arch=arm64,kubernetes.io/os=windows"), False, id="not managed"),
    ],
)
def test_machines_that_say_nothing_are_told_apart_from_those_that_are_well(document, silent) -> None:
    assert lacking(DEPLOYMENTS, document, USUAL) is None
    assert bool(unsaid(DEPLOYMENTS, document)) is silent


@pytest.mark.req("TN-028")
def test_a_machine_set_of_a_machine_deployment_counts_once() -> None:
    document = machines("kubernetes.io/arch=arm64")
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "name": "d", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    kind = resource("cluster.x-k8s.io", "MachineSet")
    assert lacking(kind, document, USUAL) is None
    assert not unsaid(kind, machines() | {"metadata": document["metadata"]})


# -- clouds ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("kind", "document", "path", "expected"),
    [
        pytest.param(
            EKS,
            described(amiType="AL2023_ARM_64_STANDARD", taints=[{"key": "gpu", "effect": "NO_SCHEDULE"}]),
            ("taints",),
            [{"key": "gpu", "effect": "NO_SCHEDULE"}, {**TAINT, "effect": "NO_SCHEDULE"}],
            id="EKS",
        ),
        pytest.param(
            GKE,
            described(nodeConfig={"machineType": "t2a-standard-4"}),
            ("nodeConfig", "taint"),
            [{**TAINT, "effect": "NO_SCHEDULE"}],
            id="GKE",
        ),
        pytest.param(
            AKS,
            described(vmSize="STANDARD_D4pds_v5", nodeTaints=["supported-arch=aarch64:NoSchedule"]),
            ("nodeTaints",),
            [TEXT],
            id="AKS",
        ),
    ],
)
def test_a_pool_that_an_object_describes_gets_the_taint_as_its_cloud_writes_it(kind, document, path, expected) -> None:
    patched = apply_patch(document, lacked(kind, document).patch)
    found = patched["spec"]
    for part in path:
        found = found[part]
    assert found == expected
    assert lacking(kind, patched, USUAL) is None


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("kind", "document", "silent"),
    [
        (EKS, described(amiType="AL2_x86_64"), False),
        (EKS, described(amiType="CUSTOM"), True),
        (EKS, described(amiType="WINDOWS_CORE_2022_x86_64"), False),
        (GKE, described(nodeConfig={"machineType": "n2-standard-4"}), False),
        (GKE, described(), True),
        (AKS, described(vmSize="Standard_D4ds_v5"), False),
        (AKS, described(vmSize="Standard_NP10s"), False),
        (AKS, described(vmSize="Standard_D4pds_v5", osType="Windows"), False),
        (AKS, described(), True),
    ],
)
def test_a_pool_of_another_architecture_or_system_is_not_listed(kind, document, silent) -> None:
    assert lacking(kind, document, USUAL) is None
    assert bool(unsaid(kind, document)) is silent


def node(name: str, architecture: str, *taints: str, record: str | None = None, **labels: str) -> Node:
    known = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return msgspec.convert(node_document(name, architecture, *taints, record=record, labels=known), Node)


@pytest.mark.req("TN-028")
@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        pytest.param([node("a", "arm64", eks_amazonaws_com__nodegroup="g")], ["EKS node group"], id="EKS"),
        pytest.param([node("a", "arm64", cloud_google_com__gke_nodepool="g")], [], id="another label"),
        pytest.param([node("a", "arm64", kubernetes_azure_com__agentpool="g")], ["AKS node pool"], id="AKS"),
        pytest.param([node("a", "amd64", kubernetes_azure_com__agentpool="g")], [], id="of a primary architecture"),
        pytest.param([node("a", "arm64", TEXT, eks_amazonaws_com__nodegroup="g")], [], id="the pool has the taint"),
        pytest.param(
            [node("a", "arm64", TEXT, record=TEXT, eks_amazonaws_com__nodegroup="g")],
            ["EKS node group"],
            id="polyarch put the taint there",
        ),
        pytest.param(
            [node("a", "arm64", eks_amazonaws_com__nodegroup="g", karpenter_sh__nodepool="p")], [], id="Karpenter's"
        ),
        pytest.param(
            [
                node("a", "arm64", eks_amazonaws_com__nodegroup="g"),
                node("b", "amd64", eks_amazonaws_com__nodegroup="g"),
            ],
            [],
            id="of two architectures",
        ),
    ],
)
def test_a_pool_that_only_its_cloud_knows_is_told_by_its_nodes(nodes, kinds) -> None:
    assert [each.kind for each in cloud_pools(nodes, USUAL)] == kinds


@pytest.mark.req("TN-028")
def test_a_command_that_replaces_the_whole_list_names_the_other_taints() -> None:
    passing = "node.kubernetes.io/not-ready:NoSchedule"
    [found] = cloud_pools(
        [node("a", "arm64", "gpu=yes:NoSchedule", passing, kubernetes_azure_com__agentpool="g")], USUAL
    )
    assert found.command.endswith(f"--name g --node-taints gpu=yes:NoSchedule,{TEXT}")
    [found] = cloud_pools([node("a", "arm64", "gpu=yes:NoSchedule", eks_amazonaws_com__nodegroup="g")], USUAL)
    assert found.command.endswith("--taints 'addOrUpdateTaints=[{key=supported-arch,value=arm64,effect=NO_SCHEDULE}]'")


# -- whatever stands in a template -------------------------------------------------------------------------------------

JUNK = (None, 5, "x", "", [], {}, [None], ["x"], {"a": None}, {"a": 5}, True, [{}], [[]])


def whole() -> Json:
    """With every member that some kind reads."""
    template = {
        "metadata": {"labels": {ARCH: "arm64"}},
        "spec": {
            "metadata": {"labels": {ARCH: "arm64"}},
            "requirements": [{**needs("In", "arm64"), "minValues": 1}],
            "taints": [{**TAINT, "value": "amd64"}],
            "startupTaints": [GPU],
        },
    }
    cloud = {"amiType": "AL2_ARM_64", "vmSize": "Standard_D4pds_v5", "labels": {"a": "b"}, "nodeLabels": {"a": "b"}}
    lists = {"taints": [{"key": "k", "effect": "NO_SCHEDULE"}], "nodeTaints": ["a=b:NoSchedule"]}
    config = {"machineType": "t2a-1", "imageType": "COS", "taint": [{"key": "k", "effect": "NO_SCHEDULE"}]}
    told = machines("kubernetes.io/arch=arm64,x", "a=b:NoSchedule,zz")["metadata"]
    metadata = {**told, "ownerReferences": [{"kind": "X"}]}
    return {"metadata": metadata, "spec": {**cloud, **lists, "nodeConfig": config, "template": template}}


def places(found: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    members = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, child in members:
        yield (*above, key)
        yield from places(child, *above, key)


@pytest.mark.req("TN-028")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_whatever_stands_in_a_template_it_is_judged_or_named_and_a_patch_fits(kind) -> None:
    chance, given = random.Random(28), resource(kind.group, kind.kind)
    judged = 0
    for _ in range(400):
        document = whole()
        *above, last = chance.choice([each for each in places(document) if each != ("metadata",)])
        holder: Any = document
        for key in above:
            holder = holder[key]
        holder[last] = chance.choice(JUNK)
        found, why = lacking(given, document, USUAL), unsaid(given, document)
        assert not (found and why), document
        if found and found.patch:
            judged += 1
            assert lacking(given, apply_patch(document, found.patch), USUAL) is None, document
    assert judged
