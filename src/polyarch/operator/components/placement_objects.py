"""What the operator makes for placement while the ClusterPodPlacementConfig exists. Pure.

One list of objects drives creation and deletion, so that what can be made cannot be forgotten. The namespace and the
webhook configurations are apart: the namespace is labelled but not ours, and the pod webhook's configuration comes and
goes with the Deployments.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch import names as shared_names
from polyarch.images import node_templates
from polyarch.kube import events, lease
from polyarch.kube.owners import Owner
from polyarch.kube.rbac import PolicyRule, rule
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RUNTIME_CLASSES,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.kube.webhook_probe import probe_entry
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator import operands
from polyarch.operator.components import alerts
from polyarch.operator.monitoring import scraping_objects
from polyarch.operator.operands import (
    NamespaceExclusions,
    OperandDeployment,
    client_config,
    configuration_document,
    injected,
)
from polyarch.operator.owned_objects import (
    USE_CONSTRAINTS,
    Document,
    RolePermissions,
    combined,
    finished,
    global_pull_secret,
    labels,
    metadata,
    owned,
    reading_images,
    roles,
    service_account,
)
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS, ClusterPodPlacementConfig
from polyarch.placement.exec_monitor_handler import HANDLER_NAMESPACE_RULES, HANDLER_RULES, NODE_AGENT_RULES
from polyarch.placement.settings import SecretAccess, SettingsTable, WarmUpKind

# -- operands ----------------------------------------------------------------------------------------------------------


def placement_operands(
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    configuration: ClusterPodPlacementConfig,
    policy: SettingsTable,
    *,
    owner: Owner | None,
    ca_bundle: bytes = b"",
    registries: str = "",
) -> tuple[Document, ...]:
    """The objects for this configuration and policy, in the order of applying.

    ``owner``: the ClusterPodPlacementConfig. Only what may go as soon as it is deleted refers to it: the controller has
    to remove the gates first. ``ca_bundle``: PEM of our CA, for Prometheus. ``registries``: a digest of the
    registries' ConfigMap, so that a change of it replaces the pods that read it.
    """
    features = OptionalFeatures.of(settings, cluster, policy)
    roles = (webhook_deployment(settings), controller_deployment(settings))
    documents = [
        *service_accounts(settings),
        *([operands.trusted_ca(names.CONTROLLER, settings.namespace)] if cluster.openshift else ()),
        *([readings_secret(settings.namespace)] if features.share_readings else ()),
        *([report_config_map(settings.namespace)] if features.reports else ()),
        *rbac(features),
        *(pod_policy(settings) if settings.admission_policies else ()),
        *(
            document
            for role in roles
            for document in operands.operand_objects(role, settings, cluster, registries=registries)
        ),
    ]
    scraped = [role.name for role in roles]
    monitored = is_monitored(configuration)
    if monitored:
        verbose = configuration.spec.log_verbosity in ("Debug", "Trace", "TraceAll")
        documents += monitor_objects(settings, cluster, verbose=verbose)
        scraped.append(names.ENOEXEC_HANDLER)
    if cluster.monitoring:
        groups = (alerts.PLACEMENT, *((alerts.MONITOR_DOWN, alerts.MONITOR_FOUND) if monitored else ()))
        documents += [
            *scraping_objects(scraped, settings, ca_bundle),
            *(group.document(settings.namespace) for group in groups),
        ]
    return tuple(_finished(document, owner) for document in documents)


def is_monitored(configuration: ClusterPodPlacementConfig) -> bool:
    """Whether the exec-format-error monitor is enabled."""
    plugins = configuration.spec.plugins
    monitor = plugins.exec_format_error_monitor if plugins is not None else None
    return monitor is not None and monitor.enabled


def finalizers(configuration: ClusterPodPlacementConfig, *, configs: int) -> tuple[str, ...]:
    """The finalizers of a ClusterPodPlacementConfig that is not being deleted. ``configs``: PodPlacementConfigs of all
    namespaces."""
    return (
        names.POD_PLACEMENT_FINALIZER,
        *((names.NO_POD_PLACEMENT_CONFIG_FINALIZER,) if configs else ()),
        *((names.ENOEXEC_EVENTS_FINALIZER,) if is_monitored(configuration) else ()),
    )


def namespace_document(name: str = DEFAULT_NAMESPACE, *, openshift: bool = False, privileged: bool = False) -> Document:
    """The labels of the operator's namespace. The monitor's node side, the exporters of NUMA and credential
    plugins of nodes need ``privileged``.

    OpenShift reads from an annotation that management workloads are allowed; the label is the documented contract.
    """
    level = "privileged" if privileged else "restricted"
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    described: Document = {"name": name, "labels": labels}
    if openshift:
        described |= {"labels": labels | _MANAGEMENT, "annotations": dict(_MANAGEMENT)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": described}


def readings_secret(namespace: str) -> Document:
    """The Secret that the controller fills with what it knows of images."""
    described = metadata(names.READINGS_SECRET, names.CONTROLLER, namespace=namespace)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": described, "type": names.READINGS_TYPE}


def report_config_map(namespace: str) -> Document:
    """The ConfigMap that the controller fills with what could run where."""
    described = metadata(names.REPORT_CONFIGMAP, names.CONTROLLER, namespace=namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": described}


_MANAGEMENT: Final = {"workload.openshift.io/allowed": "management"}
_COLLECTED: Final = frozenset({names.WEBHOOK, names.ENOEXEC_DAEMON})
"""Whose objects Kubernetes may collect as soon as the ClusterPodPlacementConfig is deleted."""


def _finished(document: Document, owner: Owner | None) -> Document:
    labelled = finished(document)
    described = labelled["metadata"]
    if (document["kind"], described["name"]) == ("Deployment", names.CONTROLLER):
        labelled["metadata"]["finalizers"] = [names.POD_PLACEMENT_FINALIZER]
    return owned(labelled, owner) if described["labels"][names.CONTROLLER_LABEL] in _COLLECTED else labelled


def webhook_deployment(settings: OperatorSettings) -> OperandDeployment:
    """The pod webhook."""
    return OperandDeployment(
        name=names.WEBHOOK,
        container="web-hook",
        role="placement-webhook",
        replicas=settings.webhook_replicas,
        cpu="50m",
        memory="96Mi",
        memory_limit="256Mi",
        webhook=True,
        asks_registries=True,
        spare="one",
    )


def controller_deployment(settings: OperatorSettings) -> OperandDeployment:
    """The pod controller."""
    return OperandDeployment(
        name=names.CONTROLLER,
        container="controller",
        role="placement-controller",
        replicas=settings.controller_replicas,
        cpu="100m",
        memory="128Mi",
        memory_limit="512Mi",
        asks_registries=True,
    )


# -- permissions -------------------------------------------------------------------------------------------------------


# The rules are the smallest that work and follow the policy: a rule is granted only while a setting needs it.


class OptionalFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Features that need additional RBAC rules."""

    namespace: str = DEFAULT_NAMESPACE
    asks_for_nodes: bool = False
    """Settings ask for the platforms of nodes, as ``osConstraint: auto`` and ``nodeAware`` do."""
    sweeps: bool = False
    """Some ``sweep.action`` is not ``off``: it is watched whether the webhook is there, and pods that it missed are
    compared with the architectures of nodes."""
    evicts: bool = False
    """Some ``sweep.action`` is ``evict``."""
    warm_up: tuple[WarmUpKind, ...] = ()
    """Kinds whose templates are read, if warm-up is enabled."""
    share_readings: bool = False
    """``images.shareReadings``."""
    reports: bool = False
    """``report.enabled``: the controller lists what a report is made of."""
    secret_access: SecretAccess = "byName"
    """``images.secretAccess``: ``none`` removes the permission to read the pods' pull secrets."""
    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name of the global pull secret."""
    openshift: bool = False
    """Read the cluster's image mirrors and CAs, and use security context constraints."""

    @classmethod
    def of(cls, settings: OperatorSettings, cluster: ClusterCapabilities, policy: SettingsTable) -> "OptionalFeatures":
        """What these settings need while this policy is in force."""
        spec = policy.spec
        everywhere = (spec, *(overlaid for _, _, overlaid in policy.overrides))
        sweeps = any(namespace_spec.sweep_action != "off" for namespace_spec in everywhere)
        evicts = any(namespace_spec.sweep_action == "evict" for namespace_spec in everywhere)
        return cls(
            namespace=settings.namespace,
            asks_for_nodes=policy.asks_for_nodes,
            sweeps=sweeps,
            evicts=evicts,
            warm_up=spec.warm_up_kinds if spec.warm_up_enabled else (),
            share_readings=spec.images_share_readings,
            reports=spec.report_enabled,
            secret_access=spec.images_secret_access if settings.secret_access == "byName" else "none",
            global_pull_secret=global_pull_secret(settings, cluster),
            openshift=cluster.openshift,
        )


