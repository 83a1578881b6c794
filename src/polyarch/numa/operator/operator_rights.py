"""What the operator itself may do for NUMA (NO-120).

As everywhere it holds all that it may have to grant, and by name whatever RBAC can tell by name. Three roles of
Kubernetes' own it may bind without holding them, since what they allow is another thing in every version; the right is
to bind exactly these. DaemonSets and ConfigMaps have the names of node groups, which nobody knows beforehand. Pure.
"""

from typing import Final

from polyarch.kube import events
from polyarch.kube.rbac import Rule, managing, rule, union
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    Resource,
)
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.names import KICK
from polyarch.numa.operator.detection import CLUSTER_VERSIONS, INFRASTRUCTURES
from polyarch.numa.operator.exporters import network
from polyarch.numa.operator.exporters import rights as exporters
from polyarch.numa.operator.exporters.openshift import CONSTRAINT, CONSTRAINTS, LEGACY_CONSTRAINT, MACHINE_CONFIGS
from polyarch.numa.operator.exporters.surroundings import Surroundings
from polyarch.numa.operator.kubelet_configs import HOSTED_NAMESPACE, KUBELET_CONFIGS
from polyarch.numa.operator.observed import API_SERVERS, POOLS
from polyarch.numa.operator.scheduler import objects as scheduler
from polyarch.numa.operator.scheduler import scraping
from polyarch.operating import names as shared
from polyarch.operating import serving
from polyarch.operating.monitoring.scraping import RULES, SERVICE_MONITORS
from polyarch.operating.rights import Rights
from polyarch.operating.settings import Cluster, OperatorSettings

AUTHORITY: Final = "polyarch-numa-ca"
"""Secret with the CA of the exporters' certificate, and its key."""
_SINGLETONS: Final = ((OPERATORS, names.OPERATOR_SINGLETON), (SCHEDULERS, names.SCHEDULER_SINGLETON))
_NAMED: Final[tuple[tuple[Resource, tuple[str, ...]], ...]] = (
    (SERVICE_ACCOUNTS, (names.EXPORTER, names.SCHEDULER)),
    (SERVICES, (names.EXPORTER_SERVICE, scraping.SERVICE)),
    (NETWORK_POLICIES, (*network.NAMES, *scheduler.NETWORK_POLICY_NAMES)),
    (DEPLOYMENTS, (names.SCHEDULER,)),
    (ROLES, (names.EXPORTER, scheduler.ELECTION_ROLE, scheduler.KICK_ROLE)),
    (ROLE_BINDINGS, (names.EXPORTER, scheduler.ELECTION_ROLE, scheduler.KICK_ROLE)),
    (RULES, (shared.NUMA_EXPORTER, shared.NUMA_SCHEDULER)),
    (SERVICE_MONITORS, (scraping.SERVICE,)),
    (serving.ISSUERS, (names.EXPORTER_CERTIFICATE,)),
    (serving.CERTIFICATES, (names.EXPORTER_CERTIFICATE,)),
)
"""In the namespace of exporters and scheduler."""
_IN_CLUSTER: Final[tuple[tuple[Resource, tuple[str, ...]], ...]] = (
    (CLUSTER_ROLES, (names.EXPORTER, scheduler.ROLE)),
    (
        CLUSTER_ROLE_BINDINGS,
        (names.EXPORTER, scheduler.ROLE, *map(scheduler.bound_name, scheduler.BOUND_CLUSTER_ROLES)),
    ),
    (VALIDATING_POLICIES, (names.EXPORTER_POLICY,)),
    (VALIDATING_POLICY_BINDINGS, (names.EXPORTER_POLICY,)),
)
_SECRETS: Final = (names.EXPORTER_CERTIFICATE, AUTHORITY)


def operator_rights(settings: OperatorSettings, cluster: Cluster) -> Rights:
    """The rules beyond those that the operator has for itself."""
    home = settings.numa_home
    namespaces: dict[str, tuple[Rule, ...]] = {
        home: union(
            *(each for resource, known in _NAMED for each in managing(resource, known)),
            rule(DAEMONSETS, "get", "list", "watch", "create", "patch", "delete"),
            rule(CONFIGMAPS, "get", "list", "watch", "create", "patch", "delete"),
            rule(SECRETS, "get", "patch", names=_SECRETS),
            rule(SECRETS, "create"),
            rule(PODS, "list"),
            rule(scheduler.CAPACITIES, "get", "delete", names=[KICK]),
            # granted
            *exporters.OWN_PODS,
            *scheduler.election_rules(),
            *scheduler.kick_rules(),
        ),
        scheduler.KUBE_SYSTEM: (
            *managing(ROLE_BINDINGS, (scheduler.READER_BINDING,)),
            rule(ROLES, "bind", names=[scheduler.AUTHENTICATION_READER]),
        ),
        "default": (rule(ENDPOINT_SLICES, "list", "watch", names=["kubernetes"]),),
    }
    if cluster.openshift:
        namespaces[HOSTED_NAMESPACE] = (rule(CONFIGMAPS, "list", "watch"),)
    return Rights(
        cluster=union(
            rule((OPERATORS, SCHEDULERS), "get", "list", "watch"),
            rule((OPERATORS, SCHEDULERS), "patch", subresource="status"),
            *(rule(resource, "patch", names=[name]) for resource, name in _SINGLETONS),
            rule(NODES, "list", "watch"),
            rule(TOPOLOGIES, "list", "delete"),
            rule(CRDS, "get", "list", "watch", "patch", names=[str(TOPOLOGIES)]),
            rule(CRDS, "create"),
            rule(NAMESPACES, "get", "list", "watch", *(("patch",) if settings.manage_namespace else ()), names=[home]),
            *(each for resource, known in _IN_CLUSTER for each in managing(resource, known)),
            rule(CLUSTER_ROLES, "bind", names=scheduler.BOUND_CLUSTER_ROLES),
            *events.RIGHTS,
            *(_on_openshift() if cluster.openshift else ()),
            # granted
            *exporters.cluster_rules(Surroundings(settings=settings)),
            *scheduler.extender_rules(preempts=True),
            *scheduler.reader_rules(),
        ),
        namespaces=namespaces,
    )


def _on_openshift() -> tuple[Rule, ...]:
    return (
        rule((POOLS, KUBELET_CONFIGS), "get", "list", "watch"),
        rule((CLUSTER_VERSIONS, INFRASTRUCTURES), "get"),
        rule(API_SERVERS, "list", "watch", names=["cluster"]),
        rule(MACHINE_CONFIGS, "get", "list", "watch", "create", "patch", "delete"),
        *managing(CONSTRAINTS, (CONSTRAINT, LEGACY_CONSTRAINT)),
    )
