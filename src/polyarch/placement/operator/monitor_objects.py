"""Objects of the exec-format-error monitor: the node side's DaemonSet and the handler's Deployment (PL-600, PL-631).

The operator makes them while the monitor is enabled. What can be made is in this one list, so that disabling the
monitor forgets nothing (PL-630); its ServiceMonitor and PrometheusRules are those of ``monitoring``. Pure.
"""

from typing import Final

from polyarch.kube import events, lease
from polyarch.kube.rbac import Rule
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operating import workloads
from polyarch.operating.labels import Document, labels, metadata
from polyarch.operating.rights import Rights, roles, service_account
from polyarch.operating.settings import Cluster, OperatorSettings
from polyarch.operating.workloads import Workload
from polyarch.placement import names
from polyarch.placement.exec_monitor_handler import HANDLER_NAMESPACE_RULES, HANDLER_RULES
from polyarch.placement.exec_monitor_node import NODE_AGENT_RULES

TRACEFS: Final = "/sys/kernel/tracing"
POD_LOGS: Final = "/var/log/pods"
NODE_SIDE: Final = "node-side"
"""Name of the node side's container."""

_PRIVILEGED: Final = Rule("security.openshift.io", ("securitycontextconstraints",), ("use",), ("privileged",))


def workload(settings: OperatorSettings, *, verbose: bool = False) -> Workload:
    """The handler."""
    return Workload(
        name=names.ENOEXEC_HANDLER,
        container="handler",
        role="exec-monitor",
        replicas=settings.handler_replicas,
        cpu="25m",
        memory="64Mi",
        memory_limit="256Mi",
        arguments=("--side=handler", *_log_level(verbose)),
    )


def objects(settings: OperatorSettings, cluster: Cluster, *, verbose: bool = False) -> list[Document]:
    """All objects of the monitor, in the order of applying; the finalizer on the handler's Deployment included.

    ``verbose``: its roles log details. They may not read the ClusterPodPlacementConfig, so they get a flag (PL-010).
    """
    home = settings.namespace
    handling = workloads.objects(workload(settings, verbose=verbose), settings, cluster)
    for each in handling:
        if each["kind"] == "Deployment":
            each["metadata"]["finalizers"] = [names.ENOEXEC_EVENTS_FINALIZER]
    return [
        *(service_account(name, home) for name in (names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON)),
        *(
            document
            for account, allowed in rights(settings, cluster).items()
            for document in roles(account, allowed, home)
        ),
        *handling,
        daemon_set(settings, cluster, verbose=verbose),
    ]


def rights(settings: OperatorSettings, cluster: Cluster) -> dict[str, Rights]:
    """The rules of handler and node side, by the name of their ServiceAccount (PL-550)."""
    home = settings.namespace
    return {
        names.ENOEXEC_HANDLER: Rights(
            cluster=(*HANDLER_RULES, *events.RIGHTS, *SCRAPER_RIGHTS),
            namespaces={home: (*HANDLER_NAMESPACE_RULES, *lease.rights(names.ENOEXEC_LEASE))},
        ),
        names.ENOEXEC_DAEMON: Rights(
            cluster=(_PRIVILEGED,) if cluster.openshift else (),
            namespaces={home: NODE_AGENT_RULES},
        ),
    }


def daemon_set(settings: OperatorSettings, cluster: Cluster, *, verbose: bool = False) -> Document:
    """The node side on every Linux node that our image runs on, whatever its taints (PL-600)."""
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
                "spec": _pod(settings, verbose=verbose),
            },
        },
    }


def _pod(settings: OperatorSettings, *, verbose: bool) -> Document:
    """The kernel's pids are those of the host, hence ``hostPID``. Not all of :func:`workloads.scheduling` applies: a
    node selector would leave nodes unwatched."""
    required = [
        {"key": names.ARCH_KEY, "operator": "In", "values": list(workloads.ARCHITECTURES)},
        {"key": names.OS_KEY, "operator": "In", "values": ["linux"]},
    ]
    terms = [{"matchExpressions": required}]
    scheduling = workloads.scheduling(settings)
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
    """PL-631: uid 0 owns tracefs; no capability is needed.

    It has no certificate: the Secret has the webhook's key, which must not lie on every node. So its metrics, counts
    alone, are served without TLS. The CPU limit is for a pod that fails to execute something a million times.
    """
    named = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    flags = ["--side=node", "--node-name=$(NODE_NAME)", "--namespace=$(POD_NAMESPACE)", "--bind=$(POD_IP)"]
    ports = {"metrics": workloads.METRICS_PORT, "health": workloads.HEALTH_PORT}
    return {
        "name": NODE_SIDE,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["run", "exec-monitor", *flags, *_log_level(verbose)],
        "env": [*workloads.environment(), named],
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports.items()],
        **workloads.probes(),
        "resources": {
            "requests": {"cpu": "25m", "memory": "48Mi"},
            "limits": {"cpu": "250m", "memory": "128Mi"},
        },
        "securityContext": {
            "runAsUser": 0,
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
