"""What counts as made by the operator, in the demo's line about it."""

import pytest

from polyarch.installation.apply import AppliedObject
from polyarch.installation.inventory import InventoryObject
from polyarch.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ObjectRef,
    Resource,
)
from polyarch.objects import ObjectKey, ObjectMeta
from polyarch.sandbox.demo.components import made


def found(resource: Resource, name: str) -> InventoryObject:
    return InventoryObject(
        ObjectRef(resource, ObjectKey("polyarch-system", name)), ObjectMeta(name=name, namespace="polyarch-system")
    )


@pytest.mark.req("SB-007")
def test_objects_of_the_installation_and_of_kubernetes_are_not_the_operators() -> None:
    new = [
        found(DEPLOYMENTS, "polyarch-operator"),
        found(REPLICASETS, "polyarch-operator-1"),
        found(PODS, "polyarch-operator-1-a"),
        found(ENDPOINT_SLICES, "polyarch-operator-x"),
        found(CONFIGMAPS, "kube-root-ca.crt"),
        found(SERVICE_ACCOUNTS, "default"),
        found(SECRETS, "polyarch-ca"),
        found(SERVICES, "pod-placement-web-hook"),
    ]
    applied = [AppliedObject(new[0].ref, "created")]
    assert [ref.key.name for ref in made(new, applied)] == ["polyarch-ca", "pod-placement-web-hook"]
