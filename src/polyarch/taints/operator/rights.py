"""What the processes of taints may do, and what the operator needs to make and remove them (TN-081, PL-550).

The rights are the smallest that work and follow the object: pods may be evicted only where it says so. Placement's
processes add tolerations, too, and get what that takes by a role of its own, which exists as long as the role does. A
test compares these rules with those that the parts of the role say they need. Pure.
"""

from typing import Final

from polyarch.kube import events, lease
from polyarch.kube.rbac import granted, managing, rule, union
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operating import names as shared
from polyarch.operating import serving
from polyarch.operating.labels import Document, labels
from polyarch.operating.monitoring.scraping import RULES, SERVICE_MONITORS
from polyarch.operating.rights import (
    USE_CONSTRAINTS,
    Rights,
    combined,
    global_pull_secret,
    reading_images,
    roles,
    service_account,
)
from polyarch.operating.settings import Cluster, OperatorSettings
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

ADDING: Final = (names.ROLE, shared.PLACEMENT_WEBHOOK, shared.PLACEMENT_CONTROLLER)
"""ServiceAccounts of the processes that add tolerations to pods."""
_REGISTRATION_POLICIES: Final = tuple(
    Resource(MUTATING_WEBHOOKS.group, "v1", plural, kind, namespaced=False)
    for plural, kind in (
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    )
)
_EVICTIONS: Final = rule(PODS, "create", subresource="eviction")


def role_rights(settings: OperatorSettings, cluster: Cluster, *, evicts: bool) -> Rights:
    """The rules of the role ``taints``. ``evicts``: ``pods.imageChange`` is ``evict``."""
    own = Rights(
        cluster=(
            rule(ARCHITECTURE_TAINTS, "get", "list", "watch"),
            rule(ARCHITECTURE_TAINTS, "patch", subresource="status", names=[names.SINGLETON]),
            rule((NODES, PODS), "get", "list", "watch", "patch"),
            rule(DAEMONSETS, "get", "list", "watch", "patch"),
            rule(NAMESPACES, "get", "list", "watch"),
            rule(MUTATING_WEBHOOKS, "list", "watch", names=[names.ROLE]),
            rule(_REGISTRATION_POLICIES, "list", "watch", "patch", "delete", names=[names.REGISTRATION_POLICY]),
            rule(_REGISTRATION_POLICIES, "create"),
            *events.RIGHTS,
            *SCRAPER_RIGHTS,
            *((_EVICTIONS,) if evicts else ()),
            *((USE_CONSTRAINTS,) if cluster.openshift else ()),
        ),
        namespaces={
            settings.namespace: (
                *lease.rights(names.LEASE),
                rule(LEASES, "get", "list", "watch", names=[shared.PLACEMENT_LEASE]),
                rule(ENDPOINT_SLICES, "list", "watch"),
            ),
        },
    )
    secret = global_pull_secret(settings, cluster)
    return combined(own, reading_images(settings.namespace, openshift=cluster.openshift, global_secret=secret))


def adding_rights(namespace: str) -> Rights:
    """What every process needs that adds tolerations to pods, beyond reading the object and images."""
    return Rights(
        cluster=(rule(NAMESPACES, "get", "list", "watch"),),
        namespaces={namespace: (rule(LEASES, "get", "list", "watch", names=[names.LEASE]),)},
    )


def rbac(settings: OperatorSettings, cluster: Cluster, *, evicts: bool) -> list[Document]:
    """ServiceAccount, roles and bindings."""
    home = settings.namespace
    documents = [
        service_account(names.ROLE, home),
        *roles(names.ROLE, role_rights(settings, cluster, evicts=evicts), home),
    ]
    accounts = [(home, account) for account in ADDING]
    adding = adding_rights(home)
    for namespace, rules in (("", adding.cluster), *adding.namespaces.items()):
        documents += granted(names.ADMISSION_ROLE, rules, accounts, namespace=namespace, labels=labels(names.ROLE))
    return documents


def operator_rights(settings: OperatorSettings, cluster: Cluster) -> Rights:
    """What the operator holds for taints: all that it may have to grant, and what its own work takes.

    Where the role is dead, the operator removes taints and gates itself before it lets the object go (TN-073).
    """
    own = Rights(
        cluster=(
            rule(ARCHITECTURE_TAINTS, "get", "list", "watch"),
            rule(ARCHITECTURE_TAINTS, "patch", names=[names.SINGLETON]),
            rule(ARCHITECTURE_TAINTS, "patch", subresource="status", names=[names.SINGLETON]),
            rule((NODES, PODS), "get", "list", "patch"),
            rule(_REGISTRATION_POLICIES, "get", "delete", names=[names.REGISTRATION_POLICY]),
            *managing(MUTATING_WEBHOOKS, (names.ROLE,)),
            *(each for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS) for each in managing(kind, _ROLE_NAMES)),
        ),
        namespaces={
            settings.namespace: (
                *(each for resource, known in _KEPT for each in managing(resource, known)),
                rule(LEASES, "get", "list", "watch", "delete", names=[names.LEASE]),
            ),
        },
    )
    granting = combined(role_rights(settings, cluster, evicts=True), adding_rights(settings.namespace))
    everything = combined(own, granting)
    # Wherever a role may do more, the operator keeps the Role and its binding.
    kept = tuple(each for kind in (ROLES, ROLE_BINDINGS) for each in managing(kind, _ROLE_NAMES))
    return Rights(
        union(*everything.cluster),
        {namespace: union(*rules, *kept) for namespace, rules in everything.namespaces.items()},
    )


_ROLE_NAMES: Final = (names.ROLE, names.ADMISSION_ROLE)
_KEPT: Final[tuple[tuple[Resource, tuple[str, ...]], ...]] = (
    *(
        (resource, (names.ROLE,))
        for resource in (
            SERVICE_ACCOUNTS,
            SERVICES,
            DEPLOYMENTS,
            POD_DISRUPTION_BUDGETS,
            NETWORK_POLICIES,
            SERVICE_MONITORS,
            RULES,
        )
    ),
    (CONFIGMAPS, (shared.TRUSTED_CA, serving.CA_CONFIGMAPS[names.ROLE])),
)
"""What the operator keeps in its own namespace."""
