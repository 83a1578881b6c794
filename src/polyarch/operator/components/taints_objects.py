"""What the processes of taints may do, and what the operator needs to make and remove them.

The rights are the smallest that work and follow the object: pods may be evicted only where it says so. Placement's
processes add tolerations, too, and get what that takes by a role of its own, which exists as long as the role does. A
test compares these rules with those that the parts of the role say they need. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch import names as shared
from polyarch.kube import events, lease
from polyarch.kube.owners import Owner
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
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator import certificates
from polyarch.operator import operands as workloads
from polyarch.operator.components.alerts import TAINTS_ALERTS
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS, prometheus_rule, scraping_objects
from polyarch.operator.operands import (
    NamespaceExclusions,
    OperandDeployment,
    client_config,
    configuration_document,
    injected,
)
from polyarch.operator.owned_objects import (
    USE_CONSTRAINTS,
    Document,
    RolePermissions,
    combined,
    finished,
    global_pull_secret,
    labels,
    owned,
    reading_images,
    roles,
    service_account,
)
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.selectors import Requirement, Selector
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import NOTHING, TaintSettings

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


def role_permissions(settings: OperatorSettings, cluster: ClusterCapabilities, *, evicts: bool) -> RolePermissions:
    """The rules of the role ``taints``. ``evicts``: ``pods.imageChange`` is ``evict``."""
    own = RolePermissions(
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


def adding_permissions(namespace: str) -> RolePermissions:
    """What every process needs that adds tolerations to pods, beyond reading the object and images."""
    return RolePermissions(
        cluster=(rule(NAMESPACES, "get", "list", "watch"),),
        namespaces={namespace: (rule(LEASES, "get", "list", "watch", names=[names.LEASE]),)},
    )


def rbac(settings: OperatorSettings, cluster: ClusterCapabilities, *, evicts: bool) -> list[Document]:
    """ServiceAccount, roles and bindings."""
    home = settings.namespace
    documents = [
        service_account(names.ROLE, home),
        *roles(names.ROLE, role_permissions(settings, cluster, evicts=evicts), home),
    ]
    accounts = [(home, account) for account in ADDING]
    adding = adding_permissions(home)
    for namespace, rules in (("", adding.cluster), *adding.namespaces.items()):
        documents += granted(names.ADMISSION_ROLE, rules, accounts, namespace=namespace, labels=labels(names.ROLE))
    return documents


def operator_permissions(settings: OperatorSettings, cluster: ClusterCapabilities) -> RolePermissions:
    """What the operator holds for taints: all that it may have to grant, and what its own work takes.

    Where the role is dead, the operator removes taints and gates itself before it lets the object go.
    """
    own = RolePermissions(
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
    granting = combined(role_permissions(settings, cluster, evicts=True), adding_permissions(settings.namespace))
    everything = combined(own, granting)
    # Wherever a role may do more, the operator keeps the Role and its binding.
    kept = tuple(each for kind in (ROLES, ROLE_BINDINGS) for each in managing(kind, _ROLE_NAMES))
    return RolePermissions(
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
    (CONFIGMAPS, (shared.TRUSTED_CA, certificates.CA_CONFIGMAPS[names.ROLE])),
)
"""What the operator keeps in its own namespace."""


# -- Every object that the operator makes while ArchitectureTaints exists.


def taints_operands(
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    taints: TaintSettings,
    *,
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for this configuration, in the order of applying.

    ``ca_bundle``: PEM of our CA, for Prometheus. ``registries``: a digest of the registries' ConfigMap, so that a
    change of it replaces the pods that read it. ``placed``: placement is on, and has made what both share.
    """
    own = settings.tolerating(taints.key)
    documents = [
        *rbac(settings, cluster, evicts=taints.image_change == "evict"),
        *([workloads.trusted_ca(names.ROLE, settings.namespace)] if cluster.openshift and not placed else ()),
        *workloads.operand_objects(deployment(settings), own, cluster, registries=registries),
    ]
    if cluster.monitoring:
        documents += [
            *scraping_objects([names.ROLE], settings, ca_bundle),
            prometheus_rule(names.ROLE, names.ROLE, TAINTS_ALERTS, settings.namespace),
        ]
    return tuple(finished(each) for each in documents)


def deployment(settings: OperatorSettings) -> OperandDeployment:
    """The role ``taints``: every replica adds tolerations at admission, one leads."""
    return OperandDeployment(
        name=names.ROLE,
        container="taints",
        role="taints",
        replicas=settings.taints_replicas,
        cpu="50m",
        memory="128Mi",
        memory_limit="512Mi",
        webhook=True,
        asks_registries=True,
        spare="one",
    )


# -- The webhook configuration of taints: a pod costs one call, whatever is switched on.


