"""The objects of the NUMA exporters: what all groups of nodes share, and a DaemonSet with a ConfigMap for each group.

One list drives creation and deletion, so that what can be made cannot be forgotten. Pure.
"""

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from polyarch import names as shared
from polyarch.durations import go_duration
from polyarch.kube.owners import Owner
from polyarch.kube.rbac import PolicyRule, binding, role, rule
from polyarch.kube.resources import (
    NETWORK_POLICIES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from polyarch.numa import names
from polyarch.numa.api.resources import TOLERATES_ALL, NamespacedName
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.operator import certificates, operands
from polyarch.operator.components.numa_facts import USUAL_API_PORTS, Platform, ReadDocument, ServingCertificate
from polyarch.operator.components.numa_node_groups import ResolvedNodeGroup
from polyarch.operator.operands import (
    NODE_IN_TOKEN,
    POD_IN_TOKEN,
    TOKENS_NAME_NODES,
    is_in_token,
    policy_documents,
    resource_rule,
)
from polyarch.operator.owned_objects import Document, finished, labels, metadata, owned
from polyarch.operator.settings import OLDEST_KUBERNETES, OperatorSettings
from polyarch.platforms import IMAGE_ARCHITECTURES
from polyarch.selectors import Selector

# -- the TLS profile of OpenShift --------------------------------------------------------------------------------------


# ``spec.tlsSecurityProfile`` of OpenShift's APIServer names a profile or lists versions and ciphers; ciphers have
# OpenSSL's names there and those of IANA in flags. Source: github.com/openshift/api, config/v1, TLSProfiles; RFC 5289,
# RFC 7905.

IANA_NAMES: Final = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}
"""Ciphers of TLS 1.2 that are safe; those of 1.3 cannot be chosen, and all others are too weak to be offered."""
MIN_TLS_VERSION: Final = "VersionTLS12"
VERSIONS: Final = (MIN_TLS_VERSION, "VersionTLS13")


class TlsPolicy(msgspec.Struct, frozen=True):
    """TLS versions and ciphers that an exporter offers."""

    min_version: str = ""
    """The version as Go names it; empty: the exporter's default."""
    ciphers: tuple[str, ...] = ()
    """IANA's names; empty: the exporter's default."""

    @classmethod
    def of(cls, profile: Mapping[str, Any] | None) -> "TlsPolicy":
        """Versions below TLS 1.2 and ciphers that nobody should offer are left out, whatever the profile allows."""
        if profile is None:
            return cls()
        kind = profile.get("type") or "Intermediate"
        if kind == "Modern":
            return cls("VersionTLS13")
        if kind in ("Old", "Intermediate"):
            return cls(MIN_TLS_VERSION, tuple(IANA_NAMES.values()))
        custom = profile.get("custom") or {}
        wanted = custom.get("minTLSVersion")
        version = wanted if wanted in VERSIONS else MIN_TLS_VERSION
        known = {**IANA_NAMES, **{name: name for name in IANA_NAMES.values()}}
        ciphers = tuple(known[cipher] for cipher in custom.get("ciphers") or () if cipher in known)
        return cls(version, () if version != MIN_TLS_VERSION else ciphers)


# -- what all groups have in common ------------------------------------------------------------------------------------


CertificateSource = Literal["service-ca", "cert-manager", "self-managed", "none"]
METRICS_PORT: Final = 2112
MAX_NAME_LENGTH: Final = 63


