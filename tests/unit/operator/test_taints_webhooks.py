"""Whom the API server calls for which pods and DaemonSets: one call per pod."""

from typing import Any

import pytest

from polyarch.kube.owners import Owner
from polyarch.kube.resources import CLUSTER_ROLES
from polyarch.objects import ObjectKey
from polyarch.operator.components import placement_objects as of_placement
from polyarch.operator.components.taints_objects import webhook_configuration, webhooks
from polyarch.operator.settings import OperatorSettings
from polyarch.taints.settings import TaintSettings

OPT_OUT = {"key": "polyarch.dev/taints", "operator": "NotIn", "values": ["disabled"]}


def taints(**spec: Any) -> TaintSettings:
    return TaintSettings.of(spec)


def placement(selector: dict[str, Any] | None = None, *excluded: str) -> dict[str, Any]:
    """The entry of placement's configuration, as its operator writes it."""
    document = of_placement.webhook_configuration(namespace_selector=selector, excluded_namespaces=excluded)
    return document["webhooks"][0]


def entries(settings: TaintSettings, **options: Any) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in webhook_configuration(settings, **options)["webhooks"]}


@pytest.mark.req("TN-004")
def test_without_placement_there_is_one_entry_for_new_pods():
    found = entries(taints())
    assert list(found) == [
        "pod-tolerations.polyarch.dev",
        "changed.pod-tolerations.polyarch.dev",
        "template-tolerations.polyarch.dev",
    ]
    created = found["pod-tolerations.polyarch.dev"]
    assert created["rules"][0] | {"scope": ""} == {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "",
    }
    assert created["clientConfig"]["service"] == {
        "name": "polyarch-taints",
        "namespace": "polyarch-system",
        "path": "/add-pod-tolerations",
        "port": 443,
    }
    assert "matchConditions" not in created
    for each in found.values():
        assert each["failurePolicy"] == "Ignore"
        assert each["sideEffects"] == "None"
        assert each["reinvocationPolicy"] == "IfNeeded"
        assert each["timeoutSeconds"] == 5


@pytest.mark.req("TN-004")
def test_the_entries_are_the_rest_of_what_placement_sees():
    """¬r₁, r₁ ∧ ¬r₂, r₁ ∧ r₂ ∧ ¬r₃, and the whole with the negated match condition."""
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    found = entries(taints(), placement=placement(selector, "kube-system", "vendor-*"))
    is_b, not_b = ({"key": "a", "operator": operator, "values": ["b"]} for operator in ("In", "NotIn"))
    has_c, lacks_c = ({"key": "c", "operator": operator} for operator in ("Exists", "DoesNotExist"))
    not_kube, kube = (
        {"key": "kubernetes.io/metadata.name", "operator": operator, "values": ["kube-system"]}
        for operator in ("NotIn", "In")
    )
    selectors = {
        name: each["namespaceSelector"]["matchExpressions"] for name, each in found.items() if "beside" in name
    }
    assert selectors == {
        "beside-0.pod-tolerations.polyarch.dev": [not_b, OPT_OUT],
        "beside-1.pod-tolerations.polyarch.dev": [is_b, lacks_c, OPT_OUT],
        "beside-2.pod-tolerations.polyarch.dev": [is_b, has_c, kube, OPT_OUT],
        "beside.pod-tolerations.polyarch.dev": [is_b, has_c, not_kube, OPT_OUT],
    }
    assert found["beside.pod-tolerations.polyarch.dev"]["matchConditions"] == [
        {"name": "not-of-placement", "expression": '!((!(request.namespace.startsWith("vendor-"))))'}
    ]


@pytest.mark.req("TN-003", "TN-004")
def test_where_placement_sees_every_pod_new_pods_have_no_entry():
    """Its webhook does both."""
    found = entries(taints(), placement=placement())
    assert list(found) == ["changed.pod-tolerations.polyarch.dev", "template-tolerations.polyarch.dev"]


@pytest.mark.req("TN-004", "TN-041")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside placement"])
def test_namespaces_that_are_excluded_cost_no_call(beside):
    """By name and by label in the selector, prefixes by CEL, in every entry."""
    settings = taints(
        pods={"excludeNamespaces": ["build", "vendor-*"], "namespaceSelector": {"matchLabels": {"team": "yes"}}}
    )
    other = placement({"matchExpressions": [{"key": "c", "operator": "Exists"}]}, "x-*") if beside else None
    for each in webhook_configuration(settings, placement=other)["webhooks"]:
        expressions = each["namespaceSelector"]["matchExpressions"]
        assert {"key": "team", "operator": "In", "values": ["yes"]} in expressions
        assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["build"]} in expressions
        assert OPT_OUT in expressions
        assert each["matchConditions"][0]["expression"] == '!(request.namespace.startsWith("vendor-"))'
        named = [condition["name"] for condition in each["matchConditions"]]
        assert len(named) == len(set(named)), "the API server refuses two of one name"


@pytest.mark.req("TN-041")
def test_a_selector_that_matches_nothing_makes_no_entry():
    """An invalid one in an object of an older schema; the API server would refuse it here, too."""
    selector = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert webhook_configuration(taints(pods={"namespaceSelector": selector}))["webhooks"] == []


@pytest.mark.req("TN-050")
def test_templates_that_are_ignored_cost_no_call():
    assert "template-tolerations.polyarch.dev" in entries(taints(daemonSets={"templates": "admission"}))
    assert "template-tolerations.polyarch.dev" not in entries(taints(daemonSets={"templates": "ignore"}))


@pytest.mark.req("TN-004")
def test_a_url_takes_the_place_of_the_service():
    """For a process outside the cluster."""
    found = entries(taints(), url="https://127.0.0.1:9443/", ca_bundle=b"PEM")
    assert [each["clientConfig"] for each in found.values()] == [
        {"url": f"https://127.0.0.1:9443/{path}", "caBundle": "UEVN"}
        for path in ("add-pod-tolerations", "add-pod-tolerations", "add-template-tolerations")
    ]


@pytest.mark.req("PL-541", "TN-004")
@pytest.mark.parametrize(
    ("certificates", "bundle", "annotation"),
    [
        ("self-managed", "UEVN", None),
        ("cert-manager", None, "cert-manager.io/inject-ca-from"),
        ("service-ca", None, "service.beta.openshift.io/inject-cabundle"),
    ],
)
def test_the_operator_writes_the_configuration(certificates, bundle, annotation):
    """Owned, and trusting whoever issues the certificate."""
    owner = Owner(CLUSTER_ROLES, ObjectKey("", "polyarch-operator"), "u")
    settings = OperatorSettings(namespace="ours", certificates=certificates)
    document = webhooks(settings, taints(), b"PEM", placement=None, owner=owner)
    assert document["metadata"]["name"] == "polyarch-taints"
    assert document["metadata"]["ownerReferences"][0]["name"] == "polyarch-operator"
    assert set(document["metadata"].get("annotations") or {}) == ({annotation} if annotation else set())
    for each in document["webhooks"]:
        assert each["clientConfig"]["service"]["namespace"] == "ours"
        assert each["clientConfig"].get("caBundle") == bundle
