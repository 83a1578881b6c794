"""What the operator deploys for a role: Deployment, Service, PodDisruptionBudget, NetworkPolicy, webhook configuration.

An :class:`OperandDeployment` says how one role differs; all else is the same for every role. The operator's own objects
are made from the same functions by the installer. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch import names
from polyarch.kube.resources import PODS, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS, Resource
from polyarch.kube.review_tokens import path_with_token
from polyarch.operator import certificates
from polyarch.operator.monitoring import AlertGroup, scraping_objects
from polyarch.operator.owned_objects import Document, finished, labels, metadata
from polyarch.operator.settings import IMAGE_VOLUMES, PROVIDERS_DIRECTORY, ClusterCapabilities, OperatorSettings
from polyarch.tolerations import Toleration

WEBHOOK_PORT: Final = 9443
METRICS_PORT: Final = 8443
HEALTH_PORT: Final = 8081
REGISTRIES_DIRECTORY: Final = "/etc/polyarch/registries"
PROVIDERS_MOUNT: Final = "/etc/polyarch/credential-providers"
"""Where the pods of a role have the credential plugins of an image or of the node."""
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""Label by which a Deployment tells the pods of one revision."""
OPERATOR_CONTAINER: Final = "operator"
"""Its name, by which the operator finds its own image."""
STARTUP_SECONDS: Final = 300
"""Seconds for a container to start before the kubelet ends it. A node that is busy leaves it no more than its
request."""
STARTUP_MARGIN: Final = 3
"""A start at exactly the requested CPU takes at most this part of :data:`STARTUP_SECONDS`."""
START_CPU_SECONDS: Final = {
    OPERATOR_CONTAINER: 2.5,
    "web-hook": 2.7,
    "controller": 2.7,
    "node-side": 2.1,
    "handler": 2.3,
    "taints": 2.7,
    "builder": 2.8,
    "resource-topology-exporter": 2.8,
    "numa-extender": 2.7,
}
"""CPU, user and system, that each of our containers takes until it is ready, by the container's name.

The most that was measured: Python 3.13, throttled by a cgroup to the request, without any compiled bytecode. With the
image's bytecode it is a fifth to a third of that, which ``python -m bench start`` measures.
"""
MEMORY_MARGIN: Final = 3
"""A container at rest has at most this part of its memory limit."""
IDLE_MEMORY_MIB: Final = {
    OPERATOR_CONTAINER: 50,
    "web-hook": 37,
    "controller": 37,
    "node-side": 28,
    "handler": 31,
    "taints": 38,
    "builder": 38,
    "resource-topology-exporter": 34,
    "numa-extender": 42,
}
"""Working set of each of our containers at rest, half a minute after its start, by the container's name.

Measured by ``python -m bench start`` in control groups of their own, with Python 3.11 on amd64.
"""


class OperandDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """One Deployment of the operator: what differs from role to role."""

    name: str
    """Name of the Deployment, its Service and its ServiceAccount."""
    container: str
    role: str
    """``polyarch run ROLE``."""
    replicas: int
    cpu: str
    memory: str
    memory_limit: str
    webhook: bool = False
    """The role serves a webhook."""
    asks_registries: bool = False
    global_credentials: bool = True
    """It also asks them with the global pull secret."""
    certificates: Literal["required", "optional"] = "required"
    """``optional``: the pod starts before the Secret exists."""
    spare: Literal["all but one", "one"] = "all but one"
    """How many pods an eviction may take away at a time."""
    arguments: tuple[str, ...] = ()
    """Flags beyond those that every role gets."""


def role_objects(
    role: OperandDeployment,
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    *,
    rbac: Sequence[Document],
    alerts: AlertGroup,
    ca_bundle: bytes,
    registries: str,
    placed: bool,
) -> tuple[Document, ...]:
    """All objects of a role that is deployed by itself, in the order of applying.

    ``ca_bundle``: PEM of our CA, for Prometheus. ``registries``: see :func:`deployment_document`. ``placed``: placement
    is on, and has made the ConfigMap of CAs that all roles share.
    """
    documents = [
        *rbac,
        *([trusted_ca(role.name, settings.namespace)] if cluster.openshift and not placed else ()),
        *operand_objects(role, settings, cluster, registries=registries),
    ]
    if cluster.monitoring:
        documents += [
            *scraping_objects([role.name], settings, ca_bundle),
            alerts.document(settings.namespace),
        ]
    return tuple(finished(document) for document in documents)


