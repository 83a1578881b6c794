"""Which pods are left alone, by which rule."""

from typing import Any

import pytest
from placement_cases import APP, admitted, answers, arch, index, look, pod, preference, settings, source, term, zone

from polyarch.placement import names
from polyarch.placement.decision import Reason
from polyarch.placement.rules import decide
from polyarch.placement.settings import Settings

SKIP = {names.SKIP_ANNOTATION: "true"}
SCORING = (source(arm64=50),)


@pytest.mark.req("PL-201 rows 1 to 3")
@pytest.mark.parametrize(
    ("namespace", "using", "reason"),
    [
        ("polyarch-system", settings(), Reason.OPERATOR_NAMESPACE),
        ("kube-system", settings(), Reason.KUBE_NAMESPACE),
        ("kube-", settings(), Reason.KUBE_NAMESPACE),
        ("kubernetes", settings(), None),
        ("my-kube-system", settings(), None),
        ("vendor-a", settings(excluded_namespaces=("vendor-*",)), Reason.EXCLUDED_NAMESPACE),
        ("vendor", settings(excluded_namespaces=("vendor-*",)), None),
        ("build-cache", settings(excluded_namespaces=("build-cache",)), Reason.EXCLUDED_NAMESPACE),
        ("build-cache-2", settings(excluded_namespaces=("build-cache",)), None),
        ("shop", settings(operator_namespace=""), None),
        ("", settings(operator_namespace=""), None),
    ],
)
def test_namespaces(namespace: str, using: Settings, reason: Reason | None) -> None:
    assert look(pod(), namespace=namespace, using=using).rule is reason


@pytest.mark.req("PL-201 row 4")
@pytest.mark.parametrize(
    ("value", "opt_out", "reason"),
    [
        ("true", "allowed", Reason.OPTED_OUT),
        ("true", "forbidden", None),
        ("yes", "allowed", None),
        ("True", "allowed", None),
        ("", "allowed", None),
    ],
)
def test_opting_out(value: str, opt_out: Any, reason: Reason | None) -> None:
    document = pod(annotations={names.SKIP_ANNOTATION: value})
    assert look(document, using=settings(pod_opt_out=opt_out)).rule is reason


@pytest.mark.req("PL-201 row 5")
def test_a_pod_that_names_its_node() -> None:
    assert look(pod(nodeName="n1")).rule is Reason.ALREADY_BOUND


@pytest.mark.req("PL-201 row 6")
@pytest.mark.parametrize("key", ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"])
@pytest.mark.parametrize("value", ["", "true"])
def test_a_pod_for_the_control_plane(key: str, value: str) -> None:
    assert look(pod(nodeSelector={key: value})).rule is Reason.CONTROL_PLANE_POD


@pytest.mark.req("PL-201 row 7")
@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ({"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}, Reason.DAEMON_SET_POD),
        ({"apiVersion": "other/v9", "kind": "DaemonSet", "controller": True}, Reason.DAEMON_SET_POD),
        ({"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": False}, None),
        ({"apiVersion": "apps/v1", "kind": "DaemonSet"}, None),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}, None),
    ],
    ids=["controller", "api version is not compared", "not controller", "controller absent", "another kind"],
)
def test_pods_of_daemon_sets(owner: dict[str, Any], reason: Reason | None) -> None:
    document = pod()
    document["metadata"]["ownerReferences"] = [{"kind": "Job", "controller": False}, owner]
    assert look(document).rule is reason


