"""What the builder, the operator and people may do with builds: as little as works."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.builds import names
from polyarch.builds.controller.image_builds import ARCHITECTURES_RIGHTS
from polyarch.builds.controller.informers import INFORMER_RIGHTS, POD_RIGHTS
from polyarch.builds.controller.machine_os import MACHINE_OS_NAMESPACE_RIGHTS, MACHINE_OS_RIGHTS
from polyarch.builds.controller.pruner import PRUNE_JOB_RIGHTS, PRUNER_RIGHTS
from polyarch.builds.controller.resolver import CONFIG_MAP_RIGHTS, HMAC_RIGHTS, NAMED_OBJECT_RIGHTS, SECRET_RIGHTS
from polyarch.builds.controller.writes import MACHINE_RIGHTS, NAMESPACE_RIGHTS, SECRET_COPY_RIGHTS, WRITE_RIGHTS
from polyarch.kube import events, lease
from polyarch.kube.rbac import Permission, granting, grants, missing, unused
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator.components import builds_objects, operator_rbac
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.settings import Builds, ClusterCapabilities, MachineOS, OperatorSettings

HOME = OperatorSettings().namespace
SETTINGS = st.builds(
    OperatorSettings,
    namespace=st.sampled_from(["polyarch-system", "openshift-config", "ours"]),
    global_pull_secret=st.sampled_from([None, ("infra", "pull"), ("polyarch-system", "pull")]),
    builds=st.sampled_from(["on", "auto"]),
    machine_os=st.sampled_from(["on", "auto", "off"]),
    machine_os_namespace=st.sampled_from(["machines", "polyarch-system", "openshift-config"]),
    numa=st.sampled_from(["auto", "off"]),
)
CLUSTERS = st.builds(ClusterCapabilities, openshift=st.booleans(), monitoring=st.booleans())
READS = ("get", "list", "watch")
CHANGES = {"create", "update", "patch", "delete", "deletecollection"}


def role(*, openshift: bool = False) -> builds_objects.RolePermissions:
    return builds_objects.role_permissions(OperatorSettings(), ClusterCapabilities(openshift=openshift))


@pytest.mark.req("BD-331")
def test_what_the_builder_may_change() -> None:
    """All of it. No update, no deletion of a pod, nothing of nodes and namespaces."""
    changes = {(each.resource, each.verb) for each in grants(role().cluster) if each.verb in CHANGES}
    assert changes == {
        ("imagebuilds", "patch"),
        ("imagebuilds/status", "patch"),
        ("imagebuilds/finalizers", "update"),
        *(("imagebuildruns", verb) for verb in ("create", "patch", "delete")),
        ("imagebuildruns/status", "patch"),
        ("imagebuildruns/finalizers", "update"),
        *(("jobs", verb) for verb in ("create", "patch", "delete")),
        *(("configmaps", verb) for verb in ("create", "patch", "delete")),
        ("events", "create"),
        ("events", "patch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }


@pytest.mark.req("BD-331")
def test_what_the_builder_may_read() -> None:
    """What ended pods say stands in their status, so no logs; of Secrets nothing in the cluster."""
    reads = {(each.resource, each.verb) for each in grants(role().cluster) if each.verb not in CHANGES}
    assert reads == {
        *((each, verb) for each in ("imagebuilds", "imagebuildruns", "jobs", "configmaps") for verb in READS),
        *((each, verb) for each in ("pods", "nodes", "namespaces") for verb in ("list", "watch")),
        ("runtimeclasses", "get"),
    }


@pytest.mark.req("BD-331")
@pytest.mark.parametrize("openshift", [False, True])
def test_secrets_only_by_name_and_where_an_admin_bound_the_role(openshift: bool) -> None:
    """The key of fingerprints at home; all else by ClusterRole polyarch-builds, which nobody binds for them."""
    granted = role(openshift=openshift)
    assert [each for each in grants(granted.cluster) if each.resource == "secrets"] == []
    of_namespaces = [each for rules in granted.namespaces.values() for each in grants(rules)]
    assert [each for each in of_namespaces if each.resource == "secrets"] == [
        Permission("get", "", "secrets", names.HMAC_SECRET)
    ]
    assert grants(builds_objects.IN_NAMESPACES) == [Permission("get", "", "secrets")]
    documents = builds_objects.rbac(OperatorSettings(), ClusterCapabilities(openshift=openshift))
    bound = {each["roleRef"]["name"] for each in documents if each["kind"].endswith("Binding")}
    assert bound == {names.ROLE}
    assert names.NAMESPACE_ROLE in {each["metadata"]["name"] for each in documents if each["kind"] == "ClusterRole"}


@pytest.mark.req("BD-331")
def test_the_builder_is_granted_what_its_parts_say_they_need() -> None:
    """Who adds a request to a part of the role says so beside it, and finds it here; nobody gets more."""
    everywhere = [
        *INFORMER_RIGHTS,
        *WRITE_RIGHTS,
        *CONFIG_MAP_RIGHTS,
        *NAMED_OBJECT_RIGHTS,
        *PRUNER_RIGHTS,
        *PRUNE_JOB_RIGHTS,
        *POD_RIGHTS,
        *events.RIGHTS,
        *SCRAPER_RIGHTS,
    ]
    granted = role()
    assert missing(granted.cluster, grants(everywhere)) == []
    at_home = [*ARCHITECTURES_RIGHTS, *HMAC_RIGHTS, *lease.rights(names.LEASE)]
    assert missing([*granted.cluster, *granted.namespaces[HOME]], grants(at_home)) == []
    assert set(grants(builds_objects.IN_NAMESPACES)) == set(grants(SECRET_RIGHTS))
    beyond = {str(each) for each in unused(granted.cluster, grants([*everywhere, *at_home]))}
    finalizers = {f"update {each}/finalizers.polyarch.dev" for each in ("imagebuilds", "imagebuildruns")}
    assert beyond == finalizers  # asked by admission where API servers check owner references
    assert unused(granted.namespaces[HOME], grants(at_home)) == []


@pytest.mark.req("BD-332")
def test_people_get_builds_with_the_roles_of_kubernetes() -> None:
    """Whoever may create pods in a namespace may create ImageBuilds; whoever may view it sees them."""
    documents = {each["metadata"]["name"]: each for each in builds_objects.people()}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"

    def added_to(name: str) -> set[str]:
        labels = documents[name]["metadata"]["labels"]
        return {each.removeprefix(prefix) for each, value in labels.items() if each.startswith(prefix) and value}

    assert added_to(builds_objects.VIEW_ROLE) == {"view"}
    assert added_to(builds_objects.EDIT_ROLE) == {"admin", "edit"}
    view, edit = (grants(granting([documents[name]])) for name in (builds_objects.VIEW_ROLE, builds_objects.EDIT_ROLE))
    assert {each.verb for each in view} == {"get", "list", "watch"}
    assert {each.resource for each in (*view, *edit)} == {"imagebuilds", "imagebuildruns"}
    assert Permission("create", "polyarch.dev", "imagebuilds") in edit
    assert Permission("create", "polyarch.dev", "imagebuildruns") not in edit  # the builder alone makes them


@pytest.mark.req("BD-331")
@given(SETTINGS, CLUSTERS)
def test_the_operator_holds_whatever_it_grants(settings: OperatorSettings, cluster: ClusterCapabilities) -> None:
    """Kubernetes refuses a role with a rule that its maker does not hold."""
    held = operator_permissions(settings, cluster)
    for document in builds_objects.rbac(settings, cluster):
        if "rules" in document:
            namespace = document["metadata"].get("namespace", "")
            rules = (*held.cluster, *held.namespaces.get(namespace, ()))
            assert missing(rules, grants(granting([document]))) == []


@pytest.mark.req("BD-331")
@pytest.mark.parametrize("builds", ["on", "auto", "off"])
def test_the_operator_has_rights_for_builds_only_where_they_are_on(builds: Builds) -> None:
    """Who may make Jobs everywhere can run anything; off, it can only remove what was there."""
    held = operator_permissions(OperatorSettings(builds=builds, numa="off"), ClusterCapabilities())
    on = builds != "off"
    assert (Permission("create", "batch", "jobs") in grants(held.cluster)) == on
    assert (Permission("create", "polyarch.dev", "imagebuilds") in grants(held.cluster)) == on
    deletes = Permission("delete", "rbac.authorization.k8s.io", "clusterroles", names.ROLE)
    assert deletes in grants(held.cluster)
    assert Permission("delete", "apps", "deployments", names.ROLE) in grants(held.namespaces[HOME])


@pytest.mark.req("BD-331")
@given(SETTINGS, CLUSTERS)
def test_the_operator_gets_no_wildcard_and_cannot_raise_its_own_rights(
    settings: OperatorSettings, cluster: ClusterCapabilities
) -> None:
    several = (
        operator_rbac.builds_permissions(settings, cluster),
        operator_rbac.machine_os_permissions(settings, cluster),
    )
    for rules in (rules for held in several for rules in (held.cluster, *held.namespaces.values())):
        for access in grants(rules):
            assert "*" not in (access.verb, access.group, access.resource, access.name)
            assert access.verb not in ("escalate", "bind", "impersonate")


MACHINE_OS = OperatorSettings(machine_os="on", machine_os_namespace="machines")


@pytest.mark.req("BD-331")
def test_machine_os_images_have_a_role_of_their_own_where_they_are_wanted() -> None:
    """Nothing where it is off; else just what its parts say they need."""
    assert builds_objects.machine_permissions(OperatorSettings(), ClusterCapabilities(openshift=True)) == ((), {})
    allowed = builds_objects.machine_permissions(MACHINE_OS, ClusterCapabilities())
    parts = (*MACHINE_OS_RIGHTS, *SECRET_COPY_RIGHTS, *MACHINE_RIGHTS)
    in_namespace = (*MACHINE_OS_NAMESPACE_RIGHTS, *NAMESPACE_RIGHTS)
    assert missing(allowed.cluster, grants(parts)) == []
    everywhere = (*allowed.cluster, *role().cluster)
    assert missing((*everywhere, *allowed.namespaces["machines"]), grants(in_namespace)) == []
    beyond = [each for each in unused(allowed.cluster, grants(parts)) if not each.resource.endswith("/finalizers")]
    assert beyond == []
    assert set(allowed.namespaces) == {"machines"}
    documents = builds_objects.rbac(MACHINE_OS, ClusterCapabilities())
    bound = [each for each in documents if each["metadata"]["name"] == builds_objects.MACHINE_ROLE]
    assert [each["kind"] for each in bound] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert {each["subjects"][0]["name"] for each in bound if "subjects" in each} == {names.ROLE}


@pytest.mark.req("BD-331")
@pytest.mark.parametrize(
    ("builds", "machine_os", "openshift", "expected"),
    [
        ("on", "on", False, True),
        ("auto", "on", True, True),
        ("on", "auto", True, True),
        ("on", "auto", False, False),
        ("on", "off", True, False),
        ("off", "on", True, False),
    ],
)
def test_the_operator_has_rights_for_machine_os_images_only_where_they_are_wanted(
    builds: Builds, machine_os: MachineOS, openshift: bool, expected: bool
) -> None:
    """Of Secrets in that namespace and of MachineOSConfigs; the ClusterRole it can always remove, by name."""
    settings = msgspec.structs.replace(MACHINE_OS, builds=builds, machine_os=machine_os, numa="off")
    held = operator_permissions(settings, ClusterCapabilities(openshift=openshift))
    assert ("machines" in held.namespaces) == expected
    assert any(each.resource.startswith("machineos") for each in grants(held.cluster)) == expected
    deletes = Permission("delete", "rbac.authorization.k8s.io", "clusterroles", builds_objects.MACHINE_ROLE)
    assert deletes in grants(held.cluster)


@pytest.mark.req("BD-331")
def test_machine_os_images_change_no_other_rule_of_the_operator() -> None:
    """A chart and a kustomize component can only add rules."""
    usual, more = (
        operator_permissions(OperatorSettings(builds="on", machine_os=each), ClusterCapabilities())
        for each in ("off", "on")
    )
    assert set(usual.cluster) < set(more.cluster)
    assert all(more.namespaces[each] == rules for each, rules in usual.namespaces.items())
