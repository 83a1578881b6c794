"""The rights of a role as objects: ServiceAccount, ClusterRole, Roles and their bindings (PL-550).

A role has one ClusterRole, and one Role per namespace in which it may do more, all of the ServiceAccount's name. What
takes to read images is the same for every role that does. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from polyarch.kube.rbac import Rule, granted, rule, union
from polyarch.kube.resources import CONFIGMAPS, SECRETS
from polyarch.operating import names
from polyarch.operating.labels import Document, labels, metadata
from polyarch.operating.settings import Cluster, OperatorSettings

OPENSHIFT_PULL_SECRET: Final = (names.CONFIG_HOME, "pull-secret")
"""The global pull secret of OpenShift (PL-423)."""
USE_CONSTRAINTS: Final = Rule("security.openshift.io", ("securitycontextconstraints",), ("use",))
"""Who changes a pod on OpenShift needs the constraint that its ServiceAccount was admitted with (PL-551)."""


class Rights(NamedTuple):
    """The rules of one role: in the whole cluster, and in single namespaces."""

    cluster: tuple[Rule, ...]
    namespaces: Mapping[str, tuple[Rule, ...]]


def service_account(name: str, namespace: str) -> Document:
    """As whom a role asks the API server."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, name, namespace=namespace)}


def roles(account: str, allowed: Rights, home: str) -> list[Document]:
    """ClusterRole, Roles and their bindings of one ServiceAccount in the namespace ``home``."""
    documents: list[Document] = []
    for namespace, rules in (("", allowed.cluster), *allowed.namespaces.items()):
        if rules:
            documents += granted(account, rules, [(home, account)], namespace=namespace, labels=labels(account))
    return documents


def combined(*several: Rights) -> Rights:
    """The rights of all of them."""
    namespaces: dict[str, tuple[Rule, ...]] = {}
    for each in several:
        for namespace, rules in each.namespaces.items():
            namespaces[namespace] = union(*namespaces.get(namespace, ()), *rules)
    return Rights(tuple(each for rights in several for each in rights.cluster), namespaces)


def global_pull_secret(settings: OperatorSettings, cluster: Cluster) -> tuple[str, str] | None:
    """Namespace and name of the global pull secret, if there is one."""
    return settings.global_pull_secret or (OPENSHIFT_PULL_SECRET if cluster.openshift else None)


def reading_images(
    home: str, *, openshift: bool, global_secret: tuple[str, str] | None, pull_secrets: bool = True
) -> Rights:
    """What it takes to read images as the nodes pull them: pull secrets by name, and on OpenShift mirrors and CAs.

    ``pull_secrets``: whether those that pods name are read (PL-421).
    """
    reads = [rule(SECRETS, "get")] if pull_secrets else []
    namespaces: dict[str, tuple[Rule, ...]] = {}
    if openshift:
        reads += _OPENSHIFT_READS
        namespaces[home] = (rule(CONFIGMAPS, "get", "list", "watch", names=[names.TRUSTED_CA]),)
        # The image configuration may name any ConfigMap of this namespace, and RBAC cannot follow references.
        namespaces[names.CONFIG_HOME] = (rule(CONFIGMAPS, "list", "watch"),)
    found = Rights(tuple(reads), namespaces)
    if global_secret is None:
        return found
    place, name = global_secret
    return combined(found, Rights((), {place: (rule(SECRETS, "get", "list", "watch", names=[name]),)}))


_OPENSHIFT_READS: Final = (
    Rule("config.openshift.io", ("imagedigestmirrorsets", "imagetagmirrorsets", "images"), ("list", "watch")),
    Rule("operator.openshift.io", ("imagecontentsourcepolicies",), ("list", "watch")),
)
