"""What the operator itself may do for NUMA.

As everywhere it holds all that it may have to grant, and by name whatever RBAC can tell by name. Three roles of
Kubernetes' own it may bind without holding them, since what they allow is another thing in every version; the
permission is to bind exactly these. DaemonSets and ConfigMaps have the names of node groups, which nobody knows
beforehand. Pure.
"""

from typing import Final

from polyarch import names as shared
from polyarch.kube import events
from polyarch.kube.rbac import PolicyRule, managing, rule, union
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
from polyarch.operator import certificates
from polyarch.operator.components import numa_exporter_objects as exporters
from polyarch.operator.components import numa_scheduler_objects as scheduler
from polyarch.operator.components.numa_exporter_objects import (
    CONSTRAINT,
    CONSTRAINTS,
    LEGACY_CONSTRAINT,
    MACHINE_CONFIGS,
    ExporterContext,
)
from polyarch.operator.components.numa_facts import API_SERVERS, CLUSTER_VERSIONS, INFRASTRUCTURES, POOLS
from polyarch.operator.components.numa_node_groups import HOSTED_NAMESPACE, KUBELET_CONFIGS
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS
from polyarch.operator.owned_objects import RolePermissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

AUTHORITY: Final = "polyarch-numa-ca"
"""Secret with the CA of the exporters' certificate, and its key."""
_SINGLETONS: Final = ((OPERATORS, names.OPERATOR_SINGLETON), (SCHEDULERS, names.SCHEDULER_SINGLETON))
_NAMED: Final[tuple[tuple[Resource, tuple[str, ...]], ...]] = (
    (SERVICE_ACCOUNTS, (names.EXPORTER, names.SCHEDULER)),
    (SERVICES, (names.EXPORTER_SERVICE, scheduler.SERVICE)),
    (NETWORK_POLICIES, (*exporters.NETWORK_POLICY_NAMES, *scheduler.NETWORK_POLICY_NAMES)),
    (DEPLOYMENTS, (names.SCHEDULER,)),
    (ROLES, (names.EXPORTER, scheduler.ELECTION_ROLE, scheduler.KICK_ROLE)),
    (ROLE_BINDINGS, (names.EXPORTER, scheduler.ELECTION_ROLE, scheduler.KICK_ROLE)),
    (RULES, (shared.NUMA_SCHEDULER,)),
    (SERVICE_MONITORS, (scheduler.SERVICE,)),
    (certificates.ISSUERS, (names.EXPORTER_CERTIFICATE,)),
    (certificates.CERTIFICATES, (names.EXPORTER_CERTIFICATE,)),
)
"""Objects in the namespace of exporters and scheduler."""
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


def numa_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules beyond those that the operator has for itself."""
    home = settings.numa_home
    namespaces: dict[str, tuple[PolicyRule, ...]] = {
        home: union(
            *(managed for resource, known in _NAMED for managed in managing(resource, known)),
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
    return RolePermissions(
        cluster=union(
            rule((OPERATORS, SCHEDULERS), "get", "list", "watch"),
            rule((OPERATORS, SCHEDULERS), "patch", subresource="status"),
            *(rule(resource, "patch", names=[name]) for resource, name in _SINGLETONS),
            rule(NODES, "list", "watch"),
            rule(TOPOLOGIES, "list", "delete"),
            rule(CRDS, "get", "list", "watch", "patch", names=[str(TOPOLOGIES)]),
            rule(CRDS, "create"),
            rule(NAMESPACES, "get", "list", "watch", *(("patch",) if settings.manage_namespace else ()), names=[home]),
            *(managed for resource, known in _IN_CLUSTER for managed in managing(resource, known)),
            rule(CLUSTER_ROLES, "bind", names=scheduler.BOUND_CLUSTER_ROLES),
            *events.RIGHTS,
            *(_on_openshift() if cluster.openshift else ()),
            # granted
            *exporters.cluster_rules(ExporterContext(settings=settings)),
            *scheduler.extender_rules(preempts=True),
            *scheduler.reader_rules(),
        ),
        namespaces=namespaces,
    )


def _on_openshift() -> tuple[PolicyRule, ...]:
    return (
        rule((POOLS, KUBELET_CONFIGS), "get", "list", "watch"),
        rule((CLUSTER_VERSIONS, INFRASTRUCTURES), "get"),
        rule(API_SERVERS, "list", "watch", names=["cluster"]),
        rule(MACHINE_CONFIGS, "get", "list", "watch", "create", "patch", "delete"),
        *managing(CONSTRAINTS, (CONSTRAINT, LEGACY_CONSTRAINT)),
    )