class ExporterContext(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the object, as far as the objects of exporters differ by them; everything is validated."""

    settings: OperatorSettings = OperatorSettings()
    """``image`` is the exporters' image."""
    image_architectures: tuple[str, ...] = IMAGE_ARCHITECTURES
    """Linux architectures of that image."""
    platform: Platform = "kubernetes"
    version: tuple[int, int] = OLDEST_KUBERNETES
    verbosity: int = 2
    pod_excludes: tuple[NamespacedName, ...] = ()
    certificates: CertificateSource = "self-managed"
    """Who makes the serving certificate; ``none``: metrics are served without TLS."""
    tls: TlsPolicy = TlsPolicy()
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS
    evicts: bool = False
    """Pods are evicted for others, so that exporters tell on which zones they are."""

    @property
    def namespace(self) -> str:
        return self.settings.numa_home

    @property
    def on_openshift(self) -> bool:
        """There are SecurityContextConstraints and serving certificates."""
        return self.platform != "kubernetes"

    @property
    def asks_kubelets(self) -> bool:
        """Exporters read the kubelet's settings on the node itself."""
        return self.platform == "kubernetes"

    @property
    def with_tls(self) -> bool:
        return self.certificates != "none"


def described(name: str, *, namespace: str = "") -> Document:
    """``metadata`` of an object that all groups share."""
    return metadata(name, shared.NUMA_EXPORTER, namespace=namespace)


def of_group(group: str, *, namespace: str) -> Document:
    """``metadata`` of an object of one group, found by the labels that the predecessor gave it."""
    found = metadata(shortened(f"{names.OPERATOR_SINGLETON}-{group}"), shared.NUMA_EXPORTER, namespace=namespace)
    return found | {"labels": {**found["labels"], names.OPERATOR_LABEL: names.OPERATOR_SINGLETON, **group_label(group)}}


def group_label(group: str) -> dict[str, str]:
    """The label by which the objects and pods of a group are found."""
    return {names.GROUP_LABEL: shortened(group)}


def shortened(name: str) -> str:
    """The name as it is up to 63 characters; a longer one is cut, and a digest of all of it added."""
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1].rstrip('-.')}-{digest}"


# -- all objects -------------------------------------------------------------------------------------------------------


def exporter_objects(
    groups: Sequence[ResolvedNodeGroup],
    context: ExporterContext,
    *,
    kubelets: Mapping[str, Mapping[str, str]],
    without_pods: Collection[str] = (),
    owner: Owner | None,
) -> tuple[Document, ...]:
    """No groups, no objects. ``kubelets``: settings of the topology manager by group, where the cluster has them.
    ``without_pods``: groups whose machines are not ready for their exporters, and get them later."""
    if not groups:
        return ()
    objects = [
        *(machine_config(group) for group in groups if is_legacy(group)),
        *constraints(context),
        *rbac_objects(context),
        *cert_manager_objects(context),
        service(context),
        *network_policies(context),
    ]
    for group in groups:
        configuration = config_map(group, context, kubelets.get(group.name))
        objects.append(configuration)
        if group.name not in without_pods:
            objects.append(daemon_set(group, context, config_digest=digest(configuration)))
    objects += node_policy(context)
    return tuple(owned(finished(document), owner) for document in objects)


# -- DaemonSet ---------------------------------------------------------------------------------------------------------


PRIORITY_CLASS: Final = "system-node-critical"
SLEEPER: Final = """\
import signal
ends = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
signal.sigwait(ends)
"""
"""Waits to be ended. The first process of a container gets only signals that it has asked for."""


def daemon_set(group: ResolvedNodeGroup, context: ExporterContext, *, config_digest: str) -> Document:
    """``config_digest``: of the group's ConfigMap; another one replaces the pods."""
    selected = {**names.EXPORTER_POD_LABELS, **group_label(group.name)}
    annotations = {names.CONFIG_HASH: config_digest}
    if context.on_openshift:
        annotations["openshift.io/required-scc"] = constraint_of(group)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": of_group(group.name, namespace=context.namespace),
        "spec": {
            "selector": {"matchLabels": selected},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": labels(shared.NUMA_EXPORTER) | selected, "annotations": annotations},
                "spec": _pod(group, context, config=of_group(group.name, namespace="")["name"]),
            },
        },
    }


