"""Objects that the operator makes: metadata, by which tools and the operator find them, and the RBAC objects of a role.

A role has one ClusterRole, and one Role for each namespace in which it may do more, all named like its ServiceAccount.
Pure.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from polyarch import names
from polyarch.kube.owners import Owner, owned_by
from polyarch.kube.rbac import PolicyRule, granted, rule, union
from polyarch.kube.resources import CONFIGMAPS, SECRETS
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

Document = dict[str, Any]

PART_OF: Final = {"app.kubernetes.io/part-of": "polyarch"}
"""Label of every object that polyarch makes."""
PARTS: Final = (names.TAINTS, names.BUILDER, names.NUMA_EXPORTER, names.NUMA_SCHEDULER)
"""Parts that come and go by themselves, named like what their objects belong to; all else is placement's."""


def labels(controller: str) -> dict[str, str]:
    """Labels of an object that belongs to the Deployment or DaemonSet ``controller``.

    What the operator makes carries the label of operands, and is removed with its feature; its own objects do not.
    """
    part = part_of(controller)
    return ({names.OPERAND_LABEL: part} if part else {}) | {names.CONTROLLER_LABEL: controller}


def part_of(controller: str) -> str:
    """The part that objects of this Deployment or DaemonSet are removed with; empty: the operator's own."""
    if controller == names.OPERATOR:
        return ""
    return controller if controller in PARTS else names.PLACEMENT


def metadata(name: str, controller: str, *, namespace: str = "") -> Document:
    """``metadata`` of an object; without a namespace it is cluster-scoped."""
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(controller)}


def finished(document: Document) -> Document:
    """The document with the label of every object of ours."""
    described = document["metadata"]
    return {**document, "metadata": {**described, "labels": described["labels"] | PART_OF}}


def owned(document: Document, owner: Owner | None) -> Document:
    """The document with an owner reference, if there is an owner.

    It does not block the owner's deletion. The operator waits for what it made by itself, and where API servers check
    such references it needs no right to the owner's finalizers.
    """
    if owner is None:
        return document
    referring = owned_by(owner, document)
    *others, reference = referring["metadata"]["ownerReferences"]
    references = [*others, {**reference, "blockOwnerDeletion": False}]
    return {**document, "metadata": {**referring["metadata"], "ownerReferences": references}}


# -- permissions -------------------------------------------------------------------------------------------------------


OPENSHIFT_PULL_SECRET: Final = (names.CONFIG_HOME, "pull-secret")
"""The global pull secret of OpenShift."""
USE_CONSTRAINTS: Final = PolicyRule("security.openshift.io", ("securitycontextconstraints",), ("use",))
"""Who changes a pod on OpenShift needs the constraint that its ServiceAccount was admitted with."""


class RolePermissions(NamedTuple):
    """The rules of one role: in the whole cluster, and in single namespaces."""

    cluster: tuple[PolicyRule, ...]
    namespaces: Mapping[str, tuple[PolicyRule, ...]]


def service_account(name: str, namespace: str, annotations: Mapping[str, str] | None = None) -> Document:
    """The ServiceAccount of a role. ``annotations``: by which clouds give its pods an identity."""
    described = metadata(name, name, namespace=namespace)
    if annotations:
        described["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": described}


def roles(account: str, allowed: RolePermissions, home: str) -> list[Document]:
    """ClusterRole, Roles and their bindings of one ServiceAccount in the namespace ``home``."""
    documents: list[Document] = []
    for namespace, rules in (("", allowed.cluster), *allowed.namespaces.items()):
        if rules:
            documents += granted(account, rules, [(home, account)], namespace=namespace, labels=labels(account))
    return documents


def combined(*permissions: RolePermissions) -> RolePermissions:
    """The rules of all of them together."""
    namespaces: dict[str, tuple[PolicyRule, ...]] = {}
    for role in permissions:
        for namespace, rules in role.namespaces.items():
            namespaces[namespace] = union(*namespaces.get(namespace, ()), *rules)
    return RolePermissions(tuple(rule for role in permissions for rule in role.cluster), namespaces)


def global_pull_secret(settings: OperatorSettings, cluster: ClusterCapabilities) -> tuple[str, str] | None:
    """Namespace and name of the global pull secret, if there is one."""
    return settings.global_pull_secret or (OPENSHIFT_PULL_SECRET if cluster.openshift else None)


def reading_images(
    home: str, *, openshift: bool, global_secret: tuple[str, str] | None, pull_secrets: bool = True
) -> RolePermissions:
    """The permissions to read images as the nodes pull them, the same for every role: pull secrets by name, and on
    OpenShift mirrors and CAs.

    ``pull_secrets``: whether those that pods name are read.
    """
    reads = [rule(SECRETS, "get")] if pull_secrets else []
    namespaces: dict[str, tuple[PolicyRule, ...]] = {}
    if openshift:
        reads += _OPENSHIFT_READS
        namespaces[home] = (rule(CONFIGMAPS, "get", "list", "watch", names=[names.TRUSTED_CA]),)
        # The image configuration may name any ConfigMap of this namespace, and RBAC cannot follow references.
        namespaces[names.CONFIG_HOME] = (rule(CONFIGMAPS, "list", "watch"),)
    found = RolePermissions(tuple(reads), namespaces)
    if global_secret is None:
        return found
    place, name = global_secret
    return combined(found, RolePermissions((), {place: (rule(SECRETS, "get", "list", "watch", names=[name]),)}))


_OPENSHIFT_READS: Final = (
    PolicyRule("config.openshift.io", ("imagedigestmirrorsets", "imagetagmirrorsets", "images"), ("list", "watch")),
    PolicyRule("operator.openshift.io", ("imagecontentsourcepolicies",), ("list", "watch")),
)
