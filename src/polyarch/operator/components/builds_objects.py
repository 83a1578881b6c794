"""What the builder may do, who else may do what with builds, and what the operator needs for it.

The builder reads a Secret only by name, and only in namespaces where an admin bound :data:`names.NAMESPACE_ROLE`. Its
rights for machine OS images are a role of their own, which exists only where that is on. Tests compare the rules with
what the parts of the role say they need. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

from polyarch import names as shared
from polyarch.builds import names
from polyarch.builds.machineos import api
from polyarch.kube import events, lease
from polyarch.kube.rbac import granted, managing, role, rule, union
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    RUNTIME_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator import certificates
from polyarch.operator import operands as workloads
from polyarch.operator.components.alerts import BUILDS_ALERTS
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS, prometheus_rule, scraping_objects
from polyarch.operator.operands import OperandDeployment
from polyarch.operator.owned_objects import (
    Document,
    RolePermissions,
    combined,
    finished,
    labels,
    reading_images,
    roles,
    service_account,
)
from polyarch.operator.settings import MACHINE_OS_NAMESPACE, ClusterCapabilities, OperatorSettings

IN_NAMESPACES: Final = (rule(SECRETS, "get"),)
"""Of ClusterRole ``polyarch-builds``, which an admin binds to the builder in a namespace."""
_ALL_KINDS: Final = (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS)
_AGGREGATES: Final = "rbac.authorization.k8s.io/aggregate-to-"
VIEW_ROLE: Final = f"{names.ROLE}-view"
EDIT_ROLE: Final = f"{names.ROLE}-edit"
MACHINE_ROLE: Final = f"{names.ROLE}-machine-os"
LEAVING_MACHINE_ROLES: Final = rule((ROLES, ROLE_BINDINGS), "get", "list", "delete", names=[MACHINE_ROLE])
"""What the operator always holds in every namespace: a former setting may have left this Role in any."""


def role_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules of the role ``builder``."""
    home = settings.namespace
    own = RolePermissions(
        cluster=(
            rule(names.IMAGE_BUILDS, "get", "list", "watch", "patch"),
            rule(names.IMAGE_BUILD_RUNS, "create", "get", "list", "watch", "patch", "delete"),
            rule(_ALL_KINDS, "patch", subresource="status"),
            # Where API servers check owner references, whoever writes one needs this of the owner.
            rule(_ALL_KINDS, "update", subresource="finalizers"),
            rule(JOBS, "create", "get", "list", "watch", "patch", "delete"),
            rule(CONFIGMAPS, "create", "get", "list", "watch", "patch", "delete"),
            rule((PODS, NODES, NAMESPACES), "list", "watch"),
            rule(RUNTIME_CLASSES, "get"),
            *events.RIGHTS,
            *SCRAPER_RIGHTS,
        ),
        namespaces={home: (*lease.rights(names.LEASE), rule(SECRETS, "get", names=[names.HMAC_SECRET]))},
    )
    # The credentials of a build are those that it names, so the cluster's own are no business of the builder.
    return combined(own, reading_images(home, openshift=cluster.openshift, global_secret=None, pull_secrets=False))


def machine_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """The rules of machine OS images: a role of their own, which exists only where they are wanted."""
    if settings.machine_os_in(cluster) == "off":
        return RolePermissions((), {})
    kinds = (api.CONFIGS, api.BUILDS, api.POOLS)
    return RolePermissions(
        cluster=(
            rule((api.CONFIGS, api.POOLS), "get", "list", "watch", "patch"),
            rule(api.BUILDS, "create", "get", "list", "watch", "patch", "delete"),
            rule(api.RENDERED, "get", "list", "watch"),
            rule(api.CONTROLLER_CONFIGS, "list", "watch"),
            rule(kinds, "patch", subresource="status"),
            rule((api.CONFIGS, api.BUILDS), "update", subresource="finalizers"),
        ),
        namespaces={
            settings.machine_os_namespace: (rule(SECRETS, "get", "create", "patch"), rule(DEPLOYMENTS, "list", "watch"))
        },
    )


def people() -> list[Document]:
    """Aggregated to the roles of namespaces: who may create pods may create ImageBuilds."""
    marks = labels(names.ROLE)
    edit = {f"{_AGGREGATES}{each}": "true" for each in ("admin", "edit")}
    return [
        role(VIEW_ROLE, VIEWING, labels=marks | {f"{_AGGREGATES}view": "true"}),
        role(EDIT_ROLE, EDITING, labels=marks | edit),
    ]


VIEWING: Final = (rule(_ALL_KINDS, "get", "list", "watch"),)
EDITING: Final = (
    rule(names.IMAGE_BUILDS, "create", "update", "patch", "delete", "deletecollection"),
    rule(names.IMAGE_BUILD_RUNS, "delete", "deletecollection"),
)


