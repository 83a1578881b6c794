"""Makes the operands what the ClusterPodPlacementConfig and the policy ask for (PL-022, PL-500, PL-501)."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.apply import ApplyFailed, Outcome
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Invalid
from polyarch.kube.managed_fields import differences
from polyarch.kube.owners import Owner, remove_finalizer
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Ref,
)
from polyarch.objects import ObjectMeta
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.rollouts import Rollout
from polyarch.operating.settings import Cluster, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ClusterPodPlacementConfig
from polyarch.placement.operator import operands, webhooks
from polyarch.placement.operator.status import conditions
from polyarch.placement.reconcilers.observation import Observation
from polyarch.placement.reconcilers.serving_secrets import ServingSecrets

log = structlog.get_logger(__name__)

Document = dict[str, Any]
MONITOR: Final = (names.ENOEXEC_DAEMON, names.ENOEXEC_HANDLER)
NEEDED: Final = frozenset(
    (
        SERVICE_ACCOUNTS,
        SECRETS,
        ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLES,
        CLUSTER_ROLE_BINDINGS,
        SERVICES,
        NETWORK_POLICIES,
        DEPLOYMENTS,
        MUTATING_WEBHOOKS,
    )
)
"""Kinds that placement does not work without. Not so budgets, and what monitoring needs."""
CALLED_BY: Final = {
    (SERVICES.kind, names.WEBHOOK): ".spec",
    (MUTATING_WEBHOOKS.kind, names.WEBHOOK_CONFIGURATION): ".webhooks",
}
"""What API servers call the pod webhook by, and the field that says how."""
PASSING: Final = (401, 404, 408, 409, 429)
"""Statuses of refusals that may be over at the next try."""


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass has done, and what went wrong."""

    outcome: Outcome
    problems: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    """Those because of which the pod webhook cannot be relied on."""
    failure: ApplyFailed | None = None
    """To be raised after the conditions are written, so that the pass is repeated."""