def _pod(group: ResolvedNodeGroup, context: ExporterContext, *, config: str) -> Document:
    settings = context.settings
    secrets = [{"name": name} for name in settings.image_pull_secrets]
    return {
        "serviceAccountName": names.EXPORTER,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 15,
        "priorityClassName": PRIORITY_CLASS,
        **({"imagePullSecrets": secrets} if secrets else {}),
        "readinessGates": [{"conditionType": gate} for gate in names.READINESS_GATES],
        "nodeSelector": {shared.OS_KEY: "linux"},
        "affinity": _affinity(group.selector, context.image_architectures),
        "tolerations": [dict(toleration) for toleration in group.settings.tolerations or (TOLERATES_ALL,)],
        "containers": [
            _exporter(group, context),
            *([_reference(context)] if _has_reference(group) else ()),
        ],
        "volumes": _volumes(group, context, config=config),
    }


def _affinity(selector: Selector, architectures: Sequence[str]) -> Document:
    """Keeps exporters on the nodes of the group that run their image, and never two on one node, which would write one
    object."""
    apart = {"labelSelector": {"matchLabels": names.EXPORTER_POD_LABELS}, "topologyKey": "kubernetes.io/hostname"}
    affinity: Document = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    expressions = [
        {"key": requirement.key, "operator": requirement.operator}
        | ({"values": list(requirement.values)} if requirement.values else {})
        for requirement in selector.requirements
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [*expressions, *operands.runnable(architectures)]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}} | affinity