_CHANGED: Final = "object.spec.{0}.map(c, c.image) != oldObject.spec.{0}.map(c, c.image)"
IMAGES_CHANGED: Final = (
    f"{_CHANGED.format('containers')} || has(object.spec.initContainers) && {_CHANGED.format('initContainers')}"
)
"""CEL on an update of a pod, whose containers can be neither added, nor removed, nor moved."""
TEMPLATE_CHANGED: Final = 'request.operation == "CREATE" || object.spec.template != oldObject.spec.template'
"""CEL on a DaemonSet."""
SECONDS: Final = 5


def webhooks(
    settings: OperatorSettings,
    taints: TaintSettings,
    ca_bundle: bytes,
    *,
    placement: Mapping[str, Any] | None,
    owner: Owner | None,
) -> Document:
    """The configuration while this object is in force. ``placement``: the entry of placement's configuration by which
    its webhook is called; None: there is none.

    ``ca_bundle``: PEM; without effect where others inject it. Who keeps ``caBundle`` itself passes none.
    """
    document = webhook_configuration(
        taints,
        settings.namespace,
        ca_bundle=ca_bundle if settings.certificates == "self-managed" else b"",
        placement=placement,
    )
    return owned(injected(document, settings), owner)


def webhook_configuration(
    taints: TaintSettings,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    url: str = "",
    ca_bundle: bytes = b"",
    placement: Mapping[str, Any] | None = None,
) -> Document:
    """The MutatingWebhookConfiguration ``polyarch-taints``. ``url``: its address outside the cluster."""
    excluded = NamespaceExclusions.of(taints.excluded_namespaces)
    chosen = [*_chosen(taints), *excluded.requirements]

    def entry(
        name: str,
        path: str,
        resource: Resource,
        operations: Sequence[str],
        where: Iterable[Document],
        *conditions: Document,
    ) -> Document:
        document: Document = {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config(namespace, names.ROLE, path, url=url, ca_bundle=ca_bundle),
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "timeoutSeconds": SECONDS,
            "namespaceSelector": {"matchExpressions": [*where, *chosen]},
            "objectSelector": {},
            "rules": [
                {
                    "apiGroups": [resource.group],
                    "apiVersions": [resource.version],
                    "operations": list(operations),
                    "resources": [resource.plural],
                    "scope": "Namespaced",
                }
            ],
        }
        all_conditions = [*excluded.conditions, *conditions]
        return document | ({"matchConditions": all_conditions} if all_conditions else {})

    if taints.namespace_selector == NOTHING:
        return configuration_document(names.ROLE, names.ROLE, [], kind=MUTATING_WEBHOOKS.kind)
    entries = [
        entry(f"{prefix}{names.POD_WEBHOOK}", names.POD_WEBHOOK_PATH, PODS, ["CREATE"], where, *conditions)
        for prefix, where, conditions in _beside(placement)
    ]
    changed = {"name": "images-changed", "expression": IMAGES_CHANGED}
    entries.append(entry(f"changed.{names.POD_WEBHOOK}", names.POD_WEBHOOK_PATH, PODS, ["UPDATE"], (), changed))
    if taints.templates != "ignore":
        changed = {"name": "template-changed", "expression": TEMPLATE_CHANGED}
        path = names.TEMPLATE_WEBHOOK_PATH
        entries.append(entry(names.TEMPLATE_WEBHOOK, path, DAEMONSETS, ["CREATE", "UPDATE"], (), changed))
    return configuration_document(names.ROLE, names.ROLE, entries, kind=MUTATING_WEBHOOKS.kind)


def _chosen(taints: TaintSettings) -> list[Document]:
    """The namespaces whose pods may get tolerations, as far as labels say."""
    selector = taints.namespace_selector
    selected = [_document(each) for each in selector.requirements] if selector is not None else []
    return [*selected, {"key": names.OPT_OUT, "operator": "NotIn", "values": [names.DISABLED]}]


def _beside(placement: Mapping[str, Any] | None) -> list[tuple[str, list[Document], list[Document]]]:
    """The entries for new pods that placement's webhook does not see: prefix of the name, namespaces, conditions."""
    if placement is None:
        return [("", [], [])]
    requirements = Selector.parse(placement.get("namespaceSelector") or {}).requirements
    whole = [_document(each) for each in requirements]
    entries: list[tuple[str, list[Document], list[Document]]] = [
        (f"beside-{index}.", [*whole[:index], _document(each.negated)], []) for index, each in enumerate(requirements)
    ]
    if conditions := placement.get("matchConditions"):
        all_hold = " && ".join(f"({each['expression']})" for each in conditions)
        entries.append(("beside.", whole, [{"name": "not-of-placement", "expression": f"!({all_hold})"}]))
    return entries


def _document(requirement: Requirement) -> Document:
    document: Document = {"key": requirement.key, "operator": requirement.operator}
    return document | ({"values": list(requirement.values)} if requirement.values else {})