def role_permissions(features: OptionalFeatures) -> dict[str, RolePermissions]:
    """The rules of webhook and controller, by the name of their ServiceAccount."""
    watched_lease = rule(LEASES, "get", "list", "watch", names=[names.CONTROLLER_LEASE])
    readings = rule(SECRETS, "get", "list", "watch", names=[names.READINGS_SECRET])
    own_readings = rule(SECRETS, "get", "list", "watch", "patch", names=[names.READINGS_SECRET])
    shared = features.share_readings
    return {
        names.WEBHOOK: _role_permissions(
            features,
            cluster=SCRAPER_RIGHTS,
            own=(watched_lease, *((readings,) if shared else ())),
        ),
        names.CONTROLLER: _role_permissions(
            features,
            cluster=(
                rule(PODS, "get", "list", "watch", "patch"),
                *events.RIGHTS,
                *SCRAPER_RIGHTS,
                *((_SEES_REGISTRATION,) if features.sweeps else ()),
                *((rule(NODES, "list"),) if features.sweeps and not features.asks_for_nodes else ()),
                *((rule(PODS, "create", subresource="eviction"),) if features.evicts else ()),
                *(rule(_TEMPLATES[kind], "list", "watch") for kind in features.warm_up),
                *(_REPORTED if features.reports else ()),
                *((USE_CONSTRAINTS,) if features.openshift else ()),
            ),
            own=(
                *lease.rights(names.CONTROLLER_LEASE),
                *((own_readings,) if shared else ()),
                *((_KEEPS_REPORT,) if features.reports else ()),
                *((_SEES_WEBHOOK,) if features.sweeps else ()),
            ),
        ),
    }


