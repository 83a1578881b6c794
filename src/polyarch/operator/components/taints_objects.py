"""What the operator makes for taints while ArchitectureTaints exists: objects, webhook configuration, conditions. Pure.

One list of objects drives creation and deletion, so that what can be made cannot be forgotten. The webhook
configuration is apart: it comes once the Deployment is available, and goes first. Nothing refers to ArchitectureTaints
as its owner, since the role has to clean up before it goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch import names as shared
from polyarch.kube import events, lease
from polyarch.kube.owners import Owner
from polyarch.kube.rbac import granted, rule
from polyarch.kube.resources import (
    DAEMONSETS,
    ENDPOINT_SLICES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import Condition
from polyarch.operator.components import alerts
from polyarch.operator.operands import (
    NAMESPACE_NAME,
    NamespaceExclusions,
    OperandDeployment,
    RolloutStatus,
    client_config,
    configuration_document,
    first_problems,
    injected,
    own_metadata,
    pod_policy,
    policy_documents,
    resource_rule,
    role_objects,
    same,
    shortened,
)
from polyarch.operator.owned_objects import (
    USE_CONSTRAINTS,
    Document,
    RolePermissions,
    combined,
    global_pull_secret,
    labels,
    metadata,
    owned,
    reading_images,
    roles,
    service_account,
)
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.selectors import NOTHING, Requirement, Selector
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import TaintSettings


def taints_operands(
    settings: OperatorSettings,
    cluster: ClusterCapabilities,
    taints: TaintSettings,
    *,
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for this configuration; see :func:`role_objects`."""
    return role_objects(
        deployment(settings),
        settings.tolerating(taints.key),
        cluster,
        rbac=[
            *rbac(settings, cluster, evicts=taints.image_change == "evict"),
            *(policies(settings) if settings.admission_policies else ()),
        ],
        alerts=alerts.TAINTS,
        ca_bundle=ca_bundle,
        registries=registries,
        placed=placed,
    )


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


# -- permissions -------------------------------------------------------------------------------------------------------


# They are the smallest that work and follow the object: pods may be evicted only where it says so. Placement's
# processes add tolerations, too, and get what that takes by a role of its own, which exists as long as the role does. A
# test compares these rules with those that the parts of the role say they need.

ADDING: Final = (names.ROLE, shared.PLACEMENT_WEBHOOK, shared.PLACEMENT_CONTROLLER)
"""ServiceAccounts of the processes that add tolerations to pods."""
REGISTRATION_POLICIES: Final = tuple(
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
            rule(REGISTRATION_POLICIES, "list", "watch", "patch", "delete", names=[names.REGISTRATION_POLICY]),
            rule(REGISTRATION_POLICIES, "create"),
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
    images = reading_images(
        settings.namespace,
        openshift=cluster.openshift,
        global_secret=global_pull_secret(settings, cluster),
        pull_secrets=settings.secret_access == "byName",
    )
    return combined(own, images)


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
        service_account(names.ROLE, home, settings.account_annotations("taints")),
        *roles(names.ROLE, role_permissions(settings, cluster, evicts=evicts), home),
    ]
    accounts = [(home, account) for account in ADDING]
    adding = adding_permissions(home)
    for namespace, rules in (("", adding.cluster), *adding.namespaces.items()):
        documents += granted(names.ADMISSION_ROLE, rules, accounts, namespace=namespace, labels=labels(names.ROLE))
    return documents


# -- admission policies ------------------------------------------------------------------------------------------------


POD_SPEC_FIELDS: Final = (
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
    "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
    "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
    "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
    "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "securityContext",
    "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
    "terminationGracePeriodSeconds", "topologySpreadConstraints", "volumes", "workloadRef",
)  # fmt: skip
"""Fields of a PodSpec but for ``tolerations``, of every version: CEL cannot say "all others"."""


TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""Annotation by which the API server counts changes of a DaemonSet's template."""