@pytest.mark.req("PL-202 row 8")
@pytest.mark.parametrize(
    ("document", "settled"),
    [
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}), True),
        (pod(nodeSelector={"kubernetes.io/arch": ""}), True),
        (pod(nodeSelector={"beta.kubernetes.io/arch": "arm64"}), False),
        (pod(terms=[term(arch("arm64"))]), True),
        (pod(terms=[term(zone("a"), {"key": "kubernetes.io/arch", "operator": "DoesNotExist"})]), True),
        (pod(terms=[term(zone("a"), {"key": "kubernetes.io/arch", "operator": "Exists"})]), False),
        (pod(terms=[term({"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["s390x"]})]), False),
        (pod(terms=[term({"key": "kubernetes.io/arch", "operator": "Exists"}, arch("arm64"))]), True),
        (pod(terms=[term({"key": "kubernetes.io/arch", "operator": "Exists"}), term(arch("arm64"))]), False),
        (pod(terms=[term(arch("arm64")), term(zone("a"))]), False),
        (pod(terms=[term(arch("arm64")), {}]), True),
        (pod(terms=[{}]), True),
        (pod(terms=[{"matchExpressions": [], "matchFields": []}, {}]), True),
        (pod(terms=[term(fields=[{"key": "metadata.name", "operator": "In", "values": ["n1"]}])]), False),
        (pod(terms=[term(zone("a"))]), False),
        (pod(affinity={"nodeAffinity": None}), False),
        (pod(tolerations=[{"key": "kubernetes.io/arch", "operator": "Exists"}]), False),
        (pod(affinity={"podAffinity": {"x": [{"topologyKey": "kubernetes.io/arch"}]}}), False),
    ],
    ids=[
        "nodeSelector",
        "nodeSelector with an empty value",
        "beta key",
        "only term",
        "no architecture at all",
        "any architecture",
        "some excluded",
        "any, and then one",
        "any in one term, one in another",
        "one term open",
        "other term empty",
        "only an empty term",
        "empty terms written out",
        "fields only",
        "other key",
        "affinity null",
        "toleration",
        "pod affinity",
    ],
)
def test_architecture_already_required(document: dict[str, Any], settled: bool) -> None:
    assert (look(document).rule is Reason.ARCHITECTURE_ALREADY_REQUIRED) is settled
    assert look(document, sources=SCORING).needs_constraint is not settled


@pytest.mark.req("PL-203")
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}, preferred=[preference(1, arch("arm64"))]), True),
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}), False),
        (pod(nodeSelector={"kubernetes.io/arch": "arm64"}, preferred=[preference(1, zone("a"))]), False),
    ],
    ids=["prefers an architecture", "no preference", "other preference"],
)
def test_with_scoring_a_settled_architecture_still_gets_preferences(document: dict[str, Any], reason: bool) -> None:
    assert (look(document, sources=SCORING).rule is Reason.ARCHITECTURE_ALREADY_REQUIRED) is reason


@pytest.mark.req("PL-204")
def test_a_pod_that_needs_no_constraint_is_not_inspected() -> None:
    case = look(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=SCORING)
    assert case.images == ()
    decision = decide(case, {})
    assert decision.reason is Reason.PREFERENCES_ONLY
    assert decision.preferred == (("arm64", 50),)


@pytest.mark.req("PL-203", "PL-900 row 19")
def test_without_a_cppc_scoring_is_off_and_nothing_fails() -> None:
    case = look(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=())
    assert case.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED


@pytest.mark.req("PL-201")
def test_the_first_row_wins() -> None:
    document = pod(annotations=SKIP, nodeName="n1", owner="DaemonSet", nodeSelector={"kubernetes.io/arch": "arm64"})
    using = settings(excluded_namespaces=("kube-x", "shop"))
    assert look(document, using=using, namespace="kube-x").rule is Reason.KUBE_NAMESPACE
    assert look(document, using=using).rule is Reason.EXCLUDED_NAMESPACE
    assert look(document).rule is Reason.OPTED_OUT
    assert look(document, using=settings(pod_opt_out="forbidden")).rule is Reason.ALREADY_BOUND


@pytest.mark.req("PL-853", "PL-900 row 20")
def test_a_label_of_the_user_changes_nothing() -> None:
    forged = pod(labels={names.IMAGE_INSPECT_ERROR_COUNT_LABEL: "5", names.SCHEDULING_GATE_LABEL: "removed"})
    known = answers(index(APP, "amd64"))
    plain = admitted(pod(labels={}), known)
    assert admitted(forged, known).pod == plain.pod
    assert admitted(forged).pod == admitted(pod(labels={})).pod
