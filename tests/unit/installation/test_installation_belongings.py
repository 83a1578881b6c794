"""Whose are the objects of a cluster at an uninstall?"""

from typing import Any

import pytest

from polyarch.installation import preflight
from polyarch.installation.inventory import ClusterInventory, InventoryObject, OwnedObjects, belongings
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    PODS,
    ROLES,
    SECRETS,
    SERVICES,
    ObjectRef,
    Resource,
)
from polyarch.objects import ObjectKey, ObjectMeta, OwnerReference
from polyarch.placement import names
from polyarch.placement.api import CPPCS

HOME = "polyarch-system"
LABELLED = {"app.kubernetes.io/part-of": "polyarch"}
OPERAND = {names.OPERAND_LABEL: names.OPERAND}
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
THINGS = Resource("polyarch.dev", "v1", "things", "Thing", namespaced=False)


def an_object(
    resource: Resource,
    name: str,
    namespace: str = "",
    *,
    labels: dict[str, str] | None = None,
    owners: tuple[str, ...] = (),
    release: str = "",
) -> InventoryObject:
    """Its uid is its name; ``owners`` are uids."""
    helm = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": HOME}
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=name,
        labels=labels,
        annotations=helm if release else None,
        owner_references=[OwnerReference(uid=each) for each in owners] or None,
    )
    return InventoryObject(ObjectRef(resource, ObjectKey(namespace, name)), metadata)