def policies(settings: OperatorSettings) -> list[Document]:
    """What the role writes to pods and to DaemonSets."""
    account = (settings.namespace, names.ROLE)
    fields = ("selector", "updateStrategy", "minReadySeconds", "revisionHistoryLimit")
    template = f"{same('spec.template', 'metadata')} && {same('spec.template.spec', *POD_SPEC_FIELDS)}"
    return [
        *pod_policy(metadata(names.POD_POLICY, names.ROLE), account, gates=(names.GATE,)),
        *policy_documents(
            metadata(names.TEMPLATE_POLICY, names.ROLE),
            [resource_rule(DAEMONSETS, "UPDATE")],
            {
                "of a DaemonSet only tolerations change": f"{same('spec', *fields)} && {template}",
                **own_metadata(TEMPLATE_GENERATION),
            },
            account=account,
            condition="taints",
        ),
    ]


# -- webhook configuration ---------------------------------------------------------------------------------------------


# A pod costs one call, whatever is switched on. The webhook of placement adds tolerations, too, so the entries of this
# configuration are for the pods that placement's does not see: a namespace selector r₁ ∧ … ∧ rₙ there makes the entries
# r₁ ∧ … ∧ rᵢ₋₁ ∧ ¬rᵢ here, of which at most one matches a namespace, and one more if match conditions keep further pods
# away from it. Updates that change an image, which placement does not look at, and DaemonSets have entries of their
# own. CEL on old and new object keeps every other update from costing a call.

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
    review_key: bytes = b"",
) -> Document:
    """The configuration while this object is in force. ``placement``: the entry of placement's configuration by which
    its webhook is called; None: there is none.

    ``ca_bundle``: PEM; without effect where others inject it. Who keeps ``caBundle`` itself passes none.
    ``review_key``: see :func:`client_config`.
    """
    document = webhook_configuration(
        taints,
        settings.namespace,
        ca_bundle=ca_bundle if settings.certificates == "self-managed" else b"",
        placement=placement,
        review_key=review_key,
    )
    return owned(injected(document, settings), owner)


