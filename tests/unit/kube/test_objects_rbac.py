"""Roles and bindings from rules, and what somebody who grants them has to hold."""

import pytest

from polyarch.kube.rbac import PolicyRule, granted, granting, managing, rule
from polyarch.kube.resources import DEPLOYMENTS, NODES, PODS


@pytest.mark.req("KR-054")
def test_a_role_in_a_namespace_and_its_binding():
    role, binding = granted("x", [rule(PODS, "get")], [("home", "x")], namespace="n", labels={"a": "b"})
    assert role == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "x", "namespace": "n", "labels": {"a": "b"}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    assert binding["kind"] == "RoleBinding"
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "x", "namespace": "home"}]


@pytest.mark.req("KR-054")
def test_without_a_namespace_it_is_the_clusters():
    kinds = [document["kind"] for document in granted("x", [rule(NODES, "list")], [("home", "x")])]
    assert kinds == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.req("KR-054", "PL-550")
def test_whoever_grants_rights_holds_them():
    """The operator's rules are computed from the roles that it makes, and need no ``escalate``."""
    documents = [
        *granted("x", [rule(PODS, "get"), rule(NODES, "list")], [("home", "x")]),
        *granted("y", [rule(PODS, "patch", "get")], [("home", "y")], namespace="n"),
    ]
    assert granting(documents) == (PolicyRule("", ("pods",), ("get", "patch")), PolicyRule("", ("nodes",), ("list",)))


@pytest.mark.req("KR-054")
def test_objects_of_an_apply_set_are_managed_by_name_as_far_as_that_goes():
    assert managing(DEPLOYMENTS, ["web"]) == (
        PolicyRule("apps", ("deployments",), ("get", "patch", "delete"), ("web",)),
        PolicyRule("apps", ("deployments",), ("list", "watch", "create")),
    )
