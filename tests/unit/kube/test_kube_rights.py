"""What code may do is data beside it; roles, unions and comparisons with what was asked come from that."""

import pytest

from polyarch.kube.rbac import Permission, PolicyRule, granting, grants, missing, path_rule, role, rule, union, unused
from polyarch.kube.resources import DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, SECRETS


@pytest.mark.req("KR-054")
def test_a_rule_reads_as_in_a_role():
    assert rule(PODS, "create", subresource="eviction").document() == {
        "apiGroups": [""],
        "resources": ["pods/eviction"],
        "verbs": ["create"],
    }
    assert rule((NODES, NAMESPACES), "get", "list", names=["a"]).document() == {
        "apiGroups": [""],
        "resources": ["nodes", "namespaces"],
        "resourceNames": ["a"],
        "verbs": ["get", "list"],
    }


@pytest.mark.req("KR-054")
def test_a_path_is_a_rule_of_its_own():
    """Somebody else than the API server serves it, so no request that the API server saw can tell that it is used."""
    rules = union(rule(NODES, "get"), path_rule("/numa/state", "get"), path_rule("/metrics", "get"))
    assert [each.document() for each in rules] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"nonResourceURLs": ["/numa/state", "/metrics"], "verbs": ["get"]},
    ]
    assert unused(rules, [Permission("get", "", "nodes")]) == []
    assert granting([role("reader", rules)]) == rules


@pytest.mark.req("KR-054")
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: path_rule("numa/state", "get"), "is no path"),
        (lambda: rule((PODS, DEPLOYMENTS), "get"), "one API group, not about , apps"),
        (lambda: rule(LEASES, "get", "create", names=["a"]), "cannot be narrowed"),
        (lambda: rule((), "get"), "not about none"),
    ],
    ids=["a path without a slash", "two groups", "create by name", "nothing"],
)
def test_rules_that_the_api_server_would_read_otherwise_are_refused(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()


@pytest.mark.req("KR-054")
def test_the_union_grants_the_same_in_fewer_words():
    rules = (
        rule(PODS, "get", "list"),
        rule(NODES, "list", "get"),
        rule(PODS, "list", "patch"),
        rule(SECRETS, "get", names=["a"]),
        rule(SECRETS, "get", names=["b"]),
        rule(LEASES, "get", names=["mine"]),
        rule(LEASES, "get"),
        rule(NAMESPACES, "list", "get"),
    )
    united = union(*rules)
    assert united == (
        PolicyRule("", ("pods",), ("get", "list", "patch")),
        PolicyRule("", ("nodes", "namespaces"), ("list", "get")),
        PolicyRule("", ("secrets",), ("get",), ("a", "b")),
        PolicyRule("coordination.k8s.io", ("leases",), ("get",)),
    )
    assert set(grants(united)) == set(grants(rules)) - {Permission("get", "coordination.k8s.io", "leases", "mine")}
    assert union(*united) == united


@pytest.mark.req("KR-054")
def test_what_was_asked_is_compared_with_what_is_allowed():
    rules = (rule(PODS, "get", "patch"), rule(SECRETS, "get", names=["a", "b"]), rule(LEASES, "create"))
    asked = [
        Permission("get", "", "pods", "web"),
        Permission("get", "", "secrets", "a"),
        Permission("get", "", "secrets", "c"),
        Permission("delete", "", "pods", "web"),
    ]
    assert [str(each) for each in missing(rules, asked)] == ["delete pods web", "get secrets c"]
    assert [str(each) for each in unused(rules, asked)] == [
        "create leases.coordination.k8s.io",
        "get secrets b",
        "patch pods",
    ]
