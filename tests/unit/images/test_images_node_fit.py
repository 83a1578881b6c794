"""Whether a pod can run on a node, and what planned taints do to that."""

from typing import Any

import msgspec
import pytest

from polyarch.images.node_fit import (
    ClusterView,
    MismatchKind,
    NodeView,
    PodRequirements,
    mismatch,
    with_runtime_class,
)
from polyarch.images.pod_images import ImageEffect, ImageFacts, common_platforms
from polyarch.objects import Node, Pod, RuntimeClass
from polyarch.platforms import NodePlatform, PlatformSet
from polyarch.tolerations import Taint, Toleration

ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
FOREIGN = Taint("dedicated", "gpu", "NoSchedule")
AMD64, ARM64 = NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")
WINDOWS = NodePlatform("windows", "amd64")


def ours(architecture: str, effect: str = "NoSchedule") -> Taint:
    return Taint("supported-arch", architecture, effect)


def toleration(architecture: str) -> Toleration:
    return Toleration("supported-arch", "Equal", architecture, "NoSchedule")


def site(
    name: str,
    architecture: str,
    *,
    os: str = "linux",
    foreign: tuple[Taint, ...] = (),
    planned: bool = False,
    **labels: str,
) -> NodeView:
    after = (*foreign, ours(architecture)) if planned else foreign
    return NodeView(name, NodePlatform(os, architecture), {ARCH: architecture, OS: os, **labels}, foreign, after)


CLUSTER = ClusterView(
    [
        site("a-1", "amd64"),
        site("a-2", "amd64", zone="east"),
        site("b-1", "arm64", planned=True),
        site("b-2", "arm64", planned=True, foreign=(FOREIGN,)),
    ]
)


def named(nodes: dict[NodePlatform, int]) -> dict[str, int]:
    return {platform.short_name: number for platform, number in nodes.items()}


def pod(**spec: object) -> Pod:
    return msgspec.convert({"spec": spec}, Pod)


def required(*terms: dict[str, object]) -> dict[str, object]:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}},
    }


