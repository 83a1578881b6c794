"""What the operator itself may do.

Kubernetes lets nobody grant what they may not do themselves. So the operator holds every rule that it may have to give
a role under any policy, and what its own work takes: no wildcard, no ``escalate``, no ``bind``, and by name wherever
RBAC can tell names apart. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, get_args

from polyarch.kube import events, lease
from polyarch.kube.rbac import Rule, managing, rule, union
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator import certificates
from polyarch.operator.components import placement_objects
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS
from polyarch.operator.owned_objects import RolePermissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.placement.settings import SettingsTable, WarmUpKind

PREDECESSOR: Final = "multiarch-tuning-operator-controller-manager"
"""The Deployment of the predecessor's operator; ours waits until it is scaled down."""
FORMER_ROLES: Final = (
    "pod-placement-nodes",
    "pod-placement-registries",
    "pod-placement-constraints",
    "pod-placement-pull-secret",
)
"""Roles that earlier manifests of ours made apart; what is left of them is removed."""

_WORKLOADS: Final = (names.WEBHOOK, names.CONTROLLER, names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON)
_BY_NAME: Final[tuple[tuple[Resource, Sequence[str]], ...]] = (
    (SERVICE_ACCOUNTS, _WORKLOADS),
    (SERVICES, _WORKLOADS),
    (DEPLOYMENTS, _WORKLOADS),
    (DAEMONSETS, _WORKLOADS),
    (POD_DISRUPTION_BUDGETS, _WORKLOADS),
    (NETWORK_POLICIES, _WORKLOADS),
    (SECRETS, (names.CERTIFICATES_SECRET, names.AUTHORITY_SECRET, names.READINGS_SECRET)),
    (CONFIGMAPS, (names.TRUSTED_CA, certificates.CA_CONFIGMAPS[names.OPERAND], names.REPORT_CONFIGMAP)),
    # Granted even if their kinds are not served now: they may come later, and a former setting may have used them.
    (SERVICE_MONITORS, _WORKLOADS),
    (RULES, names.PROMETHEUS_RULES),
    (certificates.ISSUERS, (names.CERTIFICATES_SECRET,)),
    (certificates.CERTIFICATES, (names.CERTIFICATES_SECRET,)),
)
"""What the operator keeps in its own namespace."""
_ROLES: Final = tuple(
    each for resource in (ROLES, ROLE_BINDINGS) for each in managing(resource, (*_WORKLOADS, *FORMER_ROLES))
)
"""In its own namespace and in those where a role may do more."""
_LEASES: Final = (names.OPERATOR_LEASE, names.CONTROLLER_LEASE, names.ENOEXEC_LEASE)
_CLUSTER: Final = (
    rule((CPPCS, PPCS), "get", "list", "watch"),
    rule(CPPCS, "patch", names=[names.SINGLETON]),
    rule(CPPCS, "patch", subresource="status", names=[names.SINGLETON]),
    rule(PPCS, "patch", subresource="status"),
    rule(POLICIES, "get", "list", "watch"),
    rule(POLICIES, "patch", subresource="status", names=[names.SINGLETON]),
    rule(PODS, "get", "list", "patch"),  # the gates that nobody else removes
    rule(NAMESPACES, "get", "list", "watch"),
    rule(CRDS, "get", "list", "watch", "patch", names=[str(CPPCS)]),
    rule(DEPLOYMENTS, "list", "watch", names=[PREDECESSOR]),
    *(each for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS) for each in managing(kind, (*_WORKLOADS, *FORMER_ROLES))),
    rule(CLUSTER_ROLES, "get", names=[names.OPERATOR]),
    *managing(MUTATING_WEBHOOKS, (names.WEBHOOK_CONFIGURATION, names.OPERATOR)),
    *managing(VALIDATING_WEBHOOKS, (names.OPERATOR,)),
    *events.RIGHTS,
    *SCRAPER_RIGHTS,
)


def operator_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules of the operator's ClusterRole, and of its Role in each namespace that has one."""
    home = settings.namespace
    rules: list[Rule] = [*_CLUSTER, rule(NAMESPACES, "patch", names=[home])]
    namespaces: defaultdict[str, list[Rule]] = defaultdict(list)
    namespaces[home] += [
        *(each for resource, known in _BY_NAME for each in managing(resource, known)),
        rule(SERVICE_ACCOUNTS, "get", names=[names.OPERATOR]),
        *lease.rights(names.OPERATOR_LEASE),
        rule(LEASES, "get", names=[names.CONTROLLER_LEASE, names.ENOEXEC_LEASE]),
        rule(LEASES, "delete", names=_LEASES),
        rule(DEPLOYMENTS, "get", names=[names.OPERATOR]),
        rule(ENOEXECEVENTS, "get", "list", "watch", "delete"),
    ]
    if settings.registries_configmap:
        namespaces[home].append(rule(CONFIGMAPS, "get", "list", "watch", names=[settings.registries_configmap]))
    for granted in grantable_permissions(settings, cluster):
        rules += granted.cluster
        for namespace, several in granted.namespaces.items():
            namespaces[namespace] += several
    return RolePermissions(
        union(*rules),
        {namespace: union(*several, *_ROLES) for namespace, several in namespaces.items()},
    )


def grantable_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> tuple[RolePermissions, ...]:
    """All that the operator may grant with these settings, whatever the policy says."""
    parts = placement_objects.OptionalFeatures.of(
        settings, cluster, SettingsTable.of(None, None, operator_namespace=settings.namespace)
    )
    everything = placement_objects.OptionalFeatures(
        namespace=parts.namespace,
        global_pull_secret=parts.global_pull_secret,
        openshift=parts.openshift,
        node_aware=True,
        sweeps=True,
        compares_nodes=True,
        evicts=True,
        warm_up=get_args(WarmUpKind),
        share_readings=True,
        reports=True,
    )
    return (
        *placement_objects.role_permissions(everything).values(),
        *placement_objects.monitor_permissions(settings, cluster).values(),
    )
