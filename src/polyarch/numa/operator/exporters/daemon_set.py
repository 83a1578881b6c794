"""The DaemonSet of a group: an exporter on each of its nodes (NO-051, NO-053 – NO-056, NE-142). Pure."""

from collections.abc import Mapping
from typing import Any, Final

from polyarch.numa import names
from polyarch.numa.api.settings import TOLERATES_ALL
from polyarch.numa.operator.exporters import arguments as flags
from polyarch.numa.operator.exporters import config_map, openshift
from polyarch.numa.operator.exporters.surroundings import METRICS_PORT, Surroundings, group_label, of_group
from polyarch.numa.operator.groups import Group
from polyarch.operating import names as shared
from polyarch.operating import workloads
from polyarch.operating.labels import Document, labels
from polyarch.selectors import Selector

PRIORITY_CLASS: Final = "system-node-critical"
SLEEPER: Final = """\
import signal
ends = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
signal.sigwait(ends)
"""
"""Waits to be ended. The first process of a container gets only signals that it has asked for."""


def daemon_set(group: Group, surroundings: Surroundings, *, config_digest: str) -> Document:
    """``config_digest``: of the group's ConfigMap; another one replaces the pods."""
    selected = {**names.EXPORTER_POD_LABELS, **group_label(group.name)}
    annotations = {names.CONFIG_HASH: config_digest}
    if surroundings.on_openshift:
        annotations["openshift.io/required-scc"] = openshift.constraint_of(group)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": of_group(group.name, namespace=surroundings.namespace),
        "spec": {
            "selector": {"matchLabels": selected},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": labels(shared.NUMA_EXPORTER) | selected, "annotations": annotations},
                "spec": _pod(group, surroundings, config=of_group(group.name, namespace="")["name"]),
            },
        },
    }


def _pod(group: Group, surroundings: Surroundings, *, config: str) -> Document:
    settings = surroundings.settings
    secrets = [{"name": name} for name in settings.image_pull_secrets]
    return {
        "serviceAccountName": names.EXPORTER,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 15,
        "priorityClassName": PRIORITY_CLASS,
        **({"imagePullSecrets": secrets} if secrets else {}),
        "readinessGates": [{"conditionType": each} for each in names.READINESS_GATES],
        "nodeSelector": {shared.OS_KEY: "linux"},
        "affinity": _affinity(group.selector),
        "tolerations": [dict(each) for each in group.settings.tolerations or (TOLERATES_ALL,)],
        "containers": [
            _exporter(group, surroundings),
            *([_reference(surroundings)] if _has_reference(group) else ()),
        ],
        "volumes": _volumes(group, surroundings, config=config),
    }


def _affinity(selector: Selector) -> Document:
    """On the nodes of the group, and never two exporters on one node, which would write one object."""
    apart = {"labelSelector": {"matchLabels": names.EXPORTER_POD_LABELS}, "topologyKey": "kubernetes.io/hostname"}
    affinity: Document = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    if not selector.requirements:
        return affinity
    expressions = [
        {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
        for each in selector.requirements
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}} | affinity


def _exporter(group: Group, surroundings: Surroundings) -> Document:
    settings = surroundings.settings
    return {
        "name": names.EXPORTER_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy or "IfNotPresent",
        "args": ["run", "numa-exporter", *flags.arguments(group, surroundings)],
        "env": _environment(group),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        **workloads.probes(port="metrics", scheme="HTTPS" if surroundings.with_tls else "HTTP"),
        "resources": {"requests": {"cpu": "30m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        # The kubelet's socket and state belong to root, and SELinux has a type for whoever may use the socket.
        "securityContext": _confined()
        | {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "seLinuxOptions": {"type": openshift.selinux_type(group, surroundings), "level": "s0"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_mounted(*each) for each in _mounts(group, surroundings)],
    }


def _environment(group: Group) -> list[Document]:
    found = [*workloads.environment(), *_told({"NODE_NAME": "spec.nodeName", "HOST_IP": "status.hostIP"})]
    if not _has_reference(group):
        return found
    found += _told({"REFERENCE_NAMESPACE": "metadata.namespace", "REFERENCE_POD_NAME": "metadata.name"})
    return [*found, {"name": "REFERENCE_CONTAINER_NAME", "value": names.REFERENCE_CONTAINER}]


def _told(paths: Mapping[str, str]) -> list[Document]:
    """Variables with a value of the pod itself."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]


def _reference(surroundings: Surroundings) -> Document:
    """A container of the shared pool, for kubelets that list CPUs of the pool as those of a container (NE-065)."""
    settings = surroundings.settings
    return {
        "name": names.REFERENCE_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy or "IfNotPresent",
        "command": ["python3", "-c", SLEEPER],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": _confined() | {"runAsUser": 65532, "runAsNonRoot": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _has_reference(group: Group) -> bool:
    return group.annotations.get(names.REFERENCE) == flags.ENABLED


def _confined() -> dict[str, Any]:
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _mounts(group: Group, surroundings: Surroundings) -> list[tuple[str, str, bool]]:
    """Volume, path, whether it is read-only. Everything of the host is, but for the file that a hook touches."""
    return [
        ("host-sys", flags.SYSFS, True),
        ("host-podresources", flags.PODRESOURCES, True),
        *([("host-kubelet", flags.KUBELET, True)] if flags.mounts_kubelet(group) else ()),
        *([("host-run-rte", flags.NOTIFY, False)] if flags.is_notified(group, surroundings) else ()),
        ("config", config_map.DIRECTORY, True),
        *([("certificate", flags.CERTIFICATES, True)] if surroundings.with_tls else ()),
    ]


def _mounted(name: str, path: str, read_only: bool) -> Document:
    # Volumes of pods are mounted below the kubelet's directory. Without propagation the exporter would keep those that
    # were there when it started, and no device of them could be detached.
    propagated = {"mountPropagation": "HostToContainer"} if path == flags.KUBELET else {}
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {}) | propagated


def _volumes(group: Group, surroundings: Surroundings, *, config: str) -> list[Document]:
    root = group.annotations.get(names.KUBELET_ROOT) or surroundings.settings.kubelet_root
    sources: Mapping[str, Document] = {
        "host-sys": {"hostPath": {"path": "/sys", "type": "Directory"}},
        "host-podresources": {"hostPath": {"path": f"{root}/pod-resources", "type": "Directory"}},
        "host-kubelet": {"hostPath": {"path": root, "type": "Directory"}},
        "host-run-rte": {"hostPath": {"path": openshift.NOTIFY_DIRECTORY, "type": "DirectoryOrCreate"}},
        "config": {"configMap": {"name": config}},
        "certificate": {"secret": {"secretName": names.EXPORTER_CERTIFICATE}},
    }
    return [{"name": name} | sources[name] for name, _, _ in _mounts(group, surroundings)]