def pod_policy(settings: OperatorSettings) -> list[Document]:
    """What controller and monitor handler change of pods. A process that places pods adds tolerations, too."""
    return operands.pod_policy(
        metadata(names.POD_POLICY, names.CONTROLLER),
        (settings.namespace, names.CONTROLLER, names.ENOEXEC_HANDLER),
        gates=(names.GATE, shared_names.TOLERATIONS_GATE),
    )


def service_accounts(settings: OperatorSettings) -> list[Document]:
    """One ServiceAccount per role."""
    return [
        service_account(each.name, settings.namespace, settings.account_annotations(each.role))
        for each in (webhook_deployment(settings), controller_deployment(settings))
    ]


def rbac(features: OptionalFeatures = OptionalFeatures()) -> list[Document]:  # noqa: B008 - a frozen value
    """Roles and bindings of webhook and controller, for exactly these features."""
    return [
        document
        for account, allowed in role_permissions(features).items()
        for document in roles(account, allowed, features.namespace)
    ]


def _role_permissions(
    features: OptionalFeatures, *, cluster: Sequence[PolicyRule], own: Sequence[PolicyRule]
) -> RolePermissions:
    """The rules of one role, with the reads that webhook and controller share."""
    reads = [*_READS, *((rule(NODES, "list", "watch"), *_NODE_TEMPLATES) if features.asks_for_nodes else ())]
    images = reading_images(
        features.namespace,
        openshift=features.openshift,
        global_secret=features.global_pull_secret,
        pull_secrets=features.secret_access == "byName",
    )
    return combined(RolePermissions((*reads, *cluster), {features.namespace: tuple(own)}), images)