def wants(*values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": ARCH, "operator": "In", "values": list(values)}]}


@pytest.mark.req("TN-062")
@pytest.mark.parametrize(
    ("spec", "added", "before", "after", "lost"),
    [
        pytest.param({}, [], {"amd64": 2, "arm64": 1}, {"amd64": 2}, (), id="one node anywhere is enough"),
        pytest.param({"nodeSelector": {ARCH: "arm64"}}, [], {"arm64": 1}, {}, ("arm64",), id="bound to arm64"),
        pytest.param(
            {"nodeSelector": {ARCH: "arm64"}}, ["arm64"], {"arm64": 1}, {"arm64": 1}, (), id="tolerates arm64"
        ),
        pytest.param({"nodeSelector": {ARCH: "s390x"}}, [], {}, {}, (), id="ran nowhere before either"),
        pytest.param(
            {"affinity": required(wants("arm64"), wants("s390x"))}, [], {"arm64": 1}, {}, ("arm64",), id="terms"
        ),
        pytest.param({"affinity": required()}, [], {}, {}, (), id="affinity without a term matches no node"),
        pytest.param(
            {"affinity": required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b-1"]}]})},
            [],
            {"arm64": 1},
            {},
            ("arm64",),
            id="bound to a node by name",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]},
            [],
            {"amd64": 2, "arm64": 2},
            {"amd64": 2, "arm64": 2},
            (),
            id="foreign taints count, and everything may be tolerated",
        ),
        pytest.param(
            {"affinity": required({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a b"]}]})},
            [],
            {},
            {},
            (),
            id="a term with a value that no label can have matches no node",
        ),
        pytest.param({"nodeSelector": {"zone": "east"}}, [], {"amd64": 1}, {"amd64": 1}, (), id="other labels"),
        pytest.param(
            {"affinity": required({"matchExpressions": [{"key": ARCH, "operator": "Like"}]})},
            [],
            {},
            {},
            (),
            id="a term that nobody understands matches no node",
        ),
    ],
)
def test_a_template_is_blocked_if_the_taints_leave_it_no_node(spec, added, before, after, lost) -> None:
    fit = CLUSTER.fit(PodRequirements.of(pod(**spec), map(toleration, added)))
    assert (named(fit.before), named(fit.after), tuple(each.architecture for each in fit.lost)) == (before, after, lost)
    assert fit.is_blocked == bool(lost)


@pytest.mark.req("TN-062")
def test_a_daemonset_is_blocked_for_each_architecture_on_which_it_has_pods() -> None:
    agent = PodRequirements.of(pod(), by_controller=True)
    assert CLUSTER.fit(agent, hosts=frozenset({AMD64, ARM64})).lost == (ARM64,)
    assert CLUSTER.fit(agent, hosts=frozenset({AMD64})).lost == ()
    assert CLUSTER.fit(PodRequirements.of(pod(), [toleration("arm64")]), hosts=frozenset({ARM64})).lost == ()


@pytest.mark.req("TN-062")
def test_a_cordoned_node_takes_pods_of_daemonsets_only() -> None:
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    cordoned = ClusterView([site("a-1", "amd64", foreign=(cordon,))])
    assert cordoned.fit(PodRequirements.of(pod())).before == {}
    assert cordoned.fit(PodRequirements.of(pod(), by_controller=True)).before == {AMD64: 1}


@pytest.mark.req("TN-062")
def test_a_taint_that_only_makes_a_node_less_wanted_blocks_nothing() -> None:
    soft = NodeView("b-1", ARM64, {ARCH: "arm64"}, (), (ours("arm64", "PreferNoSchedule"),))
    assert ClusterView([soft]).fit(PodRequirements.of(pod())).after == {ARM64: 1}


@pytest.mark.req("TN-062")
def test_a_toleration_that_expires_keeps_nothing_on_a_node() -> None:
    hard = NodeView("b-1", ARM64, {ARCH: "arm64"}, (), (ours("arm64", "NoExecute"),))
    for_a_minute = {"key": "supported-arch", "operator": "Exists", "tolerationSeconds": 60}
    assert ClusterView([hard]).fit(PodRequirements.of(pod(tolerations=[for_a_minute]))).is_blocked


@pytest.mark.req("TN-062")
def test_a_thousand_nodes_that_are_alike_are_looked_at_once() -> None:
    many = [site(f"n-{number}", "arm64", planned=True, hostname=f"n-{number}") for number in range(1000)]
    cluster = ClusterView(many)
    assert cluster.fit(PodRequirements.of(pod(nodeSelector={ARCH: "arm64"}))).before == {ARM64: 1000}
    assert len(cluster._alike(PodRequirements.of(pod(nodeSelector={ARCH: "arm64"})))) == 1


# -- what images run on, and the operating system ----------------------------------------------------------------------

MIXED = ClusterView([site("a-1", "amd64"), site("b-1", "arm64", planned=True), site("w-1", "amd64", os="windows")])


def runs_on(*platforms: NodePlatform) -> PlatformSet:
    return PlatformSet.of(platforms)


@pytest.mark.req("TN-065")
@pytest.mark.parametrize(
    ("spec", "platforms", "before", "after", "unfit"),
    [
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]},
            runs_on(AMD64),
            {"amd64": 1},
            {"amd64": 1},
            {"arm64": 1, "windows/amd64": 1},
            id="a pod that tolerates everything runs where its images run",
        ),
        pytest.param({}, runs_on(ARM64), {"arm64": 1}, {}, {"amd64": 1, "windows/amd64": 1}, id="no node is left"),
        pytest.param(
            {"nodeSelector": {OS: "linux"}}, runs_on(WINDOWS), {}, {}, {"amd64": 1}, id="selects a system it is not for"
        ),
        pytest.param(
            {"os": {"name": "windows"}},
            runs_on(AMD64, WINDOWS),
            {"windows/amd64": 1},
            {"windows/amd64": 1},
            {"amd64": 1},
            id="the pod's system decides between the platforms of an image",
        ),
        pytest.param(
            {},
            runs_on(AMD64, WINDOWS),
            {"amd64": 1, "windows/amd64": 1},
            {"amd64": 1, "windows/amd64": 1},
            {},
            id="an image of two systems runs on both",
        ),
        pytest.param(
            {},
            PlatformSet.EVERYTHING,
            {"amd64": 1, "arm64": 1},
            {"amd64": 1},
            {"windows/amd64": 1},
            id="images that say nothing are for linux",
        ),
        pytest.param(
            {"nodeSelector": {OS: "windows"}},
            PlatformSet.EVERYTHING,
            {"windows/amd64": 1},
            {"windows/amd64": 1},
            {},
            id="unless the constraints name another system",
        ),
        pytest.param({}, runs_on(), {}, {}, {"amd64": 1, "windows/amd64": 1}, id="images without a common platform"),
    ],
)
def test_a_node_that_cannot_run_the_images_counts_as_none(spec, platforms, before, after, unfit) -> None:
    fit = MIXED.fit(PodRequirements.of(pod(**spec), platforms=platforms))
    assert (named(fit.before), named(fit.after), named(fit.unfit)) == (before, after, unfit)