def operand_objects(
    role: OperandDeployment, settings: OperatorSettings, cluster: ClusterCapabilities, *, registries: str = ""
) -> list[Document]:
    """Service, network policy, budget and Deployment, in this order. ``registries``: see :func:`deployment`."""
    return [
        service(role, settings),
        *([network_policy(role, settings)] if settings.network_policies else ()),
        disruption_budget(role, settings.namespace),
        deployment_document(role, settings, cluster, registries=registries),
    ]


def deployment_document(
    role: OperandDeployment, settings: OperatorSettings, cluster: ClusterCapabilities, *, registries: str = ""
) -> Document:
    """The Deployment. ``registries``: a digest of the registries' ConfigMap; another one replaces the pods, which read
    the ConfigMap when they start."""
    name = role.name
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, name, namespace=settings.namespace),
        "spec": {
            "replicas": role.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": {names.CONTROLLER_LABEL: name}},
            "template": _template(role, settings, cluster, registries),
        },
    }


def service(role: OperandDeployment, settings: OperatorSettings) -> Document:
    """443 leads to the webhook's port, 8443 to the metrics. The predecessor's Services have both for every role."""
    described = metadata(role.name, role.name, namespace=settings.namespace)
    if annotations := certificates.service_annotations(role.name, settings.certificates):
        described["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": described,
        "spec": {
            "selector": {names.CONTROLLER_LABEL: role.name},
            "ports": [
                {"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT, "protocol": "TCP"},
                {"name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP"},
            ],
        },
    }


def disruption_budget(role: OperandDeployment, namespace: str) -> Document:
    """A single replica may always be evicted: a budget that keeps it would only block drains. So may a pod that is not
    ready, which serves nobody: else pods that fail to start would hold a drain for ever.

    A budget has one of two fields, and the API server refuses both. Which one an operand has never depends on its
    settings, so that tools which apply it with different ones can follow each other.
    """
    keeps_one = {"minAvailable": 1 if role.replicas > 1 else 0}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(role.name, role.name, namespace=namespace),
        "spec": (keeps_one if role.spare == "all but one" else {"maxUnavailable": 1})
        | {
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {names.CONTROLLER_LABEL: role.name}},
        },
    }