def _exporter(group: ResolvedNodeGroup, context: ExporterContext) -> Document:
    settings = context.settings
    return {
        "name": names.EXPORTER_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy or "IfNotPresent",
        "args": ["run", "numa-exporter", *arguments(group, context)],
        "env": _environment(group),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        **operands.probes(port="metrics", scheme="HTTPS" if context.with_tls else "HTTP"),
        "resources": {"requests": {"cpu": "30m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        # The kubelet's socket and state belong to root, and SELinux has a type for whoever may use the socket.
        "securityContext": _confined()
        | {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "seLinuxOptions": {"type": selinux_type(group, context), "level": "s0"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_mounted(*mount) for mount in _mounts(group, context)],
    }


def _environment(group: ResolvedNodeGroup) -> list[Document]:
    found = [*operands.environment(), *_from_field({"NODE_NAME": "spec.nodeName", "HOST_IP": "status.hostIP"})]
    if not _has_reference(group):
        return found
    found += _from_field({"REFERENCE_NAMESPACE": "metadata.namespace", "REFERENCE_POD_NAME": "metadata.name"})
    return [*found, {"name": "REFERENCE_CONTAINER_NAME", "value": names.REFERENCE_CONTAINER}]


def _from_field(paths: Mapping[str, str]) -> list[Document]:
    """Variables with a value of the pod itself."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _reference(context: ExporterContext) -> Document:
    """A container of the shared pool, for kubelets that list CPUs of the pool as those of a container."""
    settings = context.settings
    return {
        "name": names.REFERENCE_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy or "IfNotPresent",
        "command": ["python3", "-c", SLEEPER],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": _confined() | {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _has_reference(group: ResolvedNodeGroup) -> bool:
    return group.annotations.get(names.REFERENCE) == ENABLED


def _confined() -> dict[str, Any]:
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _mounts(group: ResolvedNodeGroup, context: ExporterContext) -> list[tuple[str, str, bool]]:
    """Volume, path, whether it is read-only. Everything of the host is, but for the file that a hook touches."""
    return [
        ("host-sys", SYSFS, True),
        ("host-podresources", PODRESOURCES, True),
        *([("host-kubelet", KUBELET, True)] if mounts_kubelet(group) else ()),
        *([("host-run-rte", NOTIFY, False)] if is_notified(group, context) else ()),
        ("config", DIRECTORY, True),
        *([("certificate", CERTIFICATES, True)] if context.with_tls else ()),
    ]


def _mounted(name: str, path: str, read_only: bool) -> Document:
    # Volumes of pods are mounted below the kubelet's directory. Without propagation the exporter would keep those that
    # were there when it started, and no device of them could be detached.
    propagated = {"mountPropagation": "HostToContainer"} if path == KUBELET else {}
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {}) | propagated


def _volumes(group: ResolvedNodeGroup, context: ExporterContext, *, config: str) -> list[Document]:
    root = group.annotations.get(names.KUBELET_ROOT) or context.settings.kubelet_root
    sources: Mapping[str, Document] = {
        "host-sys": {"hostPath": {"path": "/sys", "type": "Directory"}},
        "host-podresources": {"hostPath": {"path": f"{root}/pod-resources", "type": "Directory"}},
        "host-kubelet": {"hostPath": {"path": root, "type": "Directory"}},
        "host-run-rte": {"hostPath": {"path": NOTIFY_DIRECTORY, "type": "DirectoryOrCreate"}},
        "config": {"configMap": {"name": config}},
        "certificate": {"secret": {"secretName": names.EXPORTER_CERTIFICATE}},
    }
    return [{"name": name} | sources[name] for name, _, _ in _mounts(group, context)]


# -- flags -------------------------------------------------------------------------------------------------------------


SYSFS: Final = "/host-sys"
PODRESOURCES: Final = "/host-podresources"
KUBELET: Final = "/host-kubelet"
NOTIFY: Final = "/host-run-rte"
CERTIFICATES: Final = "/etc/secrets/rte"
ENABLED: Final = "enabled"
DISABLED: Final = "disabled"
CUSTOM: Final = "custom"


def arguments(group: ResolvedNodeGroup, context: ExporterContext) -> list[str]:
    """The flags of ``polyarch run numa-exporter``."""
    return [
        f"--sysfs={SYSFS}",
        f"--podresources-socket=unix://{PODRESOURCES}/kubelet.sock",
        *_kubelet(group, context),
        "--refresh-node-resources",
        *_metrics(context),
        f"--node-group={shortened(group.name)}",
        f"-v={context.verbosity}",
        *_fingerprint(group),
        *_triggers(group, context),
        *(("--no-publish",) if group.settings.paused else ()),
        *(("--placement-vectors",) if _has_vectors(group, context) else ()),
        *(f"--heartbeat={value}" for value in (group.annotations.get(names.HEARTBEAT),) if value),
    ]


def _has_vectors(group: ResolvedNodeGroup, context: ExporterContext) -> bool:
    usual = ENABLED if context.evicts else DISABLED
    return group.annotations.get(names.PLACEMENT_VECTORS, usual) == ENABLED


def mounts_kubelet(group: ResolvedNodeGroup) -> bool:
    """Whether the exporter sees the kubelet's directory."""
    return group.annotations.get(names.KUBELET_STATE) != DISABLED


def is_notified(group: ResolvedNodeGroup, context: ExporterContext) -> bool:
    """Whether a hook of the container runtime tells the exporter of changes: on OpenShift, with the legacy policy."""
    return (
        group.settings.refresh_mode != "Periodic"
        and context.platform == "openshift"
        and group.annotations.get(names.SELINUX_POLICY) == CUSTOM
    )


def _kubelet(group: ResolvedNodeGroup, context: ExporterContext) -> list[str]:
    if not mounts_kubelet(group):
        return []
    found = [f"--kubelet-state-dir={KUBELET}"]
    return [*found, f"--kubelet-config-file={KUBELET}/config.yaml"] if context.asks_kubelets else found


def _metrics(context: ExporterContext) -> list[str]:
    place = ["--metrics-ip=$(POD_IP)", f"--metrics-port={METRICS_PORT}"]
    if not context.with_tls:
        return ["--metrics-mode=http", *place]
    policy = context.tls
    return [
        "--metrics-mode=httptls",
        *place,
        f"--metrics-certs-dir={CERTIFICATES}",
        *([f"--metrics-tls-min-version={policy.min_version}"] if policy.min_version else ()),
        *([f"--metrics-tls-cipher-suites={','.join(policy.ciphers)}"] if policy.ciphers else ()),
    ]


def _fingerprint(group: ResolvedNodeGroup) -> list[str]:
    match group.settings.fingerprinting:
        case "Disabled":
            return ["--pods-fingerprint=false"]
        case "Enabled":
            return ["--pods-fingerprint=true", "--pods-fingerprint-method=all"]
        case _:
            return ["--pods-fingerprint=true", "--pods-fingerprint-method=with-exclusive-resources"]


def _triggers(group: ResolvedNodeGroup, context: ExporterContext) -> list[str]:
    """Without a timer there is none: the predecessor's mode ``Events`` went on polling."""
    timed = group.settings.refresh_mode != "Events"
    told = group.settings.refresh_mode != "Periodic"
    return [
        f"--sleep-interval={go_duration(period) if (period := group.settings.refresh_period) and timed else 0}",
        f"--state-poll={'1s' if told else 0}",
        *([f"--notify-file={NOTIFY}/notify"] if is_notified(group, context) else ()),
    ]


# -- ConfigMap ---------------------------------------------------------------------------------------------------------


# The text is JSON, which is YAML. It goes by its digest into the template of the pods, so that a change replaces them.

KEY: Final = "config.yaml"
DIRECTORY: Final = "/etc/rte/extra"
"""Where the pods find it: the exporter's file of additional configuration."""


def config_map(group: ResolvedNodeGroup, context: ExporterContext, kubelet: Mapping[str, str] | None) -> Document:
    """``kubelet``: the group's settings of the topology manager; None: the exporter asks the kubelet itself."""
    content: dict[str, Any] = {"kubelet": dict(kubelet)} if kubelet is not None else {}
    if context.pod_excludes:
        content["podExclude"] = [
            {"namespacePattern": excluded.namespace, "namePattern": excluded.name} for excluded in context.pod_excludes
        ]
    text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": of_group(group.name, namespace=context.namespace),
        "data": {KEY: text},
    }


def digest(document: Document) -> str:
    """A digest of the content."""
    return hashlib.sha256(document["data"][KEY].encode()).hexdigest()[:16]


# -- OpenShift ---------------------------------------------------------------------------------------------------------


# The present policy of the machines has a type for whoever talks to the kubelet's sockets. Groups with annotation
# ``…/selinux-policy: custom`` bring a type of their own onto their machines instead, and a hook of the container
# runtime that tells the exporter of started and stopped containers, as long as clusters of that age are around.

CONSTRAINTS: Final = Resource(
    "security.openshift.io",
    "v1",
    "securitycontextconstraints",
    "SecurityContextConstraints",
    namespaced=False,
)
MACHINE_CONFIGS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "machineconfigs", "MachineConfig", namespaced=False
)
LEGACY_CONSTRAINT: Final = "resource-topology-exporter"
CONSTRAINT: Final = "resource-topology-exporter-v2"
LEGACY_TYPE: Final = "rte.process"
TYPE: Final = "container_device_plugin_t"
NOTIFY_DIRECTORY: Final = "/run/rte"
POLICY_FILE: Final = "/etc/selinux/rte.cil"
HOOK_FILE: Final = "/etc/containers/oci/hooks.d/rte-notify.json"
ROLE_LABEL: Final = "machineconfiguration.openshift.io/role"

_POLICY: Final = """\
(block rte
    (blockinherit container)
    (allow process container_var_lib_t (dir (getattr open read search)))
    (allow process container_var_lib_t (file (getattr open read)))
    (allow process container_var_lib_t (sock_file (getattr open read write)))
    (allow process container_runtime_t (unix_stream_socket (connectto)))
    (allow process kubelet_t (unix_stream_socket (connectto)))
    (allow process unconfined_service_t (unix_stream_socket (connectto)))
    (allow process sysfs_t (dir (getattr open read search)))
    (allow process sysfs_t (file (getattr open read)))
    (allow process container_var_run_t (dir (add_name getattr open read search write)))
    (allow process container_var_run_t (file (create getattr open read setattr write)))
)
"""
_UNIT: Final = f"""\
[Unit]
Description=SELinux policy of the NUMA exporters
Before=kubelet.service

[Service]
Type=oneshot
ExecStart=/usr/sbin/semodule -i {POLICY_FILE}
RemainAfterExit=true

[Install]
WantedBy=multi-user.target
"""


def is_legacy(group: ResolvedNodeGroup) -> bool:
    """The group brings an SELinux policy of its own."""
    return group.pool is not None and group.annotations.get(names.SELINUX_POLICY) == "custom"


def constraint_of(group: ResolvedNodeGroup) -> str:
    """The constraint that the pods of a group are admitted with."""
    return LEGACY_CONSTRAINT if is_legacy(group) else CONSTRAINT


def selinux_type(group: ResolvedNodeGroup, context: ExporterContext) -> str:
    """The type of the exporter's process; without effect where there is no SELinux."""
    return LEGACY_TYPE if context.platform == "openshift" and is_legacy(group) else TYPE


def constraints(context: ExporterContext) -> list[Document]:
    """Both constraints, for the exporters' ServiceAccount."""
    if not context.on_openshift:
        return []
    account = f"system:serviceaccount:{context.namespace}:{names.EXPORTER}"
    return [_constraint(name, kind, account) for name, kind in ((LEGACY_CONSTRAINT, LEGACY_TYPE), (CONSTRAINT, TYPE))]


def _constraint(name: str, selinux: str, account: str) -> Document:
    anybody: dict[str, Any] = {"type": "RunAsAny"}
    no = dict.fromkeys(
        (
            "allowHostIPC",
            "allowHostNetwork",
            "allowHostPID",
            "allowHostPorts",
            "allowPrivilegeEscalation",
            "allowPrivilegedContainer",
        ),
        False,
    )
    return {
        "apiVersion": CONSTRAINTS.api_version,
        "kind": CONSTRAINTS.kind,
        "metadata": described(name),
        **no,
        "allowHostDirVolumePlugin": True,
        "allowedCapabilities": [],
        "defaultAddCapabilities": [],
        "requiredDropCapabilities": ["ALL"],
        "readOnlyRootFilesystem": True,
        "runAsUser": anybody,
        "fsGroup": anybody,
        "supplementalGroups": anybody,
        "seLinuxContext": {"type": "MustRunAs", "seLinuxOptions": {"type": selinux, "level": "s0"}},
        "seccompProfiles": ["runtime/default"],
        "users": [account],
        "groups": [],
        "volumes": ["configMap", "hostPath", "projected", "secret"],
    }


def machine_config_name(group: ResolvedNodeGroup) -> str:
    """The name of the group's MachineConfig."""
    return f"51-{names.OPERATOR_SINGLETON}-{group.name}"


def machine_config(group: ResolvedNodeGroup) -> Document:
    """SELinux policy and hook on the machines of the group's pool."""
    pool = group.pool or {}
    selected = ((pool.get("spec") or {}).get("machineConfigSelector") or {}).get("matchLabels") or {}
    metadata = described(machine_config_name(group))
    metadata["labels"] = {**metadata["labels"], **(selected or {ROLE_LABEL: group.name})}
    hook = {
        "version": "1.0.0",
        "hook": {"path": "/usr/bin/touch", "args": ["touch", "--no-create", f"{NOTIFY_DIRECTORY}/notify"]},
        "when": {"always": True},
        "stages": ["poststart", "poststop"],
    }
    return {
        "apiVersion": MACHINE_CONFIGS.api_version,
        "kind": MACHINE_CONFIGS.kind,
        "metadata": metadata,
        "spec": {
            "config": {
                "ignition": {"version": "3.2.0"},
                "storage": {
                    "files": [
                        _file(POLICY_FILE, _POLICY),
                        _file(HOOK_FILE, msgspec.json.encode(hook).decode()),
                    ]
                },
                "systemd": {
                    "units": [{"name": "rte-selinux-policy-install.service", "enabled": True, "contents": _UNIT}]
                },
            }
        },
    }


def _file(path: str, content: str) -> Document:
    source = f"data:text/plain;charset=utf-8;base64,{base64.b64encode(content.encode()).decode()}"
    return {"path": path, "mode": 0o644, "overwrite": True, "contents": {"source": source}}


def is_settled(pool: ReadDocument, machine_config: str, *, wanted: bool) -> bool:
    """The pool has rolled out what it is made of, and our MachineConfig is part of it just if it is wanted.

    A pool that never had it and is not to have it is settled whatever else it rolls out: that is not for us to await.
    """
    status: dict[str, Any] = pool.get("status") or {}
    rolled_out = _has(status.get("configuration"), machine_config)
    target = _has((pool.get("spec") or {}).get("configuration"), machine_config)
    if not wanted:
        return not rolled_out and not target
    updated = any(
        condition.get("type") == "Updated" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    return rolled_out and updated


def _has(configuration: dict[str, Any] | None, machine_config: str) -> bool:
    return any(source.get("name") == machine_config for source in (configuration or {}).get("source") or ())


# -- serving certificate -----------------------------------------------------------------------------------------------


WITHOUT_TLS: Final = (
    "metrics are served without TLS: there is no cert-manager, and the operator has no CA of its own; install "
    "cert-manager, or set certificates: self-managed"
)


def source_of(platform: Platform, served: Collection[Resource], *, has_own_authority: bool) -> CertificateSource:
    """OpenShift's serving certificates; elsewhere cert-manager if it is there, else the operator's own CA."""
    if platform != "kubernetes":
        return "service-ca"
    if {certificates.ISSUERS, certificates.CERTIFICATES} <= set(served):
        return "cert-manager"
    return "self-managed" if has_own_authority else "none"


def cert_manager_objects(context: ExporterContext) -> list[Document]:
    """Issuer and Certificate of cert-manager."""
    if context.certificates != "cert-manager":
        return []
    home = described(names.EXPORTER_CERTIFICATE, namespace=context.namespace)
    return certificates.cert_manager_objects(home, _dns_names(context.namespace))


def to_be_signed(context: ExporterContext) -> ServingCertificate | None:
    """What the operator signs itself."""
    if context.certificates != "self-managed":
        return None
    namespace = context.namespace
    return ServingCertificate(namespace, names.EXPORTER_CERTIFICATE, _dns_names(namespace))


def _dns_names(namespace: str) -> tuple[str, ...]:
    return certificates.names_of(names.EXPORTER_SERVICE, namespace)


# -- Service and NetworkPolicies ---------------------------------------------------------------------------------------


SERVING_CERTIFICATE: Final = "service.beta.openshift.io/serving-cert-secret-name"
DENY_ALL: Final = "rte-default-deny-all"
EGRESS: Final = "rte-egress-to-api-server"
INGRESS: Final = "ingress-to-rte-metrics"
NETWORK_POLICY_NAMES: Final = (DENY_ALL, EGRESS, INGRESS)
"""The names of the NetworkPolicies."""
KUBELET_PORT: Final = 10250
DNS_PORTS: Final = (53, 5353)
"""DNS servers of OpenShift listen on 5353 behind their Service."""


def service(context: ExporterContext) -> Document:
    """Headless: each exporter is scraped by itself. On OpenShift an annotation makes the certificate."""
    metadata = described(names.EXPORTER_SERVICE, namespace=context.namespace)
    if context.certificates == "service-ca":
        metadata["annotations"] = {SERVING_CERTIFICATE: names.EXPORTER_CERTIFICATE}
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": dict(names.EXPORTER_POD_LABELS),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP"}],
        },
    }


