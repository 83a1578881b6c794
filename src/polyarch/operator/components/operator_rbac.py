"""What the operator itself may do.

Kubernetes lets nobody grant what they may not do themselves. So the operator holds every rule that it may have to give
a role under any policy, and what its own work takes: no wildcard, no ``escalate``, no ``bind``, and by name wherever
RBAC can tell names apart. What it holds for NUMA is in ``numa_operator_rbac``. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, get_args

import msgspec

from polyarch import names as shared
from polyarch.builds import names as builds_names
from polyarch.kube import events, lease
from polyarch.kube.rbac import PolicyRule, managing, rule, union
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
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator import certificates
from polyarch.operator.components import builds_objects, placement_objects, taints_objects
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS
from polyarch.operator.owned_objects import RolePermissions, combined
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.placement.settings import SettingsTable, WarmUpKind
from polyarch.taints import names as taints_names
from polyarch.taints.api import ARCHITECTURE_TAINTS

PREDECESSOR: Final = "multiarch-tuning-operator-controller-manager"
"""The Deployment of the predecessor's operator; ours waits until it is scaled down."""
FORMER_ROLES: Final = (
    "pod-placement-nodes",
    "pod-placement-registries",
    "pod-placement-constraints",
    "pod-placement-pull-secret",
)
"""Roles that earlier manifests of ours made apart; what is left of them is removed."""
_GRANTED: Final = (ROLES, ROLE_BINDINGS)


def operator_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The permissions of the operator: for every component, but for builds and NUMA where they are off.

    The rules for these come after all others and change none of them, so that a chart can add them; so does the right
    to read Secrets, which placement, taints and ``polyarch-builds`` have with ``secret_access: byName`` alone.
    """
    always = combined(placement_permissions(settings, cluster), taints_permissions(settings, cluster))
    added = [secret_permissions(settings), builds_removal_permissions(settings, cluster)]
    if settings.builds != "off":
        added += [builds_permissions(settings, cluster), machine_os_permissions(settings, cluster)]
    if settings.numa != "off":
        from polyarch.operator.components.numa_operator_rbac import numa_permissions  # loaded where NUMA is used

        added.append(numa_permissions(settings, cluster))
    namespaces = dict(always.namespaces)
    for permissions in added:
        for namespace, rules in permissions.namespaces.items():
            namespaces[namespace] = (*namespaces.get(namespace, ()), *rules)
    in_cluster = (rule for permissions in added for rule in permissions.cluster)
    return RolePermissions((*union(*always.cluster), *in_cluster), namespaces)


def secret_permissions(settings: OperatorSettings) -> RolePermissions:
    """What it holds to grant the reading of Secrets by name."""
    return RolePermissions((rule(SECRETS, "get"),) if settings.secret_access == "byName" else (), {})


def _managing(kinds: Iterable[tuple[Resource, Sequence[str]]]) -> tuple[PolicyRule, ...]:
    """The rules for applying and deleting objects with these names."""
    return tuple(managed for resource, known in kinds for managed in managing(resource, known))


def _objects_of(role: str) -> list[tuple[Resource, Sequence[str]]]:
    """The objects of a role in the operator's namespace, but for its Roles."""
    named_like_role = (
        SERVICE_ACCOUNTS,
        SERVICES,
        DEPLOYMENTS,
        POD_DISRUPTION_BUDGETS,
        NETWORK_POLICIES,
        SERVICE_MONITORS,
        RULES,
    )
    return [
        *((resource, (role,)) for resource in named_like_role),
        (CONFIGMAPS, (shared.TRUSTED_CA, certificates.CA_CONFIGMAPS[role])),
    ]


# -- placement ---------------------------------------------------------------------------------------------------------


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
    (SERVICE_MONITORS, (*_WORKLOADS, names.OPERATOR)),
    (RULES, (*names.PROMETHEUS_RULES, names.OPERATOR)),
    (certificates.ISSUERS, (names.CERTIFICATES_SECRET,)),
    (certificates.CERTIFICATES, (names.CERTIFICATES_SECRET,)),
)
"""What the operator keeps in its own namespace."""
_ROLES: Final = _managing((kind, (*_WORKLOADS, *FORMER_ROLES)) for kind in _GRANTED)
"""Roles and bindings in its own namespace and in those where a role may do more."""
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
    *_managing((kind, (*_WORKLOADS, *FORMER_ROLES)) for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)),
    rule(CLUSTER_ROLES, "get", names=[names.OPERATOR]),
    *managing(MUTATING_WEBHOOKS, (names.WEBHOOK_CONFIGURATION, names.OPERATOR)),
    *managing(VALIDATING_WEBHOOKS, (names.OPERATOR,)),
    *_managing(
        (kind, (names.ENOEXEC_POLICY, names.POD_POLICY)) for kind in (VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS)
    ),
    *events.RIGHTS,
    *SCRAPER_RIGHTS,
)


