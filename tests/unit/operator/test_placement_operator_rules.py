"""What the operator may do, and that it can grant all that its roles may need."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.kube.rbac import granting, grants, missing
from polyarch.operator.components import placement_objects
from polyarch.operator.components.operator_rbac import grantable_permissions, placement_permissions, secret_permissions
from polyarch.operator.owned_objects import combined, global_pull_secret
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.settings import SecretAccess, WarmUpKind

SETTINGS = st.builds(
    OperatorSettings,
    namespace=st.sampled_from(["polyarch-system", "openshift-config", "ours"]),
    global_pull_secret=st.sampled_from([None, ("infra", "pull"), ("polyarch-system", "pull")]),
)
CLUSTERS = st.builds(ClusterCapabilities, openshift=st.booleans(), monitoring=st.booleans())


SWITCHES = st.fixed_dictionaries(
    {
        field.name: st.booleans()
        for field in msgspec.structs.fields(placement_objects.OptionalFeatures)
        if field.type is bool and field.name != "openshift"
    }
)
"""Every feature of a policy, also those that come later."""


@pytest.mark.req("PL-550")
@given(
    SETTINGS,
    CLUSTERS,
    SWITCHES,
    st.sets(st.sampled_from(get_args(WarmUpKind))),
    st.sampled_from(get_args(SecretAccess)),
)
def test_every_role_that_any_policy_asks_for_can_be_granted(settings, cluster, switches, warm_up, access):
    """Kubernetes refuses a role with a rule that its maker does not hold, in that namespace or everywhere."""
    parts = placement_objects.OptionalFeatures(
        namespace=settings.namespace,
        warm_up=tuple(warm_up),
        secret_access=access,
        global_pull_secret=global_pull_secret(settings, cluster),
        openshift=cluster.openshift,
        **switches,
    )
    held = combined(placement_permissions(settings, cluster), secret_permissions(settings))
    for document in (*placement_objects.rbac(parts), *placement_objects.monitor_objects(settings, cluster)):
        if "rules" in document:
            namespace = document["metadata"].get("namespace", "")
            rules = (*held.cluster, *held.namespaces.get(namespace, ()))
            assert missing(rules, grants(granting([document]))) == []


@pytest.mark.req("PL-550")
@given(SETTINGS, CLUSTERS)
def test_the_operator_has_no_wildcard_and_cannot_raise_its_own_rights(settings, cluster):
    held = combined(placement_permissions(settings, cluster), secret_permissions(settings))
    for rules in (held.cluster, *held.namespaces.values()):
        for access in grants(rules):
            assert "*" not in (access.verb, access.group, access.resource, access.name)
            assert access.verb not in ("escalate", "bind", "impersonate", "deletecollection")


@pytest.mark.req("PL-550")
@given(SETTINGS, CLUSTERS)
def test_cluster_wide_it_changes_by_name_alone(settings, cluster):
    """But for pods' gates, Events, reviews, and what it grants."""
    held = combined(placement_permissions(settings, cluster), secret_permissions(settings))
    unnamed = {
        (access.verb, access.resource)
        for access in grants(held.cluster)
        if not access.name and access.verb not in ("get", "list", "watch")
    }
    kinds = ("clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
             "validatingadmissionpolicies", "validatingadmissionpolicybindings")  # fmt: skip
    constraints = {("use", "securitycontextconstraints")} if cluster.openshift else set()
    assert unnamed == constraints | {
        *(("create", kind) for kind in kinds),
        ("patch", "pods"),
        ("create", "pods/eviction"),
        ("create", "events"),
        ("patch", "events"),
        ("patch", "podplacementconfigs/status"),
        ("patch", "enoexecevents"),
        ("create", "tokenreviews"),
        ("create", "subjectaccessreviews"),
    }


@pytest.mark.req("PL-550")
@given(SETTINGS, CLUSTERS)
def test_it_never_lists_secrets_of_the_cluster_nor_updates_or_deletes_pods(settings, cluster):
    held = combined(placement_permissions(settings, cluster), secret_permissions(settings))
    of = {
        kind: {access.verb for access in grants(held.cluster) if access.resource == kind}
        for kind in ("secrets", "pods", "customresourcedefinitions")
    }
    assert of == {
        "secrets": {"get"},
        "pods": {"get", "list", "watch", "patch"},
        "customresourcedefinitions": {"get", "list", "watch", "patch"},
    }


@pytest.mark.req("PL-550")
@pytest.mark.parametrize("kind", ["secrets", "configmaps", "deployments", "roles", "servicemonitors"])
def test_in_its_namespace_it_changes_only_objects_with_known_names(kind):
    held = placement_permissions(OperatorSettings(), ClusterCapabilities()).namespaces["polyarch-system"]
    changed = {access.name for access in grants(held) if access.resource == kind and access.verb in ("patch", "delete")}
    assert changed
    assert "" not in changed


@pytest.mark.req("PL-423", "PL-550")
def test_the_operator_has_a_role_wherever_it_makes_one():
    found = placement_permissions(
        OperatorSettings(global_pull_secret=("infra", "pull")), ClusterCapabilities(openshift=True)
    )
    assert set(found.namespaces) == {"polyarch-system", "openshift-config", "infra"}
    for rules in found.namespaces.values():
        assert missing(rules, [access for access in grants(rules) if access.resource == "roles"]) == []
        assert {access.verb for access in grants(rules) if access.resource == "rolebindings"} == {
            "get",
            "list",
            "watch",
            "create",
            "patch",
            "delete",
        }


@pytest.mark.req("PL-501", "PL-503", "PL-520")
def test_it_may_read_and_remove_the_lease_of_the_controllers():
    """What is left of a role goes with it."""
    held = placement_permissions(OperatorSettings(), ClusterCapabilities()).namespaces["polyarch-system"]
    deleted = {access.name for access in grants(held) if (access.verb, access.resource) == ("delete", "leases")}
    assert deleted == {names.OPERATOR_LEASE, names.CONTROLLER_LEASE, names.ENOEXEC_LEASE}


@pytest.mark.req("PL-550")
def test_what_may_be_granted_includes_webhook_and_controller():
    assert len(grantable_permissions(OperatorSettings(), ClusterCapabilities())) >= 2
