"""The webhook configurations of placement, as documents (PL-002, PL-011 to PL-013, PL-031, PL-100).

Pure: documents in, documents out; nothing here talks to an API server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from polyarch.kube.owners import Owner
from polyarch.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from polyarch.operating.labels import Document, owned
from polyarch.operating.settings import DEFAULT_NAMESPACE, OperatorSettings
from polyarch.operating.webhooks import Excluded, client, configuration, injected
from polyarch.placement import names
from polyarch.placement.api import CPPCS, PPCS, ClusterPodPlacementConfig
from polyarch.placement.settings import SettingsTable


def pod_webhook(
    settings: OperatorSettings,
    cppc: ClusterPodPlacementConfig,
    policy: SettingsTable,
    ca_bundle: bytes,
    *,
    owner: Owner | None,
) -> Document:
    """The configuration of the pod webhook while these objects are in force (PL-100).

    ``ca_bundle``: PEM; without effect where others inject it. Who keeps ``caBundle`` itself passes none.
    """
    selector = cppc.spec.namespace_selector
    document = webhook_configuration(
        settings.namespace,
        ca_bundle=ca_bundle if settings.certificates == "self-managed" else b"",
        namespace_selector=msgspec.to_builtins(selector) if selector is not None else None,
        excluded_namespaces=policy.spec.excluded_namespaces,
    )
    return owned(injected(document, settings), owner)


def resource_webhooks(settings: OperatorSettings, ca_bundle: bytes, *, owner: Owner | None) -> tuple[Document, ...]:
    """The configurations of the webhooks for ClusterPodPlacementConfigs and PodPlacementConfigs, which the operator
    itself serves: validation (PL-011, PL-031), the finalizer (PL-013), and values that v1alpha1 lacks (PL-012).

    Requests of the operator pass by them, so that it can always finish an uninstall.
    """
    validating = [
        _resource_webhook(
            settings, ca_bundle, names.CPPC_WEBHOOK, names.CPPC_WEBHOOK_PATH, CPPCS, ("CREATE", "UPDATE", "DELETE")
        ),
        _resource_webhook(settings, ca_bundle, names.PPC_WEBHOOK, names.PPC_WEBHOOK_PATH, PPCS, ("CREATE", "UPDATE")),
    ]
    mutating = [
        _resource_webhook(
            settings,
            ca_bundle,
            names.CPPC_DEFAULTS,
            names.CPPC_DEFAULTS_PATH,
            CPPCS,
            ("CREATE",),
            versions=("v1alpha1", "v1beta1"),
            # Without it the operator adds the finalizer when it first sees the object.
            change={"matchPolicy": "Exact", "failurePolicy": "Ignore", "reinvocationPolicy": "Never"},
        ),
        _resource_webhook(
            settings,
            ca_bundle,
            names.CPPC_KEPT,
            names.CPPC_KEPT_PATH,
            CPPCS,
            ("UPDATE",),
            versions=("v1alpha1",),
            # Exact: the object arrives as its client wrote it, with the annotations that it kept or dropped.
            change={"matchPolicy": "Exact", "reinvocationPolicy": "Never"},
        ),
    ]
    found = []
    for kind, webhooks in ((VALIDATING_WEBHOOKS.kind, validating), (MUTATING_WEBHOOKS.kind, mutating)):
        document = configuration(names.OPERATOR, names.OPERATOR, webhooks, kind=kind)
        found.append(owned(injected(document, settings), owner))
    return tuple(found)


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
    excluded = Excluded.of(excluded_namespaces)
    webhook: Document = {
        "name": names.POD_WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client(namespace, names.WEBHOOK, names.POD_WEBHOOK_PATH, url=url, ca_bundle=ca_bundle),
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": _without(namespace_selector or {}, excluded.requirements),
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
    if excluded.conditions:
        webhook["matchConditions"] = excluded.conditions
    return configuration(names.WEBHOOK_CONFIGURATION, names.WEBHOOK, [webhook], kind=MUTATING_WEBHOOKS.kind)


def _without(namespace_selector: Mapping[str, Any], excluded: Sequence[Document]) -> Document:
    if not excluded:
        return dict(namespace_selector)
    return {**namespace_selector, "matchExpressions": [*namespace_selector.get("matchExpressions", ()), *excluded]}


def _resource_webhook(
    settings: OperatorSettings,
    ca_bundle: bytes,
    name: str,
    path: str,
    resource: Resource,
    operations: Sequence[str],
    *,
    versions: Sequence[str] = ("v1beta1",),
    change: Mapping[str, str] | None = None,
) -> Document:
    own = f"system:serviceaccount:{settings.namespace}:{names.OPERATOR}"
    trusted = ca_bundle if settings.certificates == "self-managed" else b""
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client(settings.namespace, names.OPERATOR, path, ca_bundle=trusted),
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {},
        "objectSelector": {},
        "matchConditions": [
            {"name": "not-the-operator", "expression": f"request.userInfo.username != {json.dumps(own)}"}
        ],
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": list(versions),
                "operations": list(operations),
                "resources": [resource.plural],
                "scope": "Namespaced" if resource.namespaced else "Cluster",
            }
        ],
        **(change or {}),
    }
