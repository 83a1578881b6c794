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
"""Kinds that others need, in this order; after them come all others."""
LAST: Final = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)
"""What acts on the requests of others, perhaps by asking a server that has to be there first."""


class Ref(NamedTuple):
    """An object's place in the cluster."""

    resource: Resource
    key: Key

    def __str__(self) -> str:
        return f"{self.resource} {self.key}"


def in_order(refs: Iterable[Ref]) -> list[Ref]:
    """Dependencies first; a stable sort."""
    return sorted(refs, key=rank)


def rank(ref: Ref) -> int:
    """The place of its kind in the order; objects of one rank do not need each other."""
    kind = ref.resource.kind
    if kind in FIRST:
        return FIRST.index(kind)
    return len(FIRST) + (LAST.index(kind) + 1 if kind in LAST else 0)
