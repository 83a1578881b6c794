"""RBAC Roles and bindings as documents, from rules as data (KR-054). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch.kube.resources import CLUSTER_ROLES, Resource
from polyarch.kube.rights import Rule, union

Document = dict[str, Any]
GROUP: Final = CLUSTER_ROLES.group


def role(name: str, rules: Iterable[Rule], *, namespace: str = "", labels: Mapping[str, str] | None = None) -> Document:
    """A Role, or a ClusterRole if no namespace is given."""
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": _kind(namespace),
        "metadata": _metadata(name, namespace, labels),
        "rules": [each.document() for each in rules],
    }


def binding(
    name: str,
    accounts: Sequence[tuple[str, str]],
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
) -> Document:
    """Binds the role of the same name to ServiceAccounts, given as (namespace, name)."""
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": f"{_kind(namespace)}Binding",
        "metadata": _metadata(name, namespace, labels),
        "roleRef": {"apiGroup": GROUP, "kind": _kind(namespace), "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home} for home, account in accounts],
    }


def granted(
    name: str,
    rules: Iterable[Rule],
    accounts: Sequence[tuple[str, str]],
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
) -> list[Document]:
    """A Role (or ClusterRole) and the binding of the same name."""
    return [
        role(name, rules, namespace=namespace, labels=labels),
        binding(name, accounts, namespace=namespace, labels=labels),
    ]


def granting(documents: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The union of the rules of these roles: to create them, an operator without ``escalate`` must hold them."""
    return union(
        *(
            Rule(group, tuple(several), tuple(each["verbs"]), tuple(each.get("resourceNames", ())))
            for document in documents
            if document["kind"] in ("Role", "ClusterRole")
            for each in document["rules"]
            for several in (each.get("resources") or each["nonResourceURLs"],)
            for group in each.get("apiGroups", ("",))
        )
    )


def managing(resource: Resource, names: Sequence[str]) -> tuple[Rule, ...]:
    """The rules an apply set needs for its objects of one kind, by name except for verbs that RBAC cannot restrict."""
    plural = (resource.plural,)
    return (
        Rule(resource.group, plural, ("get", "patch", "delete"), tuple(names)),
        Rule(resource.group, plural, ("list", "watch", "create")),
    )


def _kind(namespace: str) -> str:
    return "Role" if namespace else "ClusterRole"


def _metadata(name: str, namespace: str, labels: Mapping[str, str] | None) -> Document:
    metadata: Document = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return metadata
