"""The objects of the secondary scheduler: the stock kube-scheduler with its configuration, and the extender beside it.

Names are those that tools know. What the stock scheduler may do is bound to it by the roles that Kubernetes itself
keeps for its own scheduler, so that a resource which a later version needs takes no change here. Pure.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from polyarch import names
from polyarch.kube import events
from polyarch.kube.owners import Owner
from polyarch.kube.rbac import GROUP, PolicyRule, granted, path_rule, rule
from polyarch.kube.resources import CLUSTER_ROLES, LEASES, NODES, POD_DISRUPTION_BUDGETS, PODS, SERVICES, Resource
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.names import CONFIG_HASH, EXTENDER_PORT, KICK, SCHEDULER, STATE_PATH, STATUS_PORT
from polyarch.operator import operands
from polyarch.operator.components.alerts import SCHEDULING
from polyarch.operator.monitoring import SERVICE_MONITORS
from polyarch.operator.owned_objects import Document, finished, labels, metadata, owned
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

ROLE: Final = "topology-aware-scheduler"
"""ClusterRole and ClusterRoleBinding with what the extender reads."""
ELECTION_ROLE: Final = "topology-aware-scheduler-leader-elect"
KICK_ROLE: Final = "topology-aware-scheduler-kick"
CONFIG: Final = "topo-aware-scheduler-config"
EXTENDER_CONFIG: Final = "numa-extender-config"
FILE: Final = "config.yaml"
EXTENDER: Final = "numa-extender"
"""Name of the extender's container, and of its role."""
DENY_ALL: Final = "scheduler-default-deny-all"
EGRESS: Final = "scheduler-egress-to-api-server"
INGRESS: Final = "ingress-to-scheduler-metrics"
NETWORK_POLICY_NAMES: Final = (DENY_ALL, EGRESS, INGRESS)
READER_BINDING: Final = f"{ROLE}-authentication-reader"
SELECTED: Final = {"app": SCHEDULER}
"""Label of the scheduler's pods."""
KUBE_SYSTEM: Final = "kube-system"
BOUND_CLUSTER_ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")
"""Roles of Kubernetes' own scheduler that are bound to this one."""
AUTHENTICATION_READER: Final = "extension-apiserver-authentication-reader"
"""A Role of kube-system: whoever serves requests of users reads there whom the API server trusts."""
CAPACITIES: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")

SCHEDULER_PORT: Final = 10259
_SCHEDULER_DIRECTORY: Final = "/etc/kubernetes"
_EXTENDER_DIRECTORY: Final = "/etc/polyarch/numa"
_DUMPS: Final = "/run/pfpstatus"
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
NOBODY: Final = 65532
"""User of the stock image's processes, which names none."""

Sizes = tuple[dict[str, str], dict[str, str]]
_USUAL: Final[Sizes] = ({"cpu": "150m", "memory": "500Mi"}, {"cpu": "50m", "memory": "128Mi"})
_GUARANTEED: Final[Sizes] = ({"cpu": "600m", "memory": "1200Mi"}, {"cpu": "200m", "memory": "512Mi"})


class SchedulerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the objects follow from, all decided."""

    settings: SchedulerSettings
    operator: OperatorSettings
    owner: Owner | None
    image: str
    """Image of the kube-scheduler."""
    replicas: int
    on_control_plane: bool
    """The candidates are the control-plane nodes."""
    image_architectures: tuple[str, ...] | None = None
    """Linux architectures of ``image``; None: nobody can say."""
    guaranteed: bool = False
    """The pod asks for as much as it may use."""
    cluster: ClusterCapabilities = ClusterCapabilities()
    api_server_ports: tuple[int, ...] = ()

    @property
    def home(self) -> str:
        return self.operator.numa_home


def scheduler_objects(parts: SchedulerParts) -> list[Document]:
    """All of them, in the order of applying."""
    configurations = _configurations(parts)
    documents = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(SCHEDULER, parts.home)},
        *_rights(parts),
        *configurations,
        *(_network_policies(parts) if parts.operator.network_policies else ()),
        *(scraped(parts.home, SCHEDULER_PORT) if parts.cluster.monitoring else ()),
        _deployment(parts, _digest(configurations)),
    ]
    return [owned(finished(document), parts.owner) for document in documents]


def extender_rules(*, preempts: bool) -> tuple[PolicyRule, ...]:
    """What the extender may do in the whole cluster."""
    return (
        rule(TOPOLOGIES, "get", "list", "watch"),
        rule((NODES, PODS), "get", "list", "watch"),
        *events.RIGHTS,
        *SCRAPER_RIGHTS,
        *(
            (
                rule(POD_DISRUPTION_BUDGETS, "list", "watch"),
                rule(PODS, "create", subresource="eviction"),
                rule(PODS, "patch", subresource="status"),
            )
            if preempts
            else ()
        ),
    )


def reader_rules() -> tuple[PolicyRule, ...]:
    """What a token of the account is good for: ``polyarch numa top`` of a user who has a certificate and no token."""
    return (path_rule(STATE_PATH, "get"),)


def election_rules() -> tuple[PolicyRule, ...]:
    """The Lease of the scheduler's replicas."""
    return (rule(LEASES, "get", "update", "patch", names=[LEASE]), rule(LEASES, "create"))