def network_policies(context: ExporterContext) -> list[Document]:
    """Nothing but scrapes in; out to the API server, to DNS, and where the kubelet is asked, to its port."""
    if not context.settings.network_policies:
        return []
    ports = [*context.api_server_ports, *([KUBELET_PORT] if context.asks_kubelets else ())]
    dns = [{"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return [
        _policy(DENY_ALL, {"policyTypes": ["Ingress", "Egress"]}, context),
        _policy(
            EGRESS,
            {"policyTypes": ["Egress"], "egress": [{"ports": _tcp(*ports)}, {"ports": dns}]},
            context,
        ),
        _policy(
            INGRESS,
            {"policyTypes": ["Ingress"], "ingress": [{"ports": _tcp(METRICS_PORT)}]},
            context,
        ),
    ]


def _tcp(*ports: int) -> list[Document]:
    return [{"protocol": "TCP", "port": port} for port in sorted(set(ports))]


def _policy(name: str, spec: Mapping[str, object], context: ExporterContext) -> Document:
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": described(name, namespace=context.namespace),
        "spec": {"podSelector": {"matchLabels": dict(names.EXPORTER_POD_LABELS)}, **spec},
    }


# -- permissions -------------------------------------------------------------------------------------------------------


# RBAC cannot tell one exporter from another: all have one ServiceAccount. The API server can, since the token of a pod
# names its node and the pod itself, so a ValidatingAdmissionPolicy rejects writes of another node's object.

