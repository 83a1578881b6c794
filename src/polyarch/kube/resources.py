"""The resources of an API server as values: the path of an object, not its contents; and references to objects.

A :class:`Resource` is all that the client has to know of a kind. Features declare theirs next to their types; those of
Kubernetes itself are declared here. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from polyarch.objects import ObjectKey


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A kind in one version, as the API server serves it. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of the objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return self.kind + "List"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path, quoted. Without a namespace, a namespaced resource means all namespaces.

        Raises ValueError for mistakes of the caller: a namespace for a cluster-scoped kind, a name without its
        namespace, a subresource without a name.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self} is cluster-scoped; it was asked for in namespace {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self} is namespaced; {name!r} was asked for without its namespace")
        if subresource and not name:
            raise ValueError(f"subresource {subresource!r} of {self} needs the name of an object")
        parts = ["/apis/" + self.group if self.group else "/api", self.version]
        if namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        """The name in RBAC and kubectl: ``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_PLAIN: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*", re.ASCII)


def _segment(text: str) -> str:
    """Quoted as one path segment: RBAC names contain colons, and no name may escape its segment."""
    if _PLAIN.fullmatch(text):
        return text
    if text in (".", "..") or "/" in text:
        raise ValueError(f"{text!r} cannot be the name of an object")
    return quote(text, safe=":")


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES: Final = Resource("", "v1", "services", "Service")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PERSISTENT_VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
DAEMONSETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
STATEFULSETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
REPLICASETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
CRONJOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
POD_DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
VALIDATING_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

KNOWN: Final[tuple[Resource, ...]] = (
    PODS,
    NODES,
    NAMESPACES,
    SECRETS,
    CONFIGMAPS,
    SERVICES,
    ENDPOINT_SLICES,
    SERVICE_ACCOUNTS,
    PERSISTENT_VOLUME_CLAIMS,
    EVENTS,
    LEASES,
    DEPLOYMENTS,
    DAEMONSETS,
    STATEFULSETS,
    REPLICASETS,
    JOBS,
    CRONJOBS,
    POD_DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    CRDS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    TOKEN_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
)

_BY_KIND: Final = {(resource.api_version, resource.kind): resource for resource in KNOWN}


def by_kind(api_version: str, kind: str) -> Resource:
    """The built-in resource of a document's ``apiVersion`` and ``kind``.

    Raises LookupError for others: declare a custom resource, or find it with ``Client.discover``.
    """
    try:
        return _BY_KIND[api_version, kind]
    except KeyError:
        raise LookupError(
            f"no known resource serves apiVersion {api_version!r}, kind {kind!r}; ask the API server (Client.discover)"
        ) from None


# -- references, and the order in which to create and delete objects ---------------------------------------------------


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


class ObjectRef(NamedTuple):
    """An object's kind, namespace and name."""

    resource: Resource
    key: ObjectKey

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


def in_order(refs: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Sorted with dependencies first; the sort is stable."""
    return sorted(refs, key=rank)


def rank(ref: ObjectRef) -> int:
    """The position of its kind in the order; objects of equal rank do not depend on each other."""
    kind = ref.resource.kind
    if kind in FIRST:
        return FIRST.index(kind)
    return len(FIRST) + (LAST.index(kind) + 1 if kind in LAST else 0)


def few(names: Iterable[object], most: int = 5) -> str:
    """The first of them, and how many more there are: for messages about many objects."""
    listed = [str(each) for each in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
