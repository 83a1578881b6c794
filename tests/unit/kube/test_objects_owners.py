"""References to an owner, and from a changed object back to its owner's key."""

import pytest

from polyarch.kube.owners import EnqueueOwner, Owner, owned_by
from polyarch.kube.resources import Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, ObjectMeta, OwnerReference, PartialObjectMetadata

WIDGETS = Resource("example.dev", "v1", "widgets", "Widget")
FLEETS = Resource("example.dev", "v1", "fleets", "Fleet", namespaced=False)
WIDGET = Owner.of(WIDGETS, ObjectMeta(name="w", namespace="demo", uid="u-1"))
REFERENCE = {
    "apiVersion": "example.dev/v1",
    "kind": "Widget",
    "name": "w",
    "uid": "u-1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def owned(name="d", *, by="w", kind="Widget", version="example.dev/v1", controller=True):
    reference = OwnerReference(version, kind, by, "u", controller)
    return PartialObjectMetadata(ObjectMeta(name=name, namespace="demo", owner_references=[reference]))


@pytest.mark.req("KR-051")
def test_an_owned_document_refers_to_its_owner_and_keeps_other_references():
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-2"}
    document = {"kind": "Deployment", "metadata": {"name": "d", "namespace": "demo", "ownerReferences": [other]}}
    assert owned_by(WIDGET, document)["metadata"]["ownerReferences"] == [other, REFERENCE]
    assert document["metadata"]["ownerReferences"] == [other], "documents are not changed in place"


@pytest.mark.req("KR-051")
@pytest.mark.parametrize("namespace", ["elsewhere", ""])
def test_an_owner_in_another_namespace_would_have_the_object_collected(namespace):
    with pytest.raises(ValueError, match="same namespace or in none"):
        owned_by(WIDGET, {"kind": "Role", "metadata": {"name": "r", "namespace": namespace}})
    fleet = Owner(FLEETS, ObjectKey("", "f"), "u")
    assert owned_by(fleet, {"kind": "Role", "metadata": {"name": "r", "namespace": namespace}})


@pytest.mark.req("KR-052")
def test_only_the_controller_counts_among_owners():
    assert owned(controller=None).metadata.controller is None
    assert ObjectMeta(name="x").controller is None
    assert owned().metadata.controller.name == "w"


@pytest.mark.req("KR-052")
@pytest.mark.parametrize(
    ("change", "keys"),
    [
        pytest.param(ObjectChange("apply", ObjectKey("demo", "d"), None, owned()), [ObjectKey("demo", "w")], id="made"),
        pytest.param(
            ObjectChange("delete", ObjectKey("demo", "d"), owned(), None), [ObjectKey("demo", "w")], id="deleted"
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), owned(), owned()), [ObjectKey("demo", "w")], id="changed"
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), owned(), owned(by="v")),
            [ObjectKey("demo", "w"), ObjectKey("demo", "v")],
            id="taken by another",
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), None, owned(version="example.dev/v1alpha1")),
            [ObjectKey("demo", "w")],
            id="by an older version",
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), None, owned(kind="Fleet")), [], id="of another kind"
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), None, owned(version="v1")), [], id="of another group"
        ),
        pytest.param(
            ObjectChange("apply", ObjectKey("demo", "d"), None, owned(controller=False)), [], id="not its controller"
        ),
    ],
)
def test_a_change_of_an_owned_object_leads_to_its_owners(change, keys):
    assert list(EnqueueOwner(WIDGETS).keys(change)) == keys


@pytest.mark.req("KR-052")
def test_an_owner_of_the_cluster_has_no_namespace():
    queue: list[ObjectKey] = []

    class Queue:
        def add(self, key: ObjectKey) -> None:
            queue.append(key)

    EnqueueOwner(FLEETS).into(Queue())(ObjectChange("apply", ObjectKey("demo", "d"), None, owned(kind="Fleet")))
    assert queue == [ObjectKey("", "w")]