@pytest.mark.req("TN-065")
def test_a_daemonset_that_only_crashes_on_an_architecture_loses_nothing_there() -> None:
    agent = PodRequirements.of(pod(), by_controller=True, platforms=runs_on(AMD64))
    assert not MIXED.fit(agent, hosts=frozenset({AMD64, ARM64})).is_blocked


@pytest.mark.req("TN-065")
def test_a_node_whose_architecture_nobody_knows_runs_no_image_that_names_some() -> None:
    [nameless] = [NodeView.of(msgspec.convert({"metadata": {"name": "x"}}, Node))]
    assert mismatch(PodRequirements.of(pod(), platforms=runs_on(AMD64)), nameless) is not None
    assert mismatch(PodRequirements.of(pod()), nameless) is None


@pytest.mark.req("TN-065")
def test_what_a_kubelet_reports_decides_what_runs_and_labels_decide_what_is_scheduled() -> None:
    node = msgspec.convert(
        {
            "metadata": {"name": "x", "labels": {ARCH: "amd64"}},
            "status": {"nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"}},
        },
        Node,
    )
    view = NodeView.of(node)
    wrong = mismatch(PodRequirements.of(pod(nodeSelector={ARCH: "amd64"}), platforms=runs_on(AMD64)), view)
    assert wrong is not None
    assert wrong.kind is MismatchKind.IMAGES
    assert mismatch(PodRequirements.of(pod(nodeSelector={ARCH: "amd64"}), platforms=runs_on(ARM64)), view) is None


@pytest.mark.req("TN-065")
def test_nodes_that_run_foreign_programs_run_images_of_these() -> None:
    image = ImageFacts(text="app", effect=ImageEffect.CONSTRAINS, note="", platforms=(NodePlatform("linux", "amd64"),))
    unknown = ImageFacts(text="other", effect=ImageEffect.UNRESOLVED, note="pending")
    assert ARM64 not in common_platforms([image])
    assert ARM64 in common_platforms([image, unknown], (("arm64", frozenset({"amd64"})),))
    assert common_platforms([unknown]).is_everything


# -- RuntimeClasses, names of nodes, cordons ---------------------------------------------------------------------------


def runtime_class(name: str = "arm", **scheduling: Any) -> dict[str, RuntimeClass]:
    document = {"metadata": {"name": name}, **({"scheduling": scheduling} if scheduling else {})}
    return {name: msgspec.convert(document, RuntimeClass)}