def placement_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules for itself and for placement: of its ClusterRole, and of its Role in each namespace that has one."""
    home = settings.namespace
    cluster_rules: list[PolicyRule] = [*_CLUSTER, rule(NAMESPACES, "patch", names=[home])]
    namespaces: defaultdict[str, list[PolicyRule]] = defaultdict(list)
    namespaces[home] += [
        *_managing(_BY_NAME),
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
        cluster_rules += granted.cluster
        for namespace, granted_rules in granted.namespaces.items():
            namespaces[namespace] += granted_rules
    return RolePermissions(
        union(*cluster_rules),
        {namespace: union(*rules, *_ROLES) for namespace, rules in namespaces.items()},
    )


def grantable_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> tuple[RolePermissions, ...]:
    """All that the operator may grant with these settings, whatever the policy says."""
    features = placement_objects.OptionalFeatures.of(
        settings, cluster, SettingsTable.of(None, None, operator_namespace=settings.namespace)
    )
    everything = placement_objects.OptionalFeatures(
        namespace=features.namespace,
        secret_access="none",
        global_pull_secret=features.global_pull_secret,
        openshift=features.openshift,
        asks_for_nodes=True,
        sweeps=True,
        evicts=True,
        warm_up=get_args(WarmUpKind),
        share_readings=True,
        reports=True,
    )
    return (
        *placement_objects.role_permissions(everything).values(),
        *placement_objects.monitor_permissions(settings, cluster).values(),
    )


# -- taints ------------------------------------------------------------------------------------------------------------


_TAINTS_ROLES: Final = (taints_names.ROLE, taints_names.ADMISSION_ROLE)


def taints_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules for taints: all that the operator may have to grant, and what its own work takes.

    Where the role is dead, the operator removes taints and gates itself before it lets the object go.
    """
    own = RolePermissions(
        cluster=(
            rule(ARCHITECTURE_TAINTS, "get", "list", "watch"),
            rule(ARCHITECTURE_TAINTS, "patch", names=[taints_names.SINGLETON]),
            rule(ARCHITECTURE_TAINTS, "patch", subresource="status", names=[taints_names.SINGLETON]),
            rule((NODES, PODS), "get", "list", "patch"),
            rule(taints_objects.REGISTRATION_POLICIES, "get", "delete", names=[taints_names.REGISTRATION_POLICY]),
            *managing(MUTATING_WEBHOOKS, (taints_names.ROLE,)),
            *_managing(
                (kind, (taints_names.POD_POLICY, taints_names.TEMPLATE_POLICY))
                for kind in (VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS)
            ),
            *_managing((kind, _TAINTS_ROLES) for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)),
        ),
        namespaces={
            settings.namespace: (
                *_managing(_objects_of(taints_names.ROLE)),
                rule(LEASES, "get", "list", "watch", "delete", names=[taints_names.LEASE]),
            ),
        },
    )
    everything = combined(
        own,
        taints_objects.role_permissions(msgspec.structs.replace(settings, secret_access="none"), cluster, evicts=True),
        taints_objects.adding_permissions(settings.namespace),
    )
    # Wherever a role may do more, the operator keeps the Role and its binding.
    kept = _managing((kind, _TAINTS_ROLES) for kind in _GRANTED)
    return RolePermissions(
        union(*everything.cluster),
        {namespace: union(*rules, *kept) for namespace, rules in everything.namespaces.items()},
    )


# -- builds ------------------------------------------------------------------------------------------------------------


_BUILDS_IN_CLUSTER: Final = (
    (
        CLUSTER_ROLES,
        (
            builds_names.ROLE,
            builds_names.NAMESPACE_ROLE,
            builds_objects.VIEW_ROLE,
            builds_objects.EDIT_ROLE,
            builds_objects.MACHINE_ROLE,
        ),
    ),
    (CLUSTER_ROLE_BINDINGS, (builds_names.ROLE, builds_objects.MACHINE_ROLE)),
    (VALIDATING_POLICIES, builds_objects.POLICIES),
    (VALIDATING_POLICY_BINDINGS, builds_objects.POLICIES),
)


def builds_removal_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator always holds for builds: it removes by name what a former setting has left."""
    kept = {settings.namespace: [*_managing(_objects_of(builds_names.ROLE))]}
    for namespace in builds_objects.role_permissions(settings, cluster).namespaces:
        # Wherever the role may do more, the operator keeps the Role and its binding.
        kept.setdefault(namespace, []).extend(_managing((kind, (builds_names.ROLE,)) for kind in _GRANTED))
    return RolePermissions(
        cluster=union(builds_objects.FORMER_MACHINE_ROLES, *_managing(_BUILDS_IN_CLUSTER)),
        namespaces={namespace: union(*rules) for namespace, rules in kept.items()},
    )


def builds_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator holds beyond that where builds are on: all that it has to grant, and the key that it makes."""
    own = RolePermissions(
        cluster=(*builds_objects.VIEWING, *builds_objects.EDITING),
        namespaces={
            settings.namespace: (
                rule(SECRETS, "create"),
                rule(SECRETS, "get", "list", "watch", names=[builds_names.HMAC_SECRET]),
                rule(LEASES, "delete", names=[builds_names.LEASE]),
            )
        },
    )
    everything = combined(builds_objects.role_permissions(settings, cluster), own)
    return RolePermissions(
        union(*everything.cluster), {namespace: union(*rules) for namespace, rules in everything.namespaces.items()}
    )


def machine_os_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator holds beyond that for machine OS images: all that it grants for them, and the Role of it.

    By themselves, as a chart can only add rules. What removes them is among what it always keeps.
    """
    granting = builds_objects.machine_permissions(settings, cluster)
    keeping = _managing((kind, (builds_objects.MACHINE_ROLE,)) for kind in _GRANTED)
    return RolePermissions(
        granting.cluster, {place: (*rules, *keeping) for place, rules in granting.namespaces.items()}
    )
