"""What planned taints do to the pods of a template."""

import msgspec
import pytest

from polyarch.objects import Pod
from polyarch.taints.simulation import ClusterView, NodeView, PodRequirements
from polyarch.tolerations import Taint, Toleration

ARCH = "kubernetes.io/arch"
FOREIGN = Taint("dedicated", "gpu", "NoSchedule")


def ours(architecture: str, effect: str = "NoSchedule") -> Taint:
    return Taint("supported-arch", architecture, effect)


def toleration(architecture: str) -> Toleration:
    return Toleration("supported-arch", "Equal", architecture, "NoSchedule")


def site(
    name: str, architecture: str, *, foreign: tuple[Taint, ...] = (), planned: bool = False, **labels: str
) -> NodeView:
    after = (*foreign, ours(architecture)) if planned else foreign
    return NodeView(name, architecture, {ARCH: architecture, **labels}, foreign, after)


CLUSTER = ClusterView(
    [
        site("a-1", "amd64"),
        site("a-2", "amd64", zone="east"),
        site("b-1", "arm64", planned=True),
        site("b-2", "arm64", planned=True, foreign=(FOREIGN,)),
    ]
)


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
    fate = CLUSTER.fate(PodRequirements.of(pod(**spec), map(toleration, added)))
    assert (fate.before, fate.after, fate.lost) == (before, after, lost)
    assert fate.is_blocked == bool(lost)


@pytest.mark.req("TN-062")
def test_a_daemonset_is_blocked_for_each_architecture_on_which_it_has_pods() -> None:
    guest = PodRequirements.of(pod(), by_controller=True)
    assert CLUSTER.fate(guest, hosts=frozenset({"amd64", "arm64"})).lost == ("arm64",)
    assert CLUSTER.fate(guest, hosts=frozenset({"amd64"})).lost == ()
    assert CLUSTER.fate(PodRequirements.of(pod(), [toleration("arm64")]), hosts=frozenset({"arm64"})).lost == ()


@pytest.mark.req("TN-062")
def test_a_cordoned_node_takes_pods_of_daemonsets_only() -> None:
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    cordoned = ClusterView([site("a-1", "amd64", foreign=(cordon,))])
    assert cordoned.fate(PodRequirements.of(pod())).before == {}
    assert cordoned.fate(PodRequirements.of(pod(), by_controller=True)).before == {"amd64": 1}


@pytest.mark.req("TN-062")
def test_a_taint_that_only_makes_a_node_less_wanted_blocks_nothing() -> None:
    soft = NodeView("b-1", "arm64", {ARCH: "arm64"}, (), (ours("arm64", "PreferNoSchedule"),))
    assert ClusterView([soft]).fate(PodRequirements.of(pod())).after == {"arm64": 1}


@pytest.mark.req("TN-062")
def test_a_toleration_that_expires_keeps_nothing_on_a_node() -> None:
    hard = NodeView("b-1", "arm64", {ARCH: "arm64"}, (), (ours("arm64", "NoExecute"),))
    for_a_minute = {"key": "supported-arch", "operator": "Exists", "tolerationSeconds": 60}
    assert ClusterView([hard]).fate(PodRequirements.of(pod(tolerations=[for_a_minute]))).is_blocked


@pytest.mark.req("TN-062")
def test_a_thousand_nodes_that_are_alike_are_looked_at_once() -> None:
    many = [site(f"n-{number}", "arm64", planned=True, hostname=f"n-{number}") for number in range(1000)]
    landscape = ClusterView(many)
    assert landscape.fate(PodRequirements.of(pod(nodeSelector={ARCH: "arm64"}))).before == {"arm64": 1000}
    assert len(landscape._groups(PodRequirements.of(pod(nodeSelector={ARCH: "arm64"})))) == 1
