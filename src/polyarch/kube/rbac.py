"""RBAC: rules as data, next to the code that needs them, and the Roles and bindings made of them.

A :class:`PolicyRule` has verbs, resources and names. A process needs the :func:`union` of the rules of its parts.
Who grants rights to others must have them too, so an operator's own rules are computed from those it grants
(:func:`granting`). Tests compare rules with the requests that were made (:func:`unused`). Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.resources import CLUSTER_ROLES, Resource


class PolicyRule(msgspec.Struct, frozen=True, gc=False):
    """One rule of a Role. ``resources`` are plural names, or subresources (``pods/eviction``); no names means all.

    Or they are paths, which begin with ``/``: what a server other than the API server lets those read whom RBAC allows.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """A PolicyRule of rbac.authorization.k8s.io/v1."""
        if _are_paths(self.resources):
            return {"nonResourceURLs": list(self.resources), "verbs": list(self.verbs)}
        document: dict[str, Any] = {"apiGroups": [self.group], "resources": list(self.resources)}
        if self.names:
            document["resourceNames"] = list(self.names)
        return document | {"verbs": list(self.verbs)}


class Permission(NamedTuple):
    """One request as RBAC sees it, or one permission of a rule; an empty ``name`` means any name, or none."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}{f' {self.name}' if self.name else ''}"


def rule(
    resources: Resource | Sequence[Resource], *verbs: str, subresource: str = "", names: Sequence[str] = ()
) -> PolicyRule:
    """A rule for resources of one group. Raises ValueError for ``create`` with names, which RBAC cannot restrict."""
    several = [resources] if isinstance(resources, Resource) else list(resources)
    groups = {resource.group for resource in several}
    if len(groups) != 1:
        raise ValueError(f"a rule is about one API group, not about {', '.join(sorted(groups)) or 'none'}")
    if names and not subresource and {"create", "deletecollection"} & set(verbs):
        raise ValueError(
            f"create and deletecollection cannot be narrowed to {', '.join(names)}: give them a rule apart"
        )
    suffix = f"/{subresource}" if subresource else ""
    return PolicyRule(groups.pop(), tuple(f"{each.plural}{suffix}" for each in several), tuple(verbs), tuple(names))


def path_rule(path: str, *verbs: str) -> PolicyRule:
    """A rule for a path (``nonResourceURLs``); only a ClusterRole can have it."""
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no path: it has to begin with /")
    return PolicyRule("", (path,), tuple(verbs))


def _are_paths(resources: Sequence[str]) -> bool:
    return bool(resources) and resources[0].startswith("/")


def grants(rules: Iterable[PolicyRule]) -> list[Permission]:
    """All permissions in these rules, without duplicates, in order of first appearance."""
    accesses = (
        Permission(verb, each.group, resource, name)
        for each in rules
        for resource in each.resources
        for name in each.names or ("",)
        for verb in each.verbs
    )
    return list(dict.fromkeys(accesses))


def union(*rules: PolicyRule) -> tuple[PolicyRule, ...]:
    """The same permissions in fewer rules: what is allowed for all names is not repeated for single ones."""
    allowed = grants(rules)
    for_all = {access for access in allowed if not access.name}
    verbs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for access in allowed:
        if not access.name or access._replace(name="") not in for_all:
            verbs[access.group, access.resource, access.name].append(access.verb)
    names: dict[tuple[str, str, tuple[str, ...], bool], list[str]] = defaultdict(list)
    for (group, resource, name), said in verbs.items():
        names[group, resource, tuple(said), bool(name)].append(name)
    resources: dict[tuple[PolicyRule, bool], list[str]] = defaultdict(list)
    for (group, resource, each, is_named), named in names.items():
        alike = PolicyRule(group, (), each, tuple(named) if is_named else ())
        resources[alike, _are_paths([resource])].append(resource)
    return tuple(msgspec.structs.replace(rule, resources=tuple(several)) for (rule, _), several in resources.items())


def missing(rules: Iterable[PolicyRule], asked: Iterable[Permission]) -> list[Permission]:
    """Requests that were made and are not allowed."""
    allowed = set(grants(rules))
    return sorted({each for each in asked if each not in allowed and each._replace(name="") not in allowed})


def unused(rules: Iterable[PolicyRule], asked: Iterable[Permission]) -> list[Permission]:
    """Permissions that no request used; they should be removed. Paths are asked of others than the API server."""
    seen = set(asked)
    seen |= {each._replace(name="") for each in seen}
    return sorted(each for each in set(grants(rules)) - seen if not _are_paths([each.resource]))


# -- Roles and bindings, as documents ----------------------------------------------------------------------------------


Document = dict[str, Any]
GROUP: Final = CLUSTER_ROLES.group


def role(
    name: str, rules: Iterable[PolicyRule], *, namespace: str = "", labels: Mapping[str, str] | None = None
) -> Document:
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
    rules: Iterable[PolicyRule],
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


def granting(documents: Iterable[Mapping[str, Any]]) -> tuple[PolicyRule, ...]:
    """The union of the rules of these roles: to create them, an operator without ``escalate`` must hold them."""
    return union(
        *(
            PolicyRule(group, tuple(several), tuple(each["verbs"]), tuple(each.get("resourceNames", ())))
            for document in documents
            if document["kind"] in ("Role", "ClusterRole")
            for each in document["rules"]
            for several in (each.get("resources") or each["nonResourceURLs"],)
            for group in each.get("apiGroups", ("",))
        )
    )


def managing(resource: Resource, names: Sequence[str]) -> tuple[PolicyRule, ...]:
    """The rules an apply set needs for its objects of one kind, by name except for verbs that RBAC cannot restrict."""
    plural = (resource.plural,)
    return (
        PolicyRule(resource.group, plural, ("get", "patch", "delete"), tuple(names)),
        PolicyRule(resource.group, plural, ("list", "watch", "create")),
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