ON_ARM = runtime_class(
    nodeSelector={ARCH: "arm64"}, tolerations=[{"key": "supported-arch", "operator": "Equal", "value": "arm64"}]
)


@pytest.mark.req("TN-066")
def test_a_runtime_class_brings_its_selector_and_its_tolerations() -> None:
    admitted = with_runtime_class(pod(runtimeClassName="arm", nodeSelector={"zone": "east"}), ON_ARM)
    assert admitted.pod.spec.node_selector == {"zone": "east", ARCH: "arm64"}
    assert not admitted.refused
    fit = CLUSTER.fit(PodRequirements.of(with_runtime_class(pod(runtimeClassName="arm"), ON_ARM).pod))
    assert named(fit.after) == {"arm64": 1}


@pytest.mark.req("TN-066")
@pytest.mark.parametrize(
    ("spec", "classes", "refused"),
    [
        pytest.param({}, ON_ARM, "", id="a pod without a class"),
        pytest.param({"runtimeClassName": "arm"}, None, "", id="nobody knows the classes"),
        pytest.param({"runtimeClassName": "arm"}, runtime_class(), "", id="a class without scheduling"),
        pytest.param(
            {"runtimeClassName": "arm", "nodeSelector": {ARCH: "arm64"}}, ON_ARM, "", id="both ask for the same"
        ),
        pytest.param({"runtimeClassName": "arm"}, {}, "there is no RuntimeClass arm", id="a class that is not there"),
        pytest.param(
            {"runtimeClassName": "arm", "nodeSelector": {ARCH: "amd64"}},
            ON_ARM,
            f"its nodeSelector {ARCH}=amd64 contradicts RuntimeClass arm, which asks for {ARCH}=arm64",
            id="the pod contradicts its class",
        ),
    ],
)
def test_a_pod_that_its_runtime_class_excludes_is_refused(spec, classes, refused) -> None:
    admitted = with_runtime_class(pod(**spec), classes)
    assert admitted.refused.startswith(refused)
    assert bool(admitted.refused) == bool(refused)
    fit = CLUSTER.fit(PodRequirements.of(admitted.pod, refused=admitted.refused))
    assert bool(fit.before) == (not refused)


@pytest.mark.req("TN-066")
def test_a_pod_that_names_its_node_meets_no_scheduler() -> None:
    cluster = ClusterView([site("a-1", "amd64"), site("b-1", "arm64", planned=True)])
    fit = cluster.fit(PodRequirements.of(pod(nodeName="b-1")))
    assert (named(fit.before), named(fit.after)) == ({"arm64": 1}, {"arm64": 1})
    evicting = NodeView("b-1", ARM64, {ARCH: "arm64"}, (), (ours("arm64", "NoExecute"),))
    assert ClusterView([evicting]).fit(PodRequirements.of(pod(nodeName="b-1"))).is_blocked
    assert not cluster.fit(PodRequirements.of(pod(nodeName="gone"))).before


@pytest.mark.req("TN-066")
def test_a_cordon_keeps_pods_off_before_its_taint_is_there() -> None:
    node = msgspec.convert({"metadata": {"name": "a-1"}, "spec": {"unschedulable": True}}, Node)
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert mismatch(PodRequirements.of(pod()), NodeView.of(node)) is not None
    assert mismatch(PodRequirements.of(tolerant), NodeView.of(node)) is None
    assert mismatch(PodRequirements.of(pod()), NodeView.of(node).lasting) is None


@pytest.mark.req("TN-062")
def test_equal_pods_are_judged_once() -> None:
    cluster = ClusterView([site("a-1", "amd64"), site("b-1", "arm64", planned=True)])
    first = cluster.fit(PodRequirements.of(pod(nodeSelector={ARCH: "amd64"})))
    assert cluster.fit(PodRequirements.of(pod(nodeSelector={ARCH: "amd64"}))) is first