OWN_PODS: Final = (rule(PODS, "get"), rule(PODS, "patch", subresource="status"))
"""The rules in the exporters' namespace."""


def cluster_rules(context: ExporterContext) -> tuple[PolicyRule, ...]:
    """The rules of ClusterRole ``rte``: no secrets, no delete, no ``nodes/proxy``, no wildcard. Nodes are always asked
    for by the name of the own one, and the kubelet asks the API server whether its ``configz`` may be read."""
    return (
        rule(TOPOLOGIES, "get", "list", "watch", "create", "update", "patch"),
        rule(NODES, "get", "list", "watch"),
        *((rule(NODES, "get", subresource="configz"),) if context.asks_kubelets else ()),
    )


def rbac_objects(context: ExporterContext) -> list[Document]:
    """ServiceAccount, roles, bindings."""
    home, account = context.namespace, names.EXPORTER
    marks, subjects = labels(shared.NUMA_EXPORTER), [(home, account)]
    return [
        {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": described(account, namespace=home),
        },
        role(account, cluster_rules(context), labels=marks),
        binding(account, subjects, labels=marks),
        role(account, OWN_PODS, namespace=home, labels=marks),
        binding(account, subjects, namespace=home, labels=marks),
    ]


def node_policy(context: ExporterContext) -> list[Document]:
    """The ValidatingAdmissionPolicy and its binding."""
    strict = context.version >= TOKENS_NAME_NODES
    subject = f'request.resource.resource == "{TOPOLOGIES.plural}"'
    return policy_documents(
        described(names.EXPORTER_POLICY),
        [
            resource_rule(TOPOLOGIES, "CREATE", "UPDATE", "DELETE", versions="*"),
            resource_rule(PODS, "UPDATE", subresource="status"),
        ],
        {
            "an exporter writes the NodeResourceTopology of its own node alone": (
                f"!({subject}) || {is_in_token(NODE_IN_TOKEN, 'request.name', strict=strict)}"
            ),
            "an exporter writes the status of its own Pod alone": (
                f"({subject}) || {is_in_token(POD_IN_TOKEN, 'request.name', strict=strict)}"
            ),
        },
        account=(context.namespace, names.EXPORTER),
        condition="exporter",
    )
