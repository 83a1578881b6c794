"""What the role taints and the operator may do: as little as works, and all that they need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch import names as shared
from polyarch.kube.rbac import granting, grants, missing
from polyarch.operator.components import operator_rbac, taints_objects
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.run import services
from polyarch.taints import daemonsets as template_controller
from polyarch.taints import names, registration
from polyarch.taints import pods as changed_pods
from polyarch.taints import pods as pod_writes
from polyarch.taints import rollout as safety

HOME = OperatorSettings().namespace
SETTINGS = st.builds(
    OperatorSettings,
    namespace=st.sampled_from(["polyarch-system", "openshift-config", "ours"]),
    global_pull_secret=st.sampled_from([None, ("infra", "pull"), ("polyarch-system", "pull")]),
)
CLUSTERS = st.builds(ClusterCapabilities, openshift=st.booleans(), monitoring=st.booleans())
CHANGES = {"create", "update", "patch", "delete", "deletecollection"}


def role(*, evicts: bool = False, openshift: bool = False):
    return taints_objects.role_permissions(OperatorSettings(), ClusterCapabilities(openshift=openshift), evicts=evicts)


@pytest.mark.req("TN-081")
def test_the_role_is_granted_what_its_parts_say_they_need():
    """Who adds a request to a part of the role says so beside it, and finds it here."""
    everywhere = [
        *safety.RIGHTS,
        *registration.RIGHTS,
        *pod_writes.RIGHTS,
        *changed_pods.EVICT,
        *template_controller.RIGHTS,
    ]
    granted = role(evicts=True)
    assert missing(granted.cluster, grants(everywhere)) == []
    at_home = [*safety.RIGHTS_AT_HOME, *services.RIGHTS]
    assert missing(granted.namespaces[HOME], grants(at_home)) == []


@pytest.mark.req("TN-081", "TN-094")
def test_what_it_may_change():
    """No update, no delete of nodes, pods or DaemonSets; by name wherever RBAC can tell them apart."""
    changes = {
        (access.verb, access.resource, access.name) for access in grants(role().cluster) if access.verb in CHANGES
    }
    policies = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    assert changes == {
        ("patch", "nodes", ""),
        ("patch", "pods", ""),
        ("patch", "daemonsets", ""),
        ("patch", "architecturetaints/status", "cluster"),
        *((verb, each, names.REGISTRATION_POLICY) for verb in ("patch", "delete") for each in policies),
        *(("create", each, "") for each in policies),
        ("create", "events", ""),
        ("patch", "events", ""),
        ("create", "tokenreviews", ""),
        ("create", "subjectaccessreviews", ""),
    }


@pytest.mark.req("TN-081")
def test_pods_may_be_evicted_only_if_the_object_says_so():
    assert {access.resource for access in grants(role(evicts=True).cluster)} - {
        access.resource for access in grants(role().cluster)
    } == {"pods/eviction"}


@pytest.mark.req("TN-081")
def test_secrets_are_read_by_name_and_never_listed():
    granted = role(openshift=True)
    assert {access.verb for access in grants(granted.cluster) if access.resource == "secrets"} == {"get"}
    listed = [
        access
        for rules in granted.namespaces.values()
        for access in grants(rules)
        if access.resource == "secrets" and access.verb in ("list", "watch")
    ]
    assert {access.name for access in listed} == {"pull-secret"}


@pytest.mark.req("TN-081")
def test_the_processes_of_placement_get_what_adding_tolerations_takes():
    """By a role that exists as long as taints do."""
    documents = taints_objects.rbac(OperatorSettings(), ClusterCapabilities(), evicts=False)
    bindings = [each for each in documents if each["kind"].endswith("Binding")]
    bound = {
        each["kind"]: {subject["name"] for subject in each["subjects"]}
        for each in bindings
        if each["metadata"]["name"] == names.ADMISSION_ROLE
    }
    everybody = {names.ROLE, shared.PLACEMENT_WEBHOOK, shared.PLACEMENT_CONTROLLER}
    assert bound == {"ClusterRoleBinding": everybody, "RoleBinding": everybody}
    assert all(each["metadata"]["labels"][shared.OPERAND_LABEL] == shared.TAINTS for each in documents)


@pytest.mark.req("TN-081")
@given(SETTINGS, CLUSTERS, st.booleans())
def test_the_operator_holds_whatever_it_grants(settings, cluster, evicts):
    """Kubernetes refuses a role with a rule that its maker does not hold."""
    held = operator_permissions(settings, cluster)
    for document in taints_objects.rbac(settings, cluster, evicts=evicts):
        if "rules" in document:
            namespace = document["metadata"].get("namespace", "")
            rules = (*held.cluster, *held.namespaces.get(namespace, ()))
            assert missing(rules, grants(granting([document]))) == []


@pytest.mark.req("TN-081", "TN-094")
@given(SETTINGS, CLUSTERS)
def test_the_operator_gets_no_wildcard_and_cannot_raise_its_own_rights(settings, cluster):
    held = operator_rbac.taints_permissions(settings, cluster)
    for rules in (held.cluster, *held.namespaces.values()):
        for access in grants(rules):
            assert "*" not in (access.verb, access.group, access.resource, access.name)
            assert access.verb not in ("escalate", "bind", "impersonate", "deletecollection", "update") or (
                access.resource == "leases"
            )


@pytest.mark.req("TN-073", "TN-081")
@pytest.mark.parametrize("kind", ["nodes", "pods", "daemonsets"])
def test_the_operator_neither_updates_nor_deletes_what_is_not_its_own(kind):
    """It removes taints and gates where the role is dead, by patches."""
    held = operator_rbac.taints_permissions(OperatorSettings(), ClusterCapabilities())
    assert {access.verb for access in grants(held.cluster) if access.resource == kind} == {
        "get",
        "list",
        "watch",
        "patch",
    }