_READS: Final = (
    rule((CPPCS, PPCS), "get", "list", "watch"),
    rule(POLICIES, "get", "list", "watch"),
    PolicyRule(POLICIES.group, ("architecturetaints",), ("list", "watch")),  # pods that both see get tolerations, too
    rule(NAMESPACES, "get", "list", "watch"),  # only while a PlacementPolicy has overrides
)
_NODE_TEMPLATES: Final = tuple(PolicyRule(group, kinds, ("list",)) for group, kinds in node_templates.RESOURCES.items())
"""Templates of autoscalers and clouds: which platforms of nodes may come."""
_SEES_REGISTRATION: Final = rule(MUTATING_WEBHOOKS, "get", "list", "watch", names=[names.WEBHOOK_CONFIGURATION])
_SEES_WEBHOOK: Final = rule(DEPLOYMENTS, "get", "list", "watch", names=[names.WEBHOOK])
_TEMPLATES: Final = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFULSETS,
    "DaemonSet": DAEMONSETS,
    "CronJob": CRONJOBS,
}
"""Workloads by the words of ``warmUp.kinds``."""
_REPORTED: Final = (
    rule((NODES, PODS, NAMESPACES), "list"),
    rule((DEPLOYMENTS, STATEFULSETS, DAEMONSETS, REPLICASETS), "list"),
    rule((JOBS, CRONJOBS), "list"),
    rule(RUNTIME_CLASSES, "list"),
    rule((CPPCS, ENOEXECEVENTS), "list"),
    rule(POLICIES, "list"),
    PolicyRule(POLICIES.group, ("architecturetaints",), ("list",)),
)
"""What the report is made of. It says nothing of NUMA and builds, whose permissions are those of components."""
_KEEPS_REPORT: Final = rule(CONFIGMAPS, "get", "patch", names=[names.REPORT_CONFIGMAP])


# -- exec-format-error monitor -----------------------------------------------------------------------------------------


# The operator makes these objects while the monitor is enabled: the node agent's DaemonSet and the handler's
# Deployment. What can be made is in one list, so that disabling the monitor forgets nothing; ServiceMonitor and alerts
# are apart.

TRACEFS: Final = "/sys/kernel/tracing"
POD_LOGS: Final = "/var/log/pods"
NODE_AGENT: Final = "node-side"
"""Name of the node agent's container."""

_PRIVILEGED: Final = PolicyRule("security.openshift.io", ("securitycontextconstraints",), ("use",), ("privileged",))


def monitor_handler(settings: OperatorSettings, *, verbose: bool = False) -> OperandDeployment:
    """The Deployment of the handler."""
    return OperandDeployment(
        name=names.ENOEXEC_HANDLER,
        container="handler",
        role="exec-monitor",
        replicas=settings.handler_replicas,
        cpu="25m",
        memory="64Mi",
        memory_limit="256Mi",
        arguments=("--side=handler", *_log_level(verbose)),
    )


def monitor_objects(
    settings: OperatorSettings, cluster: ClusterCapabilities, *, verbose: bool = False
) -> list[Document]:
    """All objects of the monitor, in the order of applying; the finalizer on the handler's Deployment included.

    ``verbose``: its roles log details. They may not read the ClusterPodPlacementConfig, so they get a flag.
    """
    home = settings.namespace
    handling = operands.operand_objects(monitor_handler(settings, verbose=verbose), settings, cluster)
    for document in handling:
        if document["kind"] == "Deployment":
            document["metadata"]["finalizers"] = [names.ENOEXEC_EVENTS_FINALIZER]
    return [
        *(service_account(name, home) for name in (names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON)),
        *(
            document
            for account, allowed in monitor_permissions(settings, cluster).items()
            for document in roles(account, allowed, home)
        ),
        *handling,
        *node_policy(settings, cluster),
        daemon_set(settings, cluster, verbose=verbose),
    ]


