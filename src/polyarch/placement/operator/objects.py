"""The Kubernetes objects that the placement roles need, as documents (PL-002, PL-100, PL-550).

The sandbox installs them from here, and a test compares them with the manifests in ``deploy/``. RBAC rules are the
minimum that works; each optional part is named after the feature that needs it.

Pure: documents in, documents out; nothing here talks to an API server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.kube.objects.rbac import granted
from polyarch.kube.resources import CONFIGMAPS, LEASES, NAMESPACES, NODES, PODS, SECRETS
from polyarch.kube.rights import Rule, rule
from polyarch.kube.runtime import events, lease
from polyarch.kube.serving import health
from polyarch.placement import names
from polyarch.placement.api.resources import CPPCS, POLICIES, PPCS

DEFAULT_NAMESPACE: Final = "polyarch-system"
CONFIG_HOME: Final = "openshift-config"
"""Namespace of the objects that OpenShift's cluster configuration refers to."""
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server puts on each Namespace."""
TRUSTED_CA: Final = "multiarch-tuning-operator-trusted-ca"
"""ConfigMap with additional registry CAs on OpenShift (PL-424)."""

Document = dict[str, Any]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Features that need additional RBAC rules."""

    namespace: str = DEFAULT_NAMESPACE
    node_aware: bool = False
    """A PlacementPolicy sets ``nodeAware`` to ``report`` or ``narrow``."""
    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name of the global pull secret."""
    openshift: bool = False
    """Read the cluster's image mirrors and CAs, and use security context constraints (PL-551)."""


def namespace(name: str = DEFAULT_NAMESPACE) -> Document:
    """The operator's namespace, with pod security level ``restricted`` (PL-552)."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def service_accounts(namespace: str = DEFAULT_NAMESPACE) -> list[Document]:
    """One ServiceAccount per role."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(role, role, namespace)}
        for role in (names.WEBHOOK, names.CONTROLLER)
    ]


def rbac(parts: Parts = Parts()) -> list[Document]:  # noqa: B008 - a frozen value
    """Roles and bindings of webhook and controller (PL-550), for exactly these features."""
    home = parts.namespace
    documents: list[Document] = []
    watched_lease = rule(LEASES, "get", "list", "watch", names=[names.CONTROLLER_LEASE])
    for role, cluster_rules, own_rules in (
        (names.WEBHOOK, [*_READS, *health.RIGHTS], [watched_lease]),
        (
            names.CONTROLLER,
            [*_READS, rule(PODS, "get", "list", "watch", "patch"), *events.RIGHTS, *health.RIGHTS],
            lease.rights(names.CONTROLLER_LEASE),
        ),
    ):
        documents += _granted(role, cluster_rules, [role], home)
        documents += _granted(role, own_rules, [role], home, home)
    both = [names.WEBHOOK, names.CONTROLLER]
    if parts.node_aware:
        documents += _granted("pod-placement-nodes", [rule(NODES, "list", "watch")], both, home)
    if parts.openshift:
        documents += _granted("pod-placement-registries", _OPENSHIFT_READS, both, home)
        documents += _granted("pod-placement-constraints", [_USE_CONSTRAINTS], [names.CONTROLLER], home)
        authority = rule(CONFIGMAPS, "get", "list", "watch", names=[TRUSTED_CA])
        documents += _granted("pod-placement-registries", [authority], both, home, home)
        # The image configuration may name any ConfigMap of this namespace, and RBAC cannot follow references.
        documents += _granted("pod-placement-registries", [rule(CONFIGMAPS, "list", "watch")], both, home, CONFIG_HOME)
    if parts.global_pull_secret is not None:
        place, name = parts.global_pull_secret
        documents += _granted(
            "pod-placement-pull-secret", [rule(SECRETS, "get", "list", "watch", names=[name])], both, home, place
        )
    return documents


def webhook_configuration(
    namespace: str = DEFAULT_NAMESPACE,
    *,
    url: str = "",
    ca_bundle: bytes = b"",
    namespace_selector: Mapping[str, Any] | None = None,
    excluded_namespaces: Sequence[str] = (),
) -> Document:
    """The MutatingWebhookConfiguration of the pod webhook (PL-100). ``url``: its address outside the cluster.

    ``namespace_selector`` is copied from the ClusterPodPlacementConfig, ``excluded_namespaces`` come from the policy.
    Names are added to the selector, which costs the API server nothing. Prefixes need CEL match conditions, which cost
    it 0.7 ms for every pod of the cluster.
    """
    exact = sorted({name for name in excluded_namespaces if not name.endswith("*")})
    prefixes = sorted({name[:-1] for name in excluded_namespaces if name.endswith("*")})
    client: Document = (
        {"url": url.rstrip("/") + names.POD_WEBHOOK_PATH}
        if url
        else {"service": {"name": names.WEBHOOK, "namespace": namespace, "path": names.POD_WEBHOOK_PATH, "port": 443}}
    )
    if ca_bundle:
        client["caBundle"] = _base64(ca_bundle)
    webhook: Document = {
        "name": names.POD_WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": without(namespace_selector or {}, exact),
        "objectSelector": {},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
    }
    if prefixes:
        webhook["matchConditions"] = [{"name": "excluded-namespaces", "expression": match_expression(prefixes)}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": _metadata(names.WEBHOOK_CONFIGURATION, names.WEBHOOK),
        "webhooks": [webhook],
    }


def match_expression(prefixes: Sequence[str]) -> str:
    """CEL expression: true if the namespace starts with none of these prefixes (PL-201 row 3)."""
    parts = [f"request.namespace.startsWith({json.dumps(prefix)})" for prefix in prefixes]
    return f"!({' || '.join(parts)})"


def without(namespace_selector: Mapping[str, Any], excluded: Sequence[str]) -> Document:
    """The selector, with these namespaces excluded as well."""
    if not excluded:
        return dict(namespace_selector)
    requirement = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(excluded)}
    return {**namespace_selector, "matchExpressions": [*namespace_selector.get("matchExpressions", ()), requirement]}


_READS: Final = (
    rule((CPPCS, PPCS), "get", "list", "watch"),
    rule(POLICIES, "get", "list", "watch"),
    rule(NAMESPACES, "get", "list", "watch"),  # only while a PlacementPolicy has overrides
    rule(SECRETS, "get"),
)
_OPENSHIFT_READS: Final = (
    Rule("config.openshift.io", ("imagedigestmirrorsets", "imagetagmirrorsets", "images"), ("list", "watch")),
    Rule("operator.openshift.io", ("imagecontentsourcepolicies",), ("list", "watch")),
)
_USE_CONSTRAINTS: Final = Rule("security.openshift.io", ("securitycontextconstraints",), ("use",))


def _granted(
    name: str, rules: Sequence[Rule], accounts: Sequence[str], home: str, namespace: str = ""
) -> list[Document]:
    """A Role or ClusterRole, and its binding of the same name."""
    labels = _labels(accounts[0] if len(accounts) == 1 else "")
    return granted(name, rules, [(home, account) for account in accounts], namespace=namespace, labels=labels)


def _metadata(name: str, controller: str, namespace: str = "") -> Document:
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": _labels(controller)}


def _labels(controller: str) -> dict[str, str]:
    return {names.OPERAND_LABEL: names.OPERAND} | ({names.CONTROLLER_LABEL: controller} if controller else {})


def _base64(data: bytes) -> str:
    return str(msgspec.to_builtins(data))