def sorted_out(*found: InventoryObject, home: str = HOME, proven: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """Names of what is ours, and of what only looks so."""
    result: OwnedObjects = belongings(ClusterInventory(found, {}), home, proven)
    return [each.metadata.name for each in result.ours], [each.metadata.name for each in result.unproven]


@pytest.mark.req("IN-003")
@pytest.mark.parametrize(
    "found",
    [
        pytest.param(an_object(DEPLOYMENTS, names.OPERATOR, HOME, labels=LABELLED), id="the operator"),
        pytest.param(an_object(CLUSTER_ROLES, names.OPERATOR, labels=LABELLED), id="its rights"),
        pytest.param(an_object(ROLES, names.OPERATOR, "openshift-config", labels=LABELLED), id="in another namespace"),
        pytest.param(an_object(SERVICES, names.WEBHOOK, HOME, labels=OPERAND), id="an operand of an earlier version"),
        pytest.param(an_object(NAMESPACES, HOME, labels=LABELLED), id="its namespace"),
        pytest.param(an_object(LEASES, names.OPERATOR_LEASE, HOME), id="a Lease, which has no label"),
        pytest.param(an_object(SECRETS, names.AUTHORITY_SECRET, HOME), id="the CA"),
        pytest.param(an_object(CRDS, str(CPPCS)), id="a definition, as the predecessor left it"),
        pytest.param(
            an_object(PODS, "operator-1", HOME, labels={"controller": names.OPERATOR}, owners=("gone",)),
            id="a pod on its way out",
        ),
    ],
)
def test_what_an_installation_gives_a_name_is_ours(found: InventoryObject) -> None:
    assert sorted_out(found) == ([found.metadata.name], [])


@pytest.mark.req("IN-003")
@pytest.mark.parametrize(
    "found",
    [
        pytest.param(an_object(CONFIGMAPS, "dashboard", "monitoring", labels=LABELLED), id="a dashboard"),
        pytest.param(an_object(CONFIGMAPS, "dashboard", HOME, labels=LABELLED), id="in polyarch's namespace, too"),
        pytest.param(an_object(CONFIGMAPS, names.OPERATOR, HOME, labels=LABELLED), id="of a kind we do not install"),
        pytest.param(an_object(SERVICES, names.OPERATOR, "team", labels=LABELLED), id="called alike, elsewhere"),
        pytest.param(an_object(CLUSTER_ROLES, "polyarch-viewers", labels=LABELLED), id="more rights"),
        pytest.param(an_object(NAMESPACES, "team", labels=LABELLED), id="a namespace"),
        pytest.param(an_object(SERVICES, "copy", HOME, labels=OPERAND), id="a copy of an operand"),
        pytest.param(an_object(CRDS, str(THINGS)), id="an unknown definition in our API group"),
    ],
)
def test_a_label_alone_is_no_proof_but_who_wrote_it_is(found: InventoryObject) -> None:
    name = found.metadata.name
    assert sorted_out(found) == ([], [name])
    assert sorted_out(found, proven=(name,)) == ([name], [])


@pytest.mark.req("IN-003")
@pytest.mark.parametrize(
    "found",
    [
        pytest.param(an_object(CONFIGMAPS, "settings", HOME), id="without a label"),
        pytest.param(an_object(SERVICES, "x", HOME, labels={"app.kubernetes.io/part-of": "shop"}), id="of another"),
        pytest.param(an_object(LEASES, names.OPERATOR_LEASE, "team"), id="a name of ours in another namespace"),
        pytest.param(an_object(NAMESPACES, HOME), id="a namespace that we have not marked"),
    ],
)
def test_what_is_not_labelled_is_neither_deleted_nor_named(found: InventoryObject) -> None:
    assert sorted_out(found) == ([], [])


@pytest.mark.req("IN-003")
def test_the_namespace_of_somebody_else_stays_although_it_is_labelled() -> None:
    team = an_object(NAMESPACES, "team", labels=LABELLED)
    assert sorted_out(team, home="team") == ([], ["team"])


@pytest.mark.req("IN-003")
def test_what_belongs_to_an_object_is_whose_that_is() -> None:
    ours, theirs = (an_object(DEPLOYMENTS, name, HOME, labels=LABELLED) for name in (names.OPERATOR, "theirs"))
    sets = [an_object(REPLICASETS, f"{name}-1", HOME, labels=LABELLED, owners=(name,)) for name in ("theirs",)]
    sets.append(an_object(REPLICASETS, "ours-1", HOME, owners=(names.OPERATOR,)))
    pods = [
        an_object(PODS, "their-pod", HOME, labels=LABELLED, owners=("theirs-1",)),
        an_object(PODS, "our-pod", HOME, labels=LABELLED, owners=("ours-1",)),
        an_object(PODS, "shared-pod", HOME, owners=("ours-1", "theirs-1")),
    ]
    found = sorted_out(*pods, *sets, theirs, ours)
    assert found == (["our-pod", "ours-1", names.OPERATOR], ["theirs"]), "and of theirs only the Deployment is named"


@pytest.mark.req("IN-003")
def test_custom_resources_go_with_their_definitions() -> None:
    ours, theirs = an_object(CPPCS, "cluster"), an_object(THINGS, "thing")
    definitions = an_object(CRDS, str(CPPCS)), an_object(CRDS, str(THINGS))
    assert sorted_out(ours, theirs, *definitions) == (["cluster", str(CPPCS)], [str(THINGS)])


@pytest.mark.req("IN-003")
def test_objects_of_our_helm_release_are_ours() -> None:
    operator = an_object(DEPLOYMENTS, names.OPERATOR, HOME, labels=LABELLED, release="polyarch")
    dashboard = an_object(CONFIGMAPS, "polyarch-placement-dashboard", HOME, labels=LABELLED, release="polyarch")
    others = an_object(CONFIGMAPS, "umbrella", HOME, labels=LABELLED, release="umbrella")
    unlabelled = an_object(SECRETS, "sh.helm.release.v1.polyarch.v1", HOME, release="polyarch")
    found = sorted_out(operator, dashboard, others, unlabelled)
    assert found == ([names.OPERATOR, "polyarch-placement-dashboard"], ["umbrella"])


@pytest.mark.req("IN-003")
def test_a_namespace_is_kept_for_what_is_not_ours_in_it() -> None:
    seen = ClusterInventory(
        (
            an_object(NAMESPACES, HOME, labels=LABELLED),
            an_object(CONFIGMAPS, "kube-root-ca.crt", HOME),
            an_object(CONFIGMAPS, "dashboard", HOME, labels=LABELLED),
            an_object(SECRETS, names.AUTHORITY_SECRET, HOME),
            an_object(CONFIGMAPS, "elsewhere", "team"),
        ),
        {},
    )
    others = belongings(seen, HOME).foreign_in(HOME, seen)
    assert [each.metadata.name for each in others] == ["dashboard"]


@pytest.mark.req("IN-003")
@pytest.mark.parametrize(
    ("manager", "label", "ours"),
    [
        pytest.param("polyarch-install", "app.kubernetes.io/part-of", True, id="by polyarch install"),
        pytest.param("polyarch", names.OPERAND_LABEL, True, id="by the operator"),
        pytest.param("kubectl", "app.kubernetes.io/part-of", False, id="by somebody else"),
        pytest.param("polyarch", "team", False, id="we wrote another field"),
    ],
)
def test_the_api_server_records_who_wrote_a_label(manager: str, label: str, ours: bool) -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {".": {}, f"f:{label}": {}}}}
    other = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {}}}
    entries = [other, {"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    assert preflight.is_written_by_us({"metadata": {"managedFields": entries}}) is ours