def rbac(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    """ServiceAccount, roles and bindings."""
    home = settings.namespace
    return [
        service_account(names.ROLE, home),
        *roles(names.ROLE, role_permissions(settings, cluster), home),
        *_machine_roles(settings, cluster),
        role(names.NAMESPACE_ROLE, IN_NAMESPACES, labels=labels(names.ROLE)),
        *people(),
    ]


def _machine_roles(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    allowed, account = machine_permissions(settings, cluster), [(settings.namespace, names.ROLE)]
    return [
        document
        for namespace, rules in (("", allowed.cluster), *allowed.namespaces.items())
        if rules
        for document in granted(MACHINE_ROLE, rules, account, namespace=namespace, labels=labels(names.ROLE))
    ]


def keeping_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator always holds: it removes by name what a former setting has left."""
    granted = role_permissions(settings, cluster).namespaces
    kept = {settings.namespace: [each for resource, known in _KEPT for each in managing(resource, known)]}
    for namespace in granted:  # wherever the role may do more, the operator keeps the Role and its binding
        kept.setdefault(namespace, []).extend(
            each for kind in (ROLES, ROLE_BINDINGS) for each in managing(kind, (names.ROLE,))
        )
    return RolePermissions(
        cluster=union(LEAVING_MACHINE_ROLES, *(each for kind, known in _IN_CLUSTER for each in managing(kind, known))),
        namespaces={namespace: union(*rules) for namespace, rules in kept.items()},
    )


def operator_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator holds beyond that where builds are on: all that it has to grant, and the key that it makes."""
    granting = role_permissions(settings, cluster)
    own = RolePermissions(
        cluster=(*IN_NAMESPACES, *VIEWING, *EDITING),
        namespaces={
            settings.namespace: (
                rule(SECRETS, "create"),
                rule(SECRETS, "get", "list", "watch", names=[names.HMAC_SECRET]),
                rule(LEASES, "delete", names=[names.LEASE]),
            )
        },
    )
    everything = combined(granting, own)
    return RolePermissions(
        union(*everything.cluster), {namespace: union(*rules) for namespace, rules in everything.namespaces.items()}
    )


def machine_operator_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator holds beyond that for machine OS images: all that it grants for them, and the Role of it.

    By themselves, as a chart can only add rules. What removes them is among what it always keeps.
    """
    granting = machine_permissions(settings, cluster)
    keeping = tuple(found for kind in (ROLES, ROLE_BINDINGS) for found in managing(kind, (MACHINE_ROLE,)))
    return RolePermissions(
        granting.cluster, {place: (*rules, *keeping) for place, rules in granting.namespaces.items()}
    )


_IN_CLUSTER: Final = (
    (CLUSTER_ROLES, (names.ROLE, names.NAMESPACE_ROLE, VIEW_ROLE, EDIT_ROLE, MACHINE_ROLE)),
    (CLUSTER_ROLE_BINDINGS, (names.ROLE, MACHINE_ROLE)),
)
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
    (CONFIGMAPS, (shared.TRUSTED_CA, certificates.CA_CONFIGMAPS[names.ROLE])),
)
"""What the operator keeps in its own namespace."""


# -- Every object that the operator makes for builds.


def builds_operands(
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    *,
    tainted: Sequence[str] = (),
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for these settings, in the order of applying.

    ``tainted``: keys of the taints by architecture that nodes of this cluster have. ``ca_bundle``: PEM of our CA, for
    Prometheus. ``registries``: a digest of the registries' ConfigMap, so that a change of it replaces the pods that
    read it. ``placed``: placement is on, and has made what both share.
    """
    settings = msgspec.structs.replace(settings, machine_os=settings.machine_os_in(cluster))
    own = settings.tolerating(*tainted)
    documents = [
        *rbac(settings, cluster),
        *([workloads.trusted_ca(names.ROLE, settings.namespace)] if cluster.openshift and not placed else ()),
        *workloads.operand_objects(deployment(settings, tainted), own, cluster, registries=registries),
    ]
    if cluster.monitoring:
        documents += [
            *scraping_objects([names.ROLE], settings, ca_bundle),
            prometheus_rule(names.ROLE, names.ROLE, BUILDS_ALERTS, settings.namespace),
        ]
    return tuple(finished(each) for each in documents)


def deployment(settings: OperatorSettings, tainted: Sequence[str] = ()) -> OperandDeployment:
    """The role ``builder``: one replica leads, the others stand by."""
    return OperandDeployment(
        name=names.ROLE,
        container="builder",
        role="builder",
        replicas=settings.builder_replicas,
        cpu="50m",
        memory="128Mi",
        memory_limit="512Mi",
        asks_registries=True,
        global_credentials=False,
        spare="one",
        arguments=arguments(settings, tainted),
    )


def arguments(settings: OperatorSettings, tainted: Sequence[str] = ()) -> tuple[str, ...]:
    """Flags of ``polyarch run builder`` beyond those that every role gets."""
    keys = dict.fromkeys((*(settings.arch_taint_keys or names.ARCH_TAINT_KEYS), *tainted))
    given = [
        f"--builder-image={settings.builder_image}",
        f"--push-image={settings.push_image or settings.image}",
        f"--max-active-jobs={settings.max_active_jobs}",
        *(f"--arch-taint-key={key}" for key in keys),
        f"--machine-os={settings.machine_os}",
    ]
    if settings.allow_privileged_builds:
        given.append("--allow-privileged-builds")
    if settings.machine_os != "off" and settings.machine_os_namespace != MACHINE_OS_NAMESPACE:
        given.append(f"--machine-os-namespace={settings.machine_os_namespace}")
    return tuple(given)
