"""What a plan has to know of a cluster besides nodes, templates and images: who adds tolerations and taints, which
DaemonSets roll out, and which autoscalers make nodes (TN-025, TN-028, TN-061). Nothing is written."""

from collections.abc import Mapping
from typing import Any, Final

from polyarch.kube.errors import ApiError, Forbidden, NotFound
from polyarch.kube.resources import ENDPOINT_SLICES, MUTATING_WEBHOOKS, Resource
from polyarch.objects import Key
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.documents.autoscalers import KINDS, NodeTemplate, lacking
from polyarch.taints.documents.registration_policy import GROUP, bindings, newest_served, policies
from polyarch.taints.names import ADDED_TOLERATIONS_ANNOTATION, REGISTRATION_POLICY, ROLE
from polyarch.taints.plan.availability import EndpointSlice, WebhookConfiguration, admission_problem
from polyarch.taints.plan.inventory import Inventory, unscheduled
from polyarch.taints.plan.pending import pending_because_of_taints
from polyarch.taints.plan.steps import Admission, Live, Policy
from polyarch.taints.steps.writing import KubernetesApi

SERVICE_LABEL: Final = "kubernetes.io/service-name"


async def read_live(api: KubernetesApi, inventory: Inventory, settings: TaintSettings, *, comes: bool) -> Live:
    """``comes``: a controller, or an operator that makes one, will bring what is missing of the admission."""
    notes: list[str] = []
    admission = Admission(await webhook_problem(api), await _policy(api, settings), comes)
    return Live(
        admission=admission,
        rolling=rolling(inventory),
        pending=pending(inventory, settings),
        node_templates=await read_node_templates(api, settings, notes),
        notes=tuple(notes),
    )


def rolling(inventory: Inventory) -> tuple[Key, ...]:
    """The DaemonSets that got tolerations from us and whose pods are not all new yet."""
    ours = [
        each
        for each in inventory.daemon_sets
        if ADDED_TOLERATIONS_ANNOTATION in (each.metadata.annotations or {}) and not each.is_rolled_out
    ]
    return tuple(sorted(each.metadata.key for each in ours))


def pending(inventory: Inventory, settings: TaintSettings) -> Mapping[str, tuple[str, ...]]:
    """The pods that nothing but a taint of ours keeps pending, by its architecture."""
    pods = unscheduled(inventory.pods)
    found = pending_because_of_taints(pods, inventory.nodes, settings, inventory.namespaces.get)
    return {architecture: tuple(sorted(names.values())) for architecture, names in found.items()}


async def webhook_problem(api: KubernetesApi) -> str:
    """Why pods do not get their tolerations at admission; empty: they do."""
    try:
        configuration = await api.get(MUTATING_WEBHOOKS, ROLE, type=WebhookConfiguration)
    except NotFound:
        return admission_problem(None, (), namespace="")
    services = [each.client_config.service for each in configuration.webhooks or ()]
    namespace = next((each.namespace for each in services if each is not None), "")
    if not namespace:
        return admission_problem(configuration, (), namespace="")
    slices = await api.list(ENDPOINT_SLICES, type=EndpointSlice, label_selector=f"{SERVICE_LABEL}={ROLE}")
    here = [each for each in slices.items if each.metadata.namespace == namespace]
    return admission_problem(configuration, here, namespace=namespace)


async def _policy(api: KubernetesApi, settings: TaintSettings) -> Policy:
    if settings.at_registration == "none" or settings.state != "active":
        return "unwanted"
    version = newest_served(await api.discover(GROUP))
    if version is None:
        return "unserved"
    for resource in (policies(version), bindings(version)):
        try:
            await api.get(resource, REGISTRATION_POLICY, type=dict)
        except NotFound:
            return "missing"
    return "present"


async def read_node_templates(
    api: KubernetesApi, settings: TaintSettings, notes: list[str] | None = None
) -> tuple[NodeTemplate, ...]:
    """The templates of autoscalers that lack the taint; what may not be read is said in ``notes``."""
    found: list[NodeTemplate] = []
    for group, kind in KINDS:
        for resource in _first(await api.discover(group), kind):
            try:
                documents: list[dict[str, Any]] = (await api.list(resource, type=dict)).items
            except (Forbidden, NotFound) as error:
                _note(notes, resource, error)
                continue
            found += filter(None, (lacking(resource, each, settings) for each in documents))
    return tuple(sorted(found, key=lambda each: (each.resource.kind, each.namespace, each.name)))


def _first(served: tuple[Resource, ...], kind: str) -> list[Resource]:
    """The kind in its preferred version."""
    return [each for each in served if each.kind == kind][:1]


def _note(notes: list[str] | None, resource: Resource, error: ApiError) -> None:
    if notes is not None:
        notes.append(f"{resource} not read: {error}")