def monitor_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> dict[str, RolePermissions]:
    """The rules of handler and node agent, by the name of their ServiceAccount."""
    home = settings.namespace
    return {
        names.ENOEXEC_HANDLER: RolePermissions(
            cluster=(*HANDLER_RULES, *events.RIGHTS, *SCRAPER_RIGHTS),
            namespaces={home: (*HANDLER_NAMESPACE_RULES, *lease.rights(names.ENOEXEC_LEASE))},
        ),
        names.ENOEXEC_DAEMON: RolePermissions(
            cluster=(_PRIVILEGED,) if cluster.openshift else (),
            namespaces={home: NODE_AGENT_RULES},
        ),
    }


def node_policy(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    """The ValidatingAdmissionPolicy and its binding: a node agent reports what happens on its own node alone."""
    strict = cluster.version >= operands.TOKENS_NAME_NODES
    own = operands.is_in_token(operands.NODE_IN_TOKEN, "{0}.status.nodeName", strict=strict)
    told = "has({0}.status) && has({0}.status.nodeName)"
    now, before = (f"!({told}) || {own}".format(each) for each in ("object", "oldObject"))
    return operands.policy_documents(
        metadata(names.ENOEXEC_POLICY, names.ENOEXEC_DAEMON),
        [
            operands.resource_rule(ENOEXECEVENTS, "CREATE", "UPDATE", "DELETE", versions="*"),
            operands.resource_rule(ENOEXECEVENTS, "UPDATE", subresource="status", versions="*"),
        ],
        {
            "the monitor reports programs of its own node alone": f'request.operation == "DELETE" || {now}',
            "the monitor writes its own reports alone": f'request.operation == "CREATE" || {before}',
        },
        account=(settings.namespace, names.ENOEXEC_DAEMON),
        condition="monitor",
    )


def daemon_set(settings: OperatorSettings, cluster: ClusterCapabilities, *, verbose: bool = False) -> Document:
    """The node agent on every Linux node that our image runs on, whatever its taints."""
    name = names.ENOEXEC_DAEMON
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, name, namespace=settings.namespace),
        "spec": {
            "selector": {"matchLabels": {names.CONTROLLER_LABEL: name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": labels(name)}
                | ({"annotations": {"openshift.io/required-scc": "privileged"}} if cluster.openshift else {}),
                "spec": _pod(settings, cluster.image_architectures, verbose=verbose),
            },
        },
    }


def _pod(settings: OperatorSettings, architectures: Sequence[str], *, verbose: bool) -> Document:
    """The kernel's pids are those of the host, hence ``hostPID``. Not all of :func:`operands.scheduling` applies: a
    node selector would leave nodes unwatched."""
    terms = [{"matchExpressions": operands.runnable(architectures)}]
    scheduling = operands.scheduling(settings)
    chosen: Document = {key: scheduling[key] for key in ("priorityClassName", "imagePullSecrets") if key in scheduling}
    return {
        "serviceAccountName": names.ENOEXEC_DAEMON,
        "enableServiceLinks": False,
        "hostPID": True,
        "terminationGracePeriodSeconds": 30,
        **chosen,
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "containers": [_container(settings, verbose=verbose)],
        "volumes": [
            {"name": "tracefs", "hostPath": {"path": TRACEFS}},
            {"name": "pod-logs", "hostPath": {"path": POD_LOGS}},
        ],
    }


def _log_level(verbose: bool) -> tuple[str, ...]:
    return ("--verbose",) if verbose else ()