def kick_rules() -> tuple[PolicyRule, ...]:
    """The object by which rejected pods are woken."""
    return (rule(CAPACITIES, "get", "patch", names=[KICK]), rule(CAPACITIES, "create"))


def _metadata(name: str, namespace: str = "") -> Document:
    placed = {"namespace": namespace} if namespace else {}
    return {"name": name} | placed | {"labels": labels(names.NUMA_SCHEDULER)}


def _rights(parts: SchedulerParts) -> list[Document]:
    home, marks = parts.home, labels(names.NUMA_SCHEDULER)
    account = [(home, SCHEDULER)]
    return [
        *granted(ROLE, [*extender_rules(preempts=parts.settings.evicts), *reader_rules()], account, labels=marks),
        *(_bound(role, home) for role in BOUND_CLUSTER_ROLES),
        *granted(ELECTION_ROLE, election_rules(), account, namespace=home, labels=marks),
        *granted(KICK_ROLE, kick_rules(), account, namespace=home, labels=marks),
        {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": "RoleBinding",
            "metadata": _metadata(READER_BINDING, KUBE_SYSTEM),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": AUTHENTICATION_READER},
            "subjects": _subjects(home),
        },
    ]


def bound_name(role: str) -> str:
    """The binding of one of Kubernetes' own roles."""
    return f"{ROLE}-as-{role.removeprefix('system:')}"


def _bound(role: str, home: str) -> Document:
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(bound_name(role)),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": _subjects(home),
    }


def _subjects(home: str) -> list[Document]:
    return [{"kind": "ServiceAccount", "name": SCHEDULER, "namespace": home}]


def _configurations(parts: SchedulerParts) -> list[Document]:
    scheduler = scheduler_configuration(parts.settings, namespace=parts.home)
    extender = extender_configuration(parts.settings)
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(name, parts.home),
            "data": {FILE: text(content)},
        }
        for name, content in ((CONFIG, scheduler), (EXTENDER_CONFIG, extender))
    ]


def _digest(configurations: Sequence[Document]) -> str:
    content = msgspec.json.encode([document["data"] for document in configurations], order="sorted")
    return hashlib.sha256(content).hexdigest()[:16]


def _network_policies(parts: SchedulerParts) -> list[Document]:
    # DNS servers of OpenShift listen on 5353 behind their Service.
    dns = [{"protocol": protocol, "port": port} for port in (53, 5353) for protocol in ("UDP", "TCP")]
    servers = [{"protocol": "TCP", "port": port} for port in parts.api_server_ports]
    ports = [{"protocol": "TCP", "port": port} for port in (STATUS_PORT, SCHEDULER_PORT)]
    specs: dict[str, Document] = {
        DENY_ALL: {"policyTypes": ["Ingress", "Egress"]},
        EGRESS: {"policyTypes": ["Egress"], "egress": [{"ports": dns}, {"ports": servers}]},
        INGRESS: {"policyTypes": ["Ingress"], "ingress": [{"ports": ports}]},
    }
    if not servers:  # the port is not known, and a rule without ports would open all of them
        del specs[EGRESS]["egress"][1]
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _metadata(name, parts.home),
            "spec": {"podSelector": {"matchLabels": SELECTED}, **rules},
        }
        for name, rules in specs.items()
    ]