def webhook_configuration(
    taints: TaintSettings,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    url: str = "",
    ca_bundle: bytes = b"",
    placement: Mapping[str, Any] | None = None,
    review_key: bytes = b"",
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
            "clientConfig": client_config(
                namespace, names.ROLE, path, url=url, ca_bundle=ca_bundle, review_key=review_key
            ),
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
    selected = [_document(requirement) for requirement in selector.requirements] if selector is not None else []
    return [*selected, {"key": names.OPT_OUT, "operator": "NotIn", "values": [names.DISABLED]}]


def _beside(placement: Mapping[str, Any] | None) -> list[tuple[str, list[Document], list[Document]]]:
    """The entries for new pods that placement's webhook does not see: prefix of the name, namespaces, conditions."""
    if placement is None:
        return [("", [], [])]
    requirements = Selector.parse(placement.get("namespaceSelector") or {}).requirements
    whole = [_document(requirement) for requirement in requirements]
    entries: list[tuple[str, list[Document], list[Document]]] = [
        (f"beside-{index}.", [*whole[:index], _document(requirement.negated)], [])
        for index, requirement in enumerate(requirements)
    ]
    if conditions := placement.get("matchConditions"):
        all_hold = " && ".join(f"({condition['expression']})" for condition in conditions)
        entries.append(("beside.", whole, [{"name": "not-of-placement", "expression": f"!({all_hold})"}]))
    return entries


def _document(requirement: Requirement) -> Document:
    document: Document = {"key": requirement.key, "operator": requirement.operator}
    return document | ({"values": list(requirement.values)} if requirement.values else {})


# -- conditions --------------------------------------------------------------------------------------------------------


# The role's leader writes the status. What the leader cannot know the operator applies as a field manager of its own.
# What it cannot say, because no pod of it runs, the operator sets until the leader is back.

FIELD_MANAGER: Final = "polyarch-operator"
DEPLOYED: Final = "Deployed"
"""Only there while it is False."""
SILENCE_REPORTED_AFTER: Final = 30.0
"""Seconds without an available pod after which what the leader said last is no longer true."""


def not_available(rollout: RolloutStatus, problems: Sequence[str]) -> Condition:
    """No pod of the role is available. ``problems``: objects that the API server refused."""
    message = "; ".join([f"Deployment {names.ROLE}: {rollout.summary}", *first_problems(problems)])
    return Condition("Ready", "False", "RoleNotAvailable", shortened(message))


def refused(problems: Sequence[str]) -> Condition | None:
    """Not everything of the role is as it should be, whatever its leader says; None: it is."""
    return (
        Condition(DEPLOYED, "False", "OperandRefused", shortened("; ".join(first_problems(problems))))
        if problems
        else None
    )


def not_removed(failures: Sequence[str]) -> Condition:
    """The object is being deleted, and this is what the operator itself could not remove, and why."""
    message = f"taints or gates could not be removed: {'; '.join(first_problems(failures))}"
    return Condition("Degraded", "True", "NotRemoved", shortened(message))


AFFINITY_COVERED: Final = "AffinityCovered"


class PlacementScope(msgspec.Struct, frozen=True, kw_only=True):
    """What placement does, as far as it matters here."""

    namespaces: Selector | None = None
    """Whose pods it places; None: those of all."""
    excluded: tuple[str, ...] = ()
    """Names of namespaces, and ``prefix-*``."""
    audits: bool = False
    """It only tells what it would do."""


def affinity_covered(taints: TaintSettings, placement: PlacementScope | None) -> Condition | None:
    """The condition; None in the other modes, which ask nothing of placement. ``placement`` is None if it is off."""
    if taints.mode != "both":
        return None
    if placement is None:
        return _not_covered(
            "PlacementNotConfigured",
            "there is no ClusterPodPlacementConfig, so pods get tolerations and no node affinity; create the one that "
            "is called cluster",
        )
    if placement.audits:
        return _not_covered(
            "PlacementAudits",
            "the PlacementPolicy has mode audit, so pods get tolerations and no node affinity; set mode: enforce",
        )
    if missing := _not_placed(taints, placement):
        return _not_covered(
            "PodsNotPlaced",
            f"pods of namespaces without {missing[0]} get tolerations and no node affinity; choose the same namespaces "
            "in the ClusterPodPlacementConfig and in spec.pods",
        )
    return Condition(AFFINITY_COVERED, "True", "SamePods", "placement constrains the pods that get tolerations")


def _not_placed(taints: TaintSettings, placement: PlacementScope) -> list[str]:
    """What placement asks of a namespace and taints does not."""
    asked = placement.namespaces.requirements if placement.namespaces is not None else ()
    known = taints.namespace_selector.requirements if taints.namespace_selector is not None else ()
    missing = [
        _words(requirement)
        for requirement in asked
        if requirement not in known and not _is_excluded(requirement, taints)
    ]
    excluded = sorted(set(placement.excluded) - set(taints.excluded_namespaces))
    return missing + [f"{NAMESPACE_NAME} other than {name}" for name in excluded]


def _is_excluded(asked: Requirement, taints: TaintSettings) -> bool:
    """Whether it keeps away namespaces by name that are excluded here as well."""
    by_name = asked.key == NAMESPACE_NAME and asked.operator == "NotIn"
    return by_name and set(asked.values) <= set(taints.excluded_namespaces)


def _words(asked: Requirement) -> str:
    values = f" {', '.join(asked.values)}" if asked.values else ""
    return f"{asked.key} {asked.operator}{values}"


def _not_covered(reason: str, message: str) -> Condition:
    return Condition(AFFINITY_COVERED, "False", reason, message)
