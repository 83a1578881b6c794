"""References to objects, and the order in which to create and delete them (KR-051). Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from polyarch.kube.resources import Resource
from polyarch.model.meta import Key

FIRST: Final = (
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "RuntimeClass",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
)
"""Kinds that others depend on, in this order; all other kinds come after them."""
LAST: Final = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)
"""Created last: these affect other requests, and may call a server that has to exist first."""


class Ref(NamedTuple):
    """An object's kind, namespace and name."""

    resource: Resource
    key: Key

    def document(self) -> dict[str, str]:
        """As documents of the command line name an object."""
        resource, key = self
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "namespace": key.namespace,
            "name": key.name,
        }

    def __str__(self) -> str:
        return f"{self.resource} {self.key}"


def in_order(refs: Iterable[Ref]) -> list[Ref]:
    """Sorted with dependencies first; the sort is stable."""
    return sorted(refs, key=rank)


def rank(ref: Ref) -> int:
    """The position of its kind in the order; objects of equal rank do not depend on each other."""
    kind = ref.resource.kind
    if kind in FIRST:
        return FIRST.index(kind)
    return len(FIRST) + (LAST.index(kind) + 1 if kind in LAST else 0)


def few(names: Iterable[object], most: int = 5) -> str:
    """The first of them, and how many more there are: for messages about many objects."""
    listed = [str(each) for each in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