def _deployment(parts: SchedulerParts, digest: str) -> Document:
    described = _metadata(SCHEDULER, parts.home)
    marks = SELECTED | labels(names.NUMA_SCHEDULER)
    annotations = operands.pod_annotations(parts.cluster) | {CONFIG_HASH: digest}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**described, "labels": described["labels"] | SELECTED},
        "spec": {
            "replicas": parts.replicas,
            "selector": {"matchLabels": SELECTED},
            "template": {"metadata": {"labels": marks, "annotations": annotations}, "spec": _pod(parts)},
        },
    }


def _pod(parts: SchedulerParts) -> Document:
    scheduling = operands.scheduling(parts.operator)
    if "priorityClassName" in scheduling:
        scheduling["priorityClassName"] = "system-node-critical"
    masters = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in CONTROL_PLANE_KEYS]
    scheduling["tolerations"] = [*masters, *scheduling.get("tolerations", ())]
    return {
        "serviceAccountName": SCHEDULER,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        **scheduling,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(parts)},
            **operands.apart(SELECTED),
        },
        "topologySpreadConstraints": operands.spread(SELECTED),
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_scheduler(parts), _extender(parts)],
        "volumes": [
            {"name": "scheduler-config", "configMap": {"name": CONFIG}},
            {"name": "extender-config", "configMap": {"name": EXTENDER_CONFIG}},
            {"name": "dumps", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    }


def _nodes(parts: SchedulerParts) -> Document:
    """The nodes that both images run on; with a visible control plane, its nodes alone (terms are alternatives)."""
    own, theirs = parts.cluster.image_architectures, parts.image_architectures
    needed = operands.runnable([each for each in own if theirs is None or each in theirs])
    keys: Sequence[str | None] = CONTROL_PLANE_KEYS if parts.on_control_plane else (None,)
    terms = [
        {"matchExpressions": [*needed, *([{"key": key, "operator": "Exists"}] if key is not None else ())]}
        for key in keys
    ]
    return {"nodeSelectorTerms": terms}


def _scheduler(parts: SchedulerParts) -> Document:
    return {
        "name": SCHEDULER,
        "image": parts.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["kube-scheduler"],
        "args": [f"--config={_SCHEDULER_DIRECTORY}/{FILE}", f"-v={parts.settings.verbosity}"],
        "ports": [{"name": "scheduler", "containerPort": SCHEDULER_PORT, "protocol": "TCP"}],
        **operands.probes(port=SCHEDULER_PORT, scheme="HTTPS", readiness="/healthz"),
        "resources": _resources(parts.guaranteed, 0),
        "securityContext": _confined(None if parts.cluster.openshift else NOBODY),
        "volumeMounts": [{"name": "scheduler-config", "mountPath": _SCHEDULER_DIRECTORY, "readOnly": True}],
    }


def _extender(parts: SchedulerParts) -> Document:
    return {
        "name": EXTENDER,
        "image": parts.operator.image,
        "imagePullPolicy": parts.operator.image_pull_policy,
        "args": [
            *("run", EXTENDER),
            f"--config={_EXTENDER_DIRECTORY}/{FILE}",
            f"--listen=127.0.0.1:{EXTENDER_PORT}",
            f"--status-listen=:{STATUS_PORT}",
            f"-v={parts.settings.verbosity}",
        ],
        "env": operands.environment(),
        "ports": [{"name": "status", "containerPort": STATUS_PORT, "protocol": "TCP"}],
        **operands.probes(port=STATUS_PORT, scheme="HTTPS"),
        "resources": _resources(parts.guaranteed, 1),
        "securityContext": _confined(None),
        "volumeMounts": [
            {"name": "extender-config", "mountPath": _EXTENDER_DIRECTORY, "readOnly": True},
            {"name": "dumps", "mountPath": _DUMPS},
        ],
    }


def _resources(guaranteed: bool, which: int) -> dict[str, Any]:
    if guaranteed:
        return {"requests": _GUARANTEED[which], "limits": _GUARANTEED[which]}
    return {"requests": _USUAL[which]}


def _confined(user: int | None) -> Document:
    return ({"runAsUser": user, "runAsGroup": user} if user is not None else {}) | {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


# -- configurations ----------------------------------------------------------------------------------------------------


# Both are files of ConfigMaps, written as JSON, which every reader of YAML reads. Neither is ever merged into the
# configuration of another scheduler.

LEASE: Final = "numa-scheduler-leader"
SEVERAL: Final = 10
"""Weight of the extender's scores where in-tree scores take part."""
RATE: Final = 300
"""Requests per second to the API server. The scheduler's own default of 50 binds at most 50 pods a second."""

WITHOUT_PREEMPTION: Final[Document] = {"plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}}
"""Of a profile: without the in-tree plugin that evicts pods by the sums of a node."""


def scheduler_configuration(settings: SchedulerSettings, *, namespace: str) -> Document:
    """KubeSchedulerConfiguration with one profile and the extender.

    A single replica elects, too: while its Deployment is rolled out there are two, with reservations of their own.
    Without ``percentageOfNodesToScore`` it would look at a sample of the nodes of a large cluster, and miss those that
    fit. ``managedResources`` stays empty: it cannot name cpu or memory.

    In-tree preemption evicts nobody: it would do so until the sums of a node do, whether or not a NUMA zone comes free.
    Where the extender evicts, the plugin proposes nodes and victims, and is told each time that none will do. Else it
    is disabled, at every extension point: the preemption of pod groups uses it wherever it is enabled.
    """
    extender: Document = {
        "urlPrefix": f"http://127.0.0.1:{EXTENDER_PORT}/numa",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "ignorable": settings.ignorable,
        "httpTimeout": "5s",
    }
    if settings.evicts:
        extender |= {"preemptVerb": "preempt"}
    if weight := _weight(settings):
        extender |= {"prioritizeVerb": "prioritize", "weight": weight}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": LEASE,
            "resourceNamespace": namespace,
            "resourceLock": "leases",
        },
        "clientConnection": {"qps": RATE, "burst": 2 * RATE},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": settings.name} | ({} if settings.evicts else WITHOUT_PREEMPTION)],
        "extenders": [extender],
    }


def extender_configuration(settings: SchedulerSettings) -> Document:
    """What the extender reads. A resync period of 0 turns reservations off, in every mode."""
    return {
        "mode": settings.mode,
        "schedulerName": settings.name,
        "restricted": settings.restricted_policy,
        "candidates": settings.candidates,
        "reservations": "on" if settings.resync_period else "off",
        "resyncDebug": settings.resync_debug,
        "foreign": "all" if settings.detection == "Aggressive" else "exclusive",
        "strategy": settings.scoring,
        "weights": dict(settings.scored),
        "preempt": settings.evicts,
    }


def text(configuration: Document) -> str:
    """The configuration as the content of a file."""
    return msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode() + "\n"


def _weight(settings: SchedulerSettings) -> int:
    """0: it only filters, since it names the one best node itself."""
    return SEVERAL if settings.mode == "advise" or settings.candidates > 1 else 0


# -- monitoring --------------------------------------------------------------------------------------------------------


# The objects exist iff their kinds are served. Both containers make their serving certificates themselves, as the stock
# kube-scheduler does, so there is no CA to check them by.

SERVICE: Final = "secondary-scheduler-metrics"
_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def scraped(namespace: str, scheduler_port: int) -> list[Document]:
    """A headless Service, so that each pod is read by itself; its ServiceMonitor; the alerts."""
    home = metadata(SERVICE, names.NUMA_SCHEDULER, namespace=namespace)
    ports = {"metrics": STATUS_PORT, "scheduler": scheduler_port}
    return [
        {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": home,
            "spec": {
                "clusterIP": "None",
                "selector": {"app": SCHEDULER},
                "ports": [
                    {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()
                ],
            },
        },
        {
            "apiVersion": SERVICE_MONITORS.api_version,
            "kind": SERVICE_MONITORS.kind,
            "metadata": home,
            "spec": {
                "selector": {"matchLabels": {names.CONTROLLER_LABEL: names.NUMA_SCHEDULER}},
                "namespaceSelector": {"matchNames": [namespace]},
                "endpoints": [
                    {
                        "port": name,
                        "path": "/metrics",
                        "scheme": "https",
                        "bearerTokenFile": _TOKEN,
                        "tlsConfig": {"insecureSkipVerify": True},
                        "honorLabels": True,
                    }
                    for name in ports
                ],
            },
        },
        SCHEDULING.document(namespace),
    ]