class Deployer:
    """Applies everything that is desired in one pass. ``tolerated``: keys of taints that our own pods tolerate."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        home: Home,
        observation: Observation,
        sets: OperandSets,
        secrets: ServingSecrets,
        tolerated: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._client = client
        self._settings = settings
        self._home = home
        self._observation = observation
        self._sets = sets
        self._secrets = secrets
        self._tolerated = tolerated

    def rollout(self, deployment: str) -> Rollout:
        """How far a Deployment is, from the cache."""
        found = self._sets.get(DEPLOYMENTS, deployment)
        return Rollout.of(found.document if found is not None else None)

    @property
    def is_configured(self) -> bool:
        """The pod webhook's configuration exists."""
        found = self._sets.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        return found is not None and found.metadata.deletion_timestamp is None

    @property
    def is_ready(self) -> bool:
        """Whom to trust is known. Before, a process that has just started would take the pod webhook's configuration
        away that another one made."""
        return self._secrets.is_known

    @property
    def should_be_configured(self) -> bool:
        """PL-022, but for the ClusterPodPlacementConfig's deletion."""
        both = (names.CONTROLLER, names.WEBHOOK)
        return all(self.rollout(each).available for each in both)

    async def apply(self, configuration: ClusterPodPlacementConfig, cluster: Cluster) -> Deployed:
        """One pass over all operands. Raises nothing that the API server says about single objects."""
        for name in (names.CONTROLLER, *MONITOR[1:]):
            await self._drop_finalizers(name)
        await self.label_namespace(cluster, monitored=operands.is_monitored(configuration))
        documents = self._documents(configuration, cluster)
        keeps = _keeping(monitored=operands.is_monitored(configuration))
        failure: ApplyFailed | None = None
        try:
            outcome = await self._sets.apply(documents, keeps=keeps)
        except ApplyFailed as error:
            outcome, failure = error.outcome, error
        refused, problems = _refusals(failure) if failure is not None else ((), ())
        calls = [(ref, field) for ref, field in outcome.contested if _leads_to_webhook(ref, field.field)]
        others = [each for each in outcome.contested if each not in calls]
        # Not put right yet: refused for whatever reason, or contested because of another field.
        left = {ref for ref, _ in others} | (failure.failures.keys() if failure is not None else set())
        changed = {ref: text for ref, text in self._changed_by_others(documents).items() if ref in left}
        return Deployed(
            outcome=outcome,
            problems=(*problems, *conditions.contested(others)),
            unreachable=tuple(dict.fromkeys((*refused, *conditions.contested(calls), *changed.values()))),
            failure=failure,
        )

    def changed_by_others(self, configuration: ClusterPodPlacementConfig, cluster: Cluster) -> tuple[str, ...]:
        """What somebody has changed of what API servers call the pod webhook by, as sentences. From the caches."""
        return tuple(self._changed_by_others(self._documents(configuration, cluster)).values())

    def _changed_by_others(self, documents: Iterable[Document]) -> dict[Ref, str]:
        called_by = [each for each in documents if (each["kind"], each["metadata"]["name"]) in CALLED_BY]
        return {
            step.ref: conditions.put_right(step.ref, step.taken)
            for step in self._sets.changed_by_others(called_by)
            if any(_leads_to_webhook(step.ref, field) for field in step.differences)
            or any(_leads_to_webhook(step.ref, each.field) for each in step.taken)
        }

    def _documents(self, configuration: ClusterPodPlacementConfig, cluster: Cluster) -> list[Document]:
        settings, policy = self._settings.tolerating(*self._tolerated()), self._observation.policy
        owner = Owner.of(CPPCS, configuration.metadata)
        documents = list(
            operands.operands(
                settings,
                cluster,
                configuration,
                policy,
                owner=owner,
                ca_bundle=self._secrets.bundle(""),
                registries=self._home.registries,
            )
        )
        if self.should_be_configured:
            bundle = self._secrets.bundle(self._trusted())
            documents.append(webhooks.pod_webhook(settings, configuration, policy, bundle, owner=owner))
        return documents

    def _trusted(self) -> str:
        """``caBundle`` of the pod webhook's configuration now."""
        found = self._sets.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        registered = (found.document.get("webhooks") if found is not None else None) or [{}]
        return str((registered[0].get("clientConfig") or {}).get("caBundle") or "")

    async def _drop_finalizers(self, deployment: str) -> None:
        """A Deployment that somebody deletes while placement stays is created again once our finalizer is removed."""
        found = self._sets.get(DEPLOYMENTS, deployment)
        if found is not None and found.metadata.deletion_timestamp is not None:
            for name in (names.POD_PLACEMENT_FINALIZER, names.ENOEXEC_EVENTS_FINALIZER):
                await remove_finalizer(self._client, DEPLOYMENTS, found.metadata, name)

    async def label_namespace(self, cluster: Cluster, *, monitored: bool) -> None:
        """PL-552. Where exporters of NUMA may run the level is not lowered: they need the higher one, too (NO-057)."""
        live = self._home.namespace
        privileged = monitored or self._settings.manage_namespace
        wanted = operands.namespace(self._settings.namespace, openshift=cluster.openshift, privileged=privileged)
        if live is not None and differences(wanted, live.document, manager="polyarch"):
            await self._client.apply(NAMESPACES, wanted)


def _keeping(*, monitored: bool) -> Callable[[ObjectMeta], bool]:
    """The monitor's objects are not pruned but removed in order (PL-630)."""

    def keeps(metadata: ObjectMeta) -> bool:
        return not monitored and (metadata.labels or {}).get(names.CONTROLLER_LABEL) in MONITOR

    return keeps


def _leads_to_webhook(ref: Ref, field: str) -> bool:
    """Whether this field decides if API servers reach the pod webhook, and for which pods. ``.metadata`` alone: the
    object is gone."""
    path = CALLED_BY.get((ref.resource.kind, ref.key.name))
    return path is not None and (field in (path, ".metadata") or field.startswith((f"{path}.", f"{path}[")))


def _refusals(error: ApplyFailed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the API server refused: what placement does not work without, and the rest."""
    needed: list[str] = []
    others: list[str] = []
    for ref, failure in error.failures.items():
        if ref.resource == MUTATING_WEBHOOKS and isinstance(failure, Invalid):
            others += conditions.refused_webhook(failure.message)
            continue
        lasting = isinstance(failure, ApiError) and 400 <= failure.status < 500 and failure.status not in PASSING
        (needed if lasting and _is_needed(ref) else others).append(conditions.refused(ref, failure))
    return tuple(needed), tuple(others)


def _is_needed(ref: Ref) -> bool:
    return ref.resource in NEEDED and ref.key.name not in MONITOR