def network_policy(role: OperandDeployment, settings: OperatorSettings) -> Document:
    """In go webhooks, scrapes and probes; out go DNS and TCP: to the API server, and to registries.

    The API server's address cannot be named (it is on no pod network) and its port is known to its Service alone, which
    would take a right in another namespace to read. So every port is open.
    """
    ports = [METRICS_PORT, HEALTH_PORT]
    if role.webhook:
        ports.insert(0, WEBHOOK_PORT)
    # DNS servers of OpenShift listen on 5353 behind their Service.
    dns = [{"protocol": protocol, "port": port} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    beyond = [{"protocol": "TCP", "port": 1, "endPort": 65535}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(role.name, role.name, namespace=settings.namespace),
        "spec": {
            "podSelector": {"matchLabels": {names.CONTROLLER_LABEL: role.name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}],
            "egress": [{"ports": dns}, {"ports": beyond}],
        },
    }


def pod_annotations(cluster: ClusterCapabilities) -> dict[str, str]:
    """Annotations of the pods that need no special permissions: on OpenShift they count as management workloads, and
    run under the ``restricted-v2`` constraint whatever else their ServiceAccount may use."""
    if not cluster.openshift:
        return {}
    return {
        "target.workload.openshift.io/management": '{"effect": "PreferredDuringScheduling"}',
        "openshift.io/required-scc": "restricted-v2",
    }


def environment() -> list[Document]:
    """What a pod knows of itself only when it starts."""
    paths = {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def probes(
    *, port: str | int = "health", scheme: Literal["HTTP", "HTTPS"] = "HTTP", readiness: str = "/readyz"
) -> Document:
    """Startup, liveness and readiness, on this port. Liveness begins once startup has succeeded.

    A restart helps a process that hangs and harms one that gets too little CPU, which has to start again. So liveness
    has the 80 s that kubeadm and cert-manager give their control planes: a leader that hangs has lost its Lease by
    then, and a webhook is out of its Service by readiness.
    """

    def get(path: str) -> Document:
        asked = {"path": path, "port": port}
        return {"httpGet": asked if scheme == "HTTP" else asked | {"scheme": scheme}, "timeoutSeconds": 5}

    return {
        "startupProbe": get("/healthz") | {"periodSeconds": 1, "failureThreshold": STARTUP_SECONDS},
        "livenessProbe": get("/healthz") | {"periodSeconds": 10, "failureThreshold": 8},
        "readinessProbe": get(readiness) | {"periodSeconds": 2, "failureThreshold": 3},
    }


def apart(selected: Mapping[str, str]) -> Document:
    """Affinity of pods with these labels: rather on a node that has none of them yet.

    A spread constraint for hostnames would not do. The scheduler ignores every constraint of a pod on nodes that lack
    the label of one of them, as nodes without a zone do; and images that a node has outweigh it. Pods of the former
    revision do not count, or both new ones could end up where the first old one went. Kubernetes 1.30 knows the field
    ``matchLabelKeys`` and drops it; there the former revision counts.
    """
    term = {
        "labelSelector": {"matchLabels": dict(selected)},
        "matchLabelKeys": [POD_TEMPLATE_HASH],
        "topologyKey": "kubernetes.io/hostname",
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def spread(selected: Mapping[str, str]) -> list[Document]:
    """Topology spread constraints of pods with these labels: evenly over zones, where nodes have zones."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selected)},
            "matchLabelKeys": [POD_TEMPLATE_HASH],
        }
    ]


def trusted_ca(controller: str, namespace: str) -> Document:
    """The ConfigMap into which OpenShift puts the CAs that the cluster trusts."""
    described = metadata(names.TRUSTED_CA, controller, namespace=namespace)
    described["labels"] |= {"config.openshift.io/inject-trusted-cabundle": "true"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": described}


def toleration(taint: str) -> Document:
    """A toleration of ``key[=value][:Effect]``; an empty key tolerates everything, no effect means every effect."""
    key_value, _, effect = taint.partition(":")
    key, equals, value = key_value.partition("=")
    found: Document = {"key": key} if key else {}
    found |= {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return found | ({"effect": effect} if effect else {})


def tolerated(settings: OperatorSettings) -> tuple[Toleration, ...]:
    """The tolerations of every pod of polyarch, to be compared with the taints of nodes."""
    return tuple(msgspec.convert(toleration(taint), Toleration) for taint in settings.tolerations)


def scheduling(settings: OperatorSettings) -> Document:
    """The settings of a pod that say where it runs and what it takes along, apart from affinity."""
    wanted: dict[str, Any] = {
        "priorityClassName": settings.priority_class,
        "nodeSelector": dict(label.split("=", 1) for label in settings.node_selector),
        "tolerations": [toleration(taint) for taint in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    return {name: value for name, value in wanted.items() if value}


def runnable(architectures: Sequence[str]) -> list[Document]:
    """The node selector requirements of an image for these Linux architectures."""
    return [
        {"key": names.ARCH_KEY, "operator": "In", "values": list(architectures)},
        {"key": names.OS_KEY, "operator": "In", "values": ["linux"]},
    ]


def _template(
    role: OperandDeployment, settings: OperatorSettings, cluster: ClusterCapabilities, registries: str
) -> Document:
    name = role.name
    annotations = pod_annotations(cluster) | ({REGISTRIES_DIGEST: registries} if registries else {})
    identity, more = {}, {}
    if role.asks_registries:
        identity = settings.account_annotations(role.role)
        more = dict(text.split("=", 1) for text in settings.role_pod_labels)
    if identity:
        annotations[IDENTITY] = " ".join(f"{key}={value}" for key, value in sorted(identity.items()))
    if role.webhook:
        annotations |= KNOWS_TOKENS
    terms = [{"matchExpressions": runnable(cluster.image_architectures)}]
    selected = {names.CONTROLLER_LABEL: name}
    return {
        "metadata": {"labels": more | labels(name)} | ({"annotations": annotations} if annotations else {}),
        "spec": {
            "serviceAccountName": name,
            "enableServiceLinks": False,  # variables of Services named polyarch-… would count as our settings
            "terminationGracePeriodSeconds": 30,
            **scheduling(settings),
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
                **apart(selected),
            },
            "topologySpreadConstraints": spread(selected),
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            **({"initContainers": [_copying(settings, cluster)]} if _copies(role, settings, cluster) else {}),
            "containers": [_container(role, settings)],
            "volumes": _volumes(role, settings, cluster),
        },
    }


REGISTRIES_DIGEST: Final = f"{names.OWN_GROUP}/registries"
"""Pod annotation: a digest of the registries' ConfigMap."""
IDENTITY: Final = f"{names.OWN_GROUP}/identity"
"""Pod annotation: those of its ServiceAccount. Clouds read them as a pod is created, so others replace the pods."""
KNOWS_TOKENS: Final = {f"{names.OWN_GROUP}/review-tokens": "true"}
"""Pod annotation: its webhook answers at paths with a token, too."""
_REVISION: Final = "deployment.kubernetes.io/revision"
_TAKING_LEAVE: Final = timedelta(seconds=30)
"""After which a pod that was replaced answers no reviews any more: its grace period."""


def _container(role: OperandDeployment, settings: OperatorSettings) -> Document:
    mounts = [{"name": "certificates", "mountPath": certificates.DIRECTORY, "readOnly": True}]
    if _has_registries(role, settings):
        mounts.append({"name": "registries", "mountPath": REGISTRIES_DIRECTORY, "readOnly": True})
    if _mounts_providers(role, settings):
        mounts.append({"name": PROVIDERS, "mountPath": PROVIDERS_MOUNT, "readOnly": True})
    ports = {"metrics": METRICS_PORT, "health": HEALTH_PORT}
    if role.webhook:
        ports = {"webhook": WEBHOOK_PORT} | ports
    proxies = [{"name": name, "value": value} for name, value in settings.proxies if role.asks_registries]
    return {
        "name": role.container,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["run", role.role, *_flags(role, settings), *role.arguments],
        "env": [*environment(), *proxies],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        **probes(),
        "resources": {
            "requests": {"cpu": role.cpu, "memory": role.memory},
            "limits": {"memory": role.memory_limit},
        },
        "securityContext": _unprivileged(),
        "volumeMounts": mounts,
    }


def _unprivileged() -> Document:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _flags(role: OperandDeployment, settings: OperatorSettings) -> list[str]:
    flags = ["--namespace=$(POD_NAMESPACE)", "--bind=$(POD_IP)", f"--cert-dir={certificates.DIRECTORY}"]
    if not role.asks_registries:
        return flags
    if settings.global_pull_secret is not None and role.global_credentials:
        namespace, name = settings.global_pull_secret
        flags += [f"--global-pull-secret-namespace={namespace}", f"--global-pull-secret-name={name}"]
    if settings.secret_access == "none" and role.global_credentials:
        flags.append("--secret-access=none")
    if settings.registries_configmap:
        flags.append(f"--registries-dir={REGISTRIES_DIRECTORY}")
    if settings.provides_credentials and settings.registries_configmap:
        flags.append(f"--image-credential-provider-bin-dir={_providers_directory(settings)}")
    flags += [f"--allow-address={addresses}" for addresses in settings.allow_addresses]
    return flags + [f"--deny-address={addresses}" for addresses in settings.deny_addresses]


def _volumes(role: OperandDeployment, settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    optional = role.certificates == "optional"
    volumes = [certificates.volume(role.name, settings.certificates, optional=optional)]
    if _has_registries(role, settings):
        volumes.append({"name": "registries", "configMap": {"name": settings.registries_configmap}})
    if _copies(role, settings, cluster):
        volumes.append({"name": PROVIDERS, "emptyDir": {"sizeLimit": PROVIDERS_SIZE}})
    elif _mounts_providers(role, settings):
        volumes.append({"name": PROVIDERS, **_source_of_providers(settings)})
    return volumes


# -- credential plugins ------------------------------------------------------------------------------------------------


PROVIDERS: Final = "credential-providers"
"""Volume and init container."""
NOBODY: Final = 65532
"""The user of an init container whose image names none."""
PROVIDERS_SIZE: Final = "256Mi"
"""Of the copy of an image's plugins; each is a program of some 20 MiB."""


def _providers_directory(settings: OperatorSettings) -> str:
    """Where a role finds the plugins. A volume of an image has the whole image."""
    directory = settings.credential_provider_directory or PROVIDERS_DIRECTORY
    if settings.credential_provider_mount == "hostPath":
        return PROVIDERS_MOUNT
    return f"{PROVIDERS_MOUNT}{directory.rstrip('/')}" if settings.credential_provider_image else directory


def _mounts_providers(role: OperandDeployment, settings: OperatorSettings) -> bool:
    return role.asks_registries and bool(settings.credential_provider_image or settings.mounts_plugins_of_nodes)


def _copies(role: OperandDeployment, settings: OperatorSettings, cluster: ClusterCapabilities) -> bool:
    """Whether an init container of the image copies the plugins. OpenShift's restricted-v2 has no image volumes."""
    mount = settings.credential_provider_mount
    return _mounts_providers(role, settings) and (
        mount == "copy" or (mount == "auto" and (cluster.openshift or cluster.version < IMAGE_VOLUMES))
    )


def _source_of_providers(settings: OperatorSettings) -> Document:
    if settings.credential_provider_mount == "hostPath":
        return {"hostPath": {"path": settings.credential_provider_directory, "type": "Directory"}}
    policy = {"pullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {"image": {"reference": settings.credential_provider_image} | policy}


def _copying(settings: OperatorSettings, cluster: ClusterCapabilities) -> Document:
    """The copy has the place that the plugins have in a volume of the image. Such an image names no user, as volumes
    have no use for one; OpenShift gives each namespace users of its own."""
    directory = (settings.credential_provider_directory or PROVIDERS_DIRECTORY).rstrip("/")
    script = f'mkdir -p "{PROVIDERS_MOUNT}{directory}" && cp -R "{directory}/." "{PROVIDERS_MOUNT}{directory}/"'
    return {
        "name": PROVIDERS,
        "image": settings.credential_provider_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": _unprivileged() | ({} if cluster.openshift else {"runAsUser": NOBODY}),
        "volumeMounts": [{"name": PROVIDERS, "mountPath": PROVIDERS_MOUNT}],
    }


def _has_registries(role: OperandDeployment, settings: OperatorSettings) -> bool:
    return role.asks_registries and bool(settings.registries_configmap)


# -- webhook configurations --------------------------------------------------------------------------------------------


# Namespaces are excluded where it costs the API server least: by name in the selector, which costs nothing; by prefix
# in a CEL match condition, which it evaluates for every request (0.7 ms for a pod).

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server puts on each Namespace."""


class NamespaceExclusions(NamedTuple):
    """Namespaces for which no webhook is called, from a list of names and ``prefix-*``."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> "NamespaceExclusions":
        names = sorted({pattern for pattern in patterns if not pattern.endswith("*")})
        prefixes = sorted({pattern[:-1] for pattern in patterns if pattern.endswith("*")})
        return cls(tuple(names), tuple(prefixes))

    @property
    def requirements(self) -> list[Document]:
        """Expressions for a ``namespaceSelector``."""
        return [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(self.names)}] if self.names else []

    @property
    def conditions(self) -> list[Document]:
        """Entries of ``matchConditions``."""
        if not self.prefixes:
            return []
        parts = [f"request.namespace.startsWith({json.dumps(prefix)})" for prefix in self.prefixes]
        return [{"name": "excluded-namespaces", "expression": f"!({' || '.join(parts)})"}]


def client_config(
    namespace: str, service: str, path: str, *, url: str = "", ca_bundle: bytes = b"", review_key: bytes = b""
) -> Document:
    """``clientConfig``: a Service, or its address outside the cluster if ``url`` is given. ``ca_bundle``: PEM.
    ``review_key``: the path gets a token of this key."""
    path = path_with_token(path, review_key)
    document: Document = (
        {"url": url.rstrip("/") + path}
        if url
        else {"service": {"name": service, "namespace": namespace, "path": path, "port": 443}}
    )
    return document | ({"caBundle": str(msgspec.to_builtins(ca_bundle))} if ca_bundle else {})


def know_tokens(deployment: Mapping[str, Any], now: datetime) -> bool:
    """Whether every pod of a webhook's Deployment answers at paths with a token. An older one answers 404 there, and
    the API server would create pods past it."""
    metadata, template = (deployment.get("metadata") or {}), (deployment.get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    if not annotations.items() >= KNOWS_TOKENS.items():
        return False
    if (metadata.get("annotations") or {}).get(_REVISION) == "1":
        return True  # there has never been another template
    return RolloutStatus.of(deployment).up_to_date and not _is_recent(deployment, now)


def _is_recent(deployment: Mapping[str, Any], now: datetime) -> bool:
    """Whether pods of a former template may still be ending."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Progressing":
            try:
                return now - msgspec.convert(condition.get("lastUpdateTime"), datetime) < _TAKING_LEAVE
            except msgspec.ValidationError:
                return False
    return False


def configuration_document(name: str, controller: str, webhooks: Sequence[Mapping[str, Any]], *, kind: str) -> Document:
    """A ``MutatingWebhookConfiguration`` or ``ValidatingWebhookConfiguration``, as ``kind`` says."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(name, controller),
        "webhooks": list(webhooks),
    }


def injected(document: Document, settings: OperatorSettings) -> Document:
    """The document with the annotation by which others write ``caBundle``, if the settings say so."""
    annotations = certificates.ca_annotations(settings)
    if not annotations:
        return document
    return {**document, "metadata": {**document["metadata"], "annotations": dict(annotations)}}


# -- status ------------------------------------------------------------------------------------------------------------


MAX_MESSAGE: Final = 4096
"""Characters of one message. The API server refuses more than 32768, and its own words about one refused object may be
longer than that."""
MAX_PROBLEMS: Final = 5
"""Problems that are named in one message."""


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Deployment is."""

    available: bool = False
    """At least one pod is available."""
    up_to_date: bool = False
    """Every pod is of the newest template, and available."""
    summary: str = "it does not exist"
    """The same for people."""

    @classmethod
    def of(cls, deployment: Mapping[str, Any] | None) -> "RolloutStatus":
        """From an apps/v1 Deployment; None: there is none."""
        if deployment is None:
            return cls()
        metadata, status = deployment.get("metadata") or {}, deployment.get("status") or {}
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        total, updated, ready, available = (
            status.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        )
        return cls(
            available=available > 0,
            up_to_date=updated == total == available == ready == wanted
            and not status.get("unavailableReplicas")
            and status.get("observedGeneration") == metadata.get("generation"),
            summary=f"{available} of {wanted} pods are available, {updated} are up to date",
        )


def first_problems(problems: Sequence[str]) -> list[str]:
    """Up to five problems, and how many more there are."""
    more = len(problems) - MAX_PROBLEMS
    return [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def shortened(message: str) -> str:
    """A condition's message, cut to what an API server takes."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


# -- admission policies ------------------------------------------------------------------------------------------------


# RBAC cannot tell one pod of a DaemonSet from another: all have one ServiceAccount. The API server can, since the token
# of a pod names its node and the pod itself, so ValidatingAdmissionPolicies reject what is another node's.

NODE_IN_TOKEN: Final = "authentication.kubernetes.io/node-name"
POD_IN_TOKEN: Final = "authentication.kubernetes.io/pod-name"
TOKENS_NAME_NODES: Final = (1, 32)
"""Since this version every token of a pod names node and pod; before, a feature gate could keep them from it."""


def is_in_token(claim: str, value: str, *, strict: bool) -> str:
    """CEL: the value is what the token says. ``strict``: a token that says nothing is refused."""
    extra = "request.userInfo.extra"
    has = f'has({extra}) && "{claim}" in {extra}'
    same = f'{extra}["{claim}"].exists(each, each == {value})'
    return f"({has} && {same})" if strict else f"(!({has}) || {same})"


def resource_rule(resource: Resource, *operations: str, subresource: str = "", versions: str = "") -> Document:
    """Requests that a policy is about."""
    return {
        "apiGroups": [resource.group],
        "apiVersions": [versions or resource.version],
        "operations": list(operations),
        "resources": [f"{resource.plural}/{subresource}" if subresource else resource.plural],
        "scope": "*",
    }


def policy_documents(
    metadata: Document,
    rules: Sequence[Document],
    validations: Mapping[str, str],
    *,
    account: tuple[str, ...] | None = None,
    condition: str = "",
    variables: Mapping[str, str] | None = None,
) -> list[Document]:
    """A ValidatingAdmissionPolicy and its binding.

    ``validations``: message → CEL. ``account``: namespace and names of the ServiceAccounts whose requests it is about;
    ``condition``: the name of that match condition. ``variables``: CEL by name.
    """
    name = metadata["name"]
    return [
        {
            "apiVersion": VALIDATING_POLICIES.api_version,
            "kind": VALIDATING_POLICIES.kind,
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    # All of it, defaults too: the API server compares this part as a whole.
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "resourceRules": list(rules),
                },
                **({"matchConditions": [_from(account, condition)]} if account is not None else {}),
                **(
                    {"variables": [{"name": each, "expression": text} for each, text in variables.items()]}
                    if variables
                    else {}
                ),
                "validations": [
                    {"expression": expression, "message": message, "reason": "Forbidden"}
                    for message, expression in validations.items()
                ],
            },
        },
        {
            "apiVersion": VALIDATING_POLICY_BINDINGS.api_version,
            "kind": VALIDATING_POLICY_BINDINGS.kind,
            "metadata": dict(metadata),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _from(account: tuple[str, ...], name: str) -> Document:
    home, *accounts = account
    users = [f'"system:serviceaccount:{home}:{each}"' for each in accounts]
    compared = f"== {users[0]}" if len(users) == 1 else f"in [{', '.join(users)}]"
    return {"name": name, "expression": f"request.userInfo.username {compared}"}


# A role's token may be stolen. RBAC knows whole objects: who lifts a gate may change an image. So policies say which
# parts of an object an account writes. They fail closed: what they cannot evaluate is no write of ours.

_PREFIXES: Final = (f"{names.GROUP}/", f"{names.OWN_GROUP}/")


def same(path: str, *fields: str) -> str:
    """CEL: an update leaves these fields below ``path`` as they are, or away."""

    def value(object_: str, field: str) -> str:
        return f"(has({object_}.{path}.{field}) ? [{object_}.{path}.{field}] : [])"

    return " && ".join(f"{value('object', each)} == {value('oldObject', each)}" for each in fields)


def own_metadata(*more: str) -> dict[str, str]:
    """Validations of an update: of the metadata only labels and annotations with prefixes of ours change, and ``more``
    keys, which the API server itself writes."""
    ours = " || ".join((*(f'k.startsWith("{each}")' for each in _PREFIXES), *(f'k == "{each}"' for each in more)))

    def only_ours(member: str) -> str:
        now, before = (f"(has({each}.metadata.{member}) ? {each}.metadata.{member} : {{}})" for each in _BOTH)
        kept = f"(k in {before} && {before}[k] == {now}[k])"
        return f"{now}.all(k, {ours} || {kept}) && {before}.all(k, {ours} || k in {now})"

    return {
        "of labels and annotations only polyarch's own change": f"{only_ours('labels')} && {only_ours('annotations')}",
        "owners and finalizers stay": same("metadata", "ownerReferences", "finalizers"),
    }


_BOTH: Final = ("object", "oldObject")


def pod_policy(described: Document, account: tuple[str, ...], *, gates: Sequence[str]) -> list[Document]:
    """The policy for accounts that constrain pods and lift these ``gates``. The API server itself refuses every other
    change of a pod's spec than those of affinity of gated pods, gates, tolerations and what is named here."""
    ours = ", ".join(f'"{each}"' for each in gates)

    def others(object_: str) -> str:  # compared as lists: CEL's costs grow with their length alone
        found = f"{object_}.spec.schedulingGates"
        return f"(has({found}) ? {found}.filter(g, !(g.name in [{ours}])) : [])"

    fields = ("containers", "initContainers", "ephemeralContainers", "nodeSelector")
    times = ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
    return policy_documents(
        described,
        [resource_rule(PODS, "UPDATE")],
        {
            "images, node selector and times of a pod stay": same("spec", *fields, *times),
            "gates of others stay": f"{others('object')} == {others('oldObject')}",
            **own_metadata(),
        },
        account=account,
        condition="account",
    )