def _container(settings: OperatorSettings, *, verbose: bool) -> Document:
    """Uid 0 owns tracefs; no capability is needed.

    It has no certificate: the Secret has the webhook's key, which must not lie on every node. So its metrics, counts
    alone, are served without TLS. The CPU limit is for a pod that fails to execute something a million times.
    """
    named = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    flags = ["--side=node", "--node-name=$(NODE_NAME)", "--namespace=$(POD_NAMESPACE)", "--bind=$(POD_IP)"]
    ports = {"metrics": operands.METRICS_PORT, "health": operands.HEALTH_PORT}
    return {
        "name": NODE_AGENT,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["run", "exec-monitor", *flags, *_log_level(verbose)],
        "env": [*operands.environment(), named],
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports.items()],
        **operands.probes(),
        "resources": {
            "requests": {"cpu": "25m", "memory": "48Mi"},
            "limits": {"cpu": "250m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "appArmorProfile": {"type": "Unconfined"},
            "seLinuxOptions": {"type": "spc_t"},
        },
        "volumeMounts": [
            {"name": "tracefs", "mountPath": TRACEFS, "mountPropagation": "HostToContainer"},
            {"name": "pod-logs", "mountPath": POD_LOGS, "readOnly": True, "mountPropagation": "HostToContainer"},
        ],
    }


# -- webhook configurations --------------------------------------------------------------------------------------------


def pod_webhook(
    settings: OperatorSettings,
    cppc: ClusterPodPlacementConfig,
    policy: SettingsTable,
    ca_bundle: bytes,
    *,
    owner: Owner | None,
    review_key: bytes = b"",
) -> Document:
    """The configuration of the pod webhook while these objects are in force.

    ``ca_bundle``: PEM; without effect where others inject it. Who keeps ``caBundle`` itself passes none.
    ``review_key``: see :func:`client_config`.
    """
    selector = cppc.spec.namespace_selector
    document = webhook_configuration(
        settings.namespace,
        ca_bundle=ca_bundle if settings.certificates == "self-managed" else b"",
        namespace_selector=msgspec.to_builtins(selector) if selector is not None else None,
        excluded_namespaces=policy.spec.excluded_namespaces,
        review_key=review_key,
    )
    webhooks = document["webhooks"]
    document["webhooks"] = [*webhooks, probe_entry(webhooks[0], namespace=settings.namespace)]
    return owned(injected(document, settings), owner)


def resource_webhooks(settings: OperatorSettings, ca_bundle: bytes, *, owner: Owner | None) -> tuple[Document, ...]:
    """The configurations of the webhooks for ClusterPodPlacementConfigs and PodPlacementConfigs, which the operator
    itself serves: validation, the finalizer, and values that v1alpha1 lacks.

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
        document = configuration_document(names.OPERATOR, names.OPERATOR, webhooks, kind=kind)
        found.append(owned(injected(document, settings), owner))
    return tuple(found)


def webhook_configuration(
    namespace: str = DEFAULT_NAMESPACE,
    *,
    url: str = "",
    ca_bundle: bytes = b"",
    namespace_selector: Mapping[str, Any] | None = None,
    excluded_namespaces: Sequence[str] = (),
    review_key: bytes = b"",
) -> Document:
    """The MutatingWebhookConfiguration of the pod webhook. ``url``: its address outside the cluster.

    ``namespace_selector`` is copied from the ClusterPodPlacementConfig, ``excluded_namespaces`` come from the policy.
    Names are added to the selector, which costs the API server nothing. Prefixes need CEL match conditions, which cost
    it 0.7 ms for every pod of the cluster.
    """
    excluded = NamespaceExclusions.of(excluded_namespaces)
    webhook: Document = {
        "name": names.POD_WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config(
            namespace, names.WEBHOOK, names.POD_WEBHOOK_PATH, url=url, ca_bundle=ca_bundle, review_key=review_key
        ),
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
    return configuration_document(names.WEBHOOK_CONFIGURATION, names.WEBHOOK, [webhook], kind=MUTATING_WEBHOOKS.kind)


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
        "clientConfig": client_config(settings.namespace, names.OPERATOR, path, ca_bundle=trusted),
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
