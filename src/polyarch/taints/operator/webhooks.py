"""The webhook configuration of taints: a pod costs one call, whatever is switched on (TN-004).

The webhook of placement adds tolerations, too. So the entries of this one are for the pods that placement's does not
see: a namespace selector r₁ ∧ … ∧ rₙ there makes the entries r₁ ∧ … ∧ rᵢ₋₁ ∧ ¬rᵢ here, of which at most one matches a
namespace, and one more if match conditions keep further pods away from it.

Updates that change an image, which placement does not look at, and DaemonSets have entries of their own. CEL on old and
new object keeps every other update from costing a call. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch.kube.owners import Owner
from polyarch.kube.resources import DAEMONSETS, MUTATING_WEBHOOKS, PODS, Resource
from polyarch.operating.labels import Document, owned
from polyarch.operating.settings import DEFAULT_NAMESPACE, OperatorSettings
from polyarch.operating.webhooks import Excluded, client, configuration, injected
from polyarch.selectors import Requirement, Selector
from polyarch.taints import names
from polyarch.taints.settings import NOTHING, TaintSettings

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
    excluded = Excluded.of(taints.excluded_namespaces)
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
            "clientConfig": client(namespace, names.ROLE, path, url=url, ca_bundle=ca_bundle),
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
        return configuration(names.ROLE, names.ROLE, [], kind=MUTATING_WEBHOOKS.kind)
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
    return configuration(names.ROLE, names.ROLE, entries, kind=MUTATING_WEBHOOKS.kind)


def _chosen(taints: TaintSettings) -> list[Document]:
    """The namespaces whose pods may get tolerations, as far as labels say (TN-041)."""
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
