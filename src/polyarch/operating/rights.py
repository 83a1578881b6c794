"""The rights of a role as objects: ServiceAccount, ClusterRole, Roles and their bindings (PL-550).

A role has one ClusterRole, and one Role per namespace in which it may do more, all of the ServiceAccount's name. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from polyarch.kube.objects.rbac import granted
from polyarch.kube.rights import Rule
from polyarch.operating.labels import Document, labels, metadata


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
