"""The reconcilers of placement: what the operator deploys for it, and the status of its custom resources.

Placement is deployed while the ClusterPodPlacementConfig exists, and uninstalled in order afterwards. Every reconcile
writes the conditions, so that they also say what could not be done.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import Counter

from polyarch.clock import Clock
from polyarch.kube.apply import ApplyFailed, ApplyResult
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import ApiError, Invalid, KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import OnDemandInformer
from polyarch.kube.managed_fields import differences
from polyarch.kube.manager import Process
from polyarch.kube.owners import Owner, add_finalizer, remove_finalizer
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ObjectRef,
    few,
)
from polyarch.kube.store import ObjectChange
from polyarch.kube.webhook_probe import WebhookProbe
from polyarch.objects import Condition, ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components import placement_objects, placement_status
from polyarch.operator.components.operator_rbac import PREDECESSOR
from polyarch.operator.components.placement_status import PlacementFacts, ignored_values
from polyarch.operator.components.placement_uninstall import (
    ForcedRelease,
    RemainingPlacementObjects,
    Uninstaller,
    named,
)
from polyarch.operator.reconciler import STEP_TAKEN, WAITING, ConditionMetrics, after_apply, exists
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.operator.uninstall import PlacementUninstallStep, UninstallBackoff, next_placement_step
from polyarch.placement import names
from polyarch.placement.api import (
    CPPCS,
    POLICIES,
    PPCS,
    ClusterPodPlacementConfig,
    LeaderNotes,
    PlacementPolicy,
    PodPlacementConfig,
    conversion_problems,
)
from polyarch.placement.settings import SettingsTable

log = structlog.get_logger(__name__)

SINGLETON: Final = ObjectKey("", names.SINGLETON)
PREDECESSOR_INTERVAL: Final = 5.0
"""Seconds between two looks at the predecessor's operator."""
COUNTING: Final = 30.0
"""Seconds between two writes of the numbers of pods."""
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


class PlacementInformers:
    """What the operator's leader watches of placement; complete when the process has started."""

    def __init__(self, process: Process, settings: OperatorSettings) -> None:
        self._settings = settings
        self.configurations = process.informer(CPPCS, ClusterPodPlacementConfig)
        self.documents = process.informer(CPPCS, Unstructured)
        """The same objects with all their fields."""
        self.configs = process.informer(PPCS, PodPlacementConfig)
        self.config_documents = process.informer(PPCS, Unstructured)
        self.policies = process.informer(POLICIES, PlacementPolicy)
        self.policy_documents = process.informer(POLICIES, Unstructured)
        self.namespaces_changed: Callable[[], None] = lambda: None
        """Called when the labels of namespaces may be others, while they are wanted."""
        self._all_namespaces = OnDemandInformer(
            process.informers, NAMESPACES, PartialObjectMetadata, lambda _: self.namespaces_changed()
        )
        self._predecessors = process.informer(DEPLOYMENTS, Unstructured, field_selector=f"metadata.name={PREDECESSOR}")

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""

        def handle(_: ObjectChange[Any]) -> None:
            changed()

        for informer in (self.documents, self.policies, self.configs, self._predecessors):
            informer.add_handler(handle)

    @property
    def configuration(self) -> ClusterPodPlacementConfig | None:
        return self.configurations.store.get(SINGLETON)

    @property
    def document(self) -> Unstructured | None:
        """The ClusterPodPlacementConfig with all its fields."""
        return self.documents.store.get(SINGLETON)

    @property
    def policy(self) -> SettingsTable:
        """The settings in force."""
        return SettingsTable.of(
            self.policies.store.get(SINGLETON), self.configuration, operator_namespace=self._settings.namespace
        )

    def want_namespaces(self, wanted: bool) -> None:
        """Watch all namespaces while the policy has overrides."""
        self._all_namespaces.want(wanted)

    @property
    def namespaces(self) -> list[PartialObjectMetadata]:
        """All namespaces, if they are wanted."""
        return list(self._all_namespaces.values())

    @property
    def predecessor(self) -> ObjectKey | None:
        """The predecessor's operator, while it runs."""
        for deployment in self._predecessors.store.values():
            wanted = (deployment.document.get("spec") or {}).get("replicas", 1)
            if wanted or deployment.status.get("replicas", 0):
                return deployment.metadata.key
        return None


# -- the operands ------------------------------------------------------------------------------------------------------


class DeployResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one reconcile has done, and what went wrong."""

    outcome: ApplyResult
    problems: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    """Problems because of which the pod webhook cannot be relied on."""
    failure: ApplyFailed | None = None
    """To be raised after the conditions are written, so that the reconcile is repeated."""


class Deployer:
    """Makes the operands what the ClusterPodPlacementConfig and the policy ask for.

    ``tolerated``: keys of taints that our own pods tolerate.
    """

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        namespace: OperatorNamespace,
        informers: PlacementInformers,
        sets: OperandApplySets,
        secrets: ServingSecrets,
        tolerated: Callable[[], tuple[str, ...]],
    ) -> None:
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._informers = informers
        self._sets = sets
        self._secrets = secrets
        self._tolerated = tolerated

    @property
    def is_configured(self) -> bool:
        """The pod webhook's configuration exists."""
        found = self._sets.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        return found is not None and found.metadata.deletion_timestamp is None

    @property
    def is_ready(self) -> bool:
        """The CA is known. Before, a process that has just started would take the pod webhook's configuration away that
        another one made."""
        return self._secrets.is_known

    @property
    def should_be_configured(self) -> bool:
        """Both Deployments have a pod that can answer."""
        return all(self._sets.rollout(name).available for name in (names.CONTROLLER, names.WEBHOOK))

    async def apply(self, configuration: ClusterPodPlacementConfig, cluster: ClusterCapabilities) -> DeployResult:
        """Apply all operands. Raises nothing that the API server says about single objects."""
        for name in (names.CONTROLLER, *MONITOR[1:]):
            await self._drop_finalizers(name)
        await self.label_namespace(cluster, monitored=placement_objects.is_monitored(configuration))
        documents = self._documents(configuration, cluster)
        keeps = _keeping(monitored=placement_objects.is_monitored(configuration))
        failure: ApplyFailed | None = None
        try:
            outcome = await self._sets.apply(documents, keeps=keeps)
        except ApplyFailed as error:
            outcome, failure = error.outcome, error
        refused, problems = _refusals(failure) if failure is not None else ((), ())
        calls = [(ref, field) for ref, field in outcome.contested if _leads_to_webhook(ref, field.field)]
        others = [pair for pair in outcome.contested if pair not in calls]
        # Not put right yet: refused for whatever reason, or contested because of another field.
        left = {ref for ref, _ in others} | (failure.failures.keys() if failure is not None else set())
        changed = {ref: text for ref, text in self._changed_by_others(documents).items() if ref in left}
        return DeployResult(
            outcome=outcome,
            problems=(
                *problems,
                *placement_status.contested(others),
                *placement_status.repeated(outcome.repeated),
            ),
            unreachable=tuple(dict.fromkeys((*refused, *placement_status.contested(calls), *changed.values()))),
            failure=failure,
        )

    def changed_by_others(
        self, configuration: ClusterPodPlacementConfig, cluster: ClusterCapabilities
    ) -> tuple[str, ...]:
        """What somebody has changed of what API servers call the pod webhook by, as sentences. From the caches."""
        return tuple(self._changed_by_others(self._documents(configuration, cluster)).values())

    def _changed_by_others(self, documents: Iterable[Document]) -> dict[ObjectRef, str]:
        called_by = [
            document for document in documents if (document["kind"], document["metadata"]["name"]) in CALLED_BY
        ]
        return {
            step.ref: placement_status.put_right(step.ref, step.taken)
            for step in self._sets.changed_by_others(called_by)
            if any(_leads_to_webhook(step.ref, field) for field in step.differences)
            or any(_leads_to_webhook(step.ref, conflict.field) for conflict in step.taken)
        }

    def _documents(self, configuration: ClusterPodPlacementConfig, cluster: ClusterCapabilities) -> list[Document]:
        settings, policy = self._settings.tolerating(*self._tolerated()), self._informers.policy
        owner = Owner.of(CPPCS, configuration.metadata)
        ca, registries = self._secrets.bundle(""), self._namespace.registries
        documents = [
            *placement_objects.placement_operands(
                settings, cluster, configuration, policy, owner=owner, ca_bundle=ca, registries=registries
            )
        ]
        if self.should_be_configured:
            bundle = self._secrets.bundle(self._sets.trusted_ca(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION))
            key = self._secrets.review_key(
                self._sets.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION),
                self._sets.get(DEPLOYMENTS, names.WEBHOOK),
            )
            documents.append(
                placement_objects.pod_webhook(settings, configuration, policy, bundle, owner=owner, review_key=key)
            )
        return documents

    async def _drop_finalizers(self, deployment: str) -> None:
        """A Deployment that somebody deletes while placement stays is created again once our finalizer is removed."""
        found = self._sets.get(DEPLOYMENTS, deployment)
        if found is not None and found.metadata.deletion_timestamp is not None:
            for name in (names.POD_PLACEMENT_FINALIZER, names.ENOEXEC_EVENTS_FINALIZER):
                await remove_finalizer(self._client, DEPLOYMENTS, found.metadata, name)

    async def label_namespace(self, cluster: ClusterCapabilities, *, monitored: bool) -> None:
        """Pod security. Where exporters of NUMA may run, or roles mount plugins of their nodes, the level is not
        lowered: they need the higher one."""
        live = self._namespace.namespace
        settings = self._settings
        privileged = monitored or settings.manage_namespace or settings.mounts_plugins_of_nodes
        wanted = placement_objects.namespace_document(
            self._settings.namespace, openshift=cluster.openshift, privileged=privileged
        )
        if live is not None and differences(wanted, live.document, manager="polyarch"):
            await self._client.apply(NAMESPACES, wanted)


def _keeping(*, monitored: bool) -> Callable[[ObjectMeta], bool]:
    """The monitor's objects are not pruned but removed in order."""

    def keeps(metadata: ObjectMeta) -> bool:
        return not monitored and (metadata.labels or {}).get(names.CONTROLLER_LABEL) in MONITOR

    return keeps


def _leads_to_webhook(ref: ObjectRef, field: str) -> bool:
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
            others += placement_status.refused_webhook(failure.message)
            continue
        lasting = isinstance(failure, ApiError) and 400 <= failure.status < 500 and failure.status not in PASSING
        (needed if lasting and _is_needed(ref) else others).append(placement_status.refused(ref, failure))
    return tuple(needed), tuple(others)


def _is_needed(ref: ObjectRef) -> bool:
    return ref.resource in NEEDED and ref.key.name not in MONITOR


# -- the life of placement ---------------------------------------------------------------------------------------------


class PlacementReconciler:
    """Deploys and uninstalls placement; its only key is :data:`SINGLETON`.

    ``releases`` counts pods that the operator released itself. ``tolerated``: keys of taints that our own pods
    tolerate. ``left_out``: problems that the controllers' leader reports.
    """

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        informers: PlacementInformers,
        sets: OperandApplySets,
        secrets: ServingSecrets,
        recorder: Recorder,
        releases: Counter,
        tolerated: Callable[[], tuple[str, ...]],
        left_out: Callable[[], tuple[str, ...]],
    ) -> None:
        client, clock = process.client, process.clock
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._informers = informers
        self._discovery = discovery
        self._sets = sets
        self._recorder = recorder
        self._left_out = left_out
        self._deployer = Deployer(client, settings, namespace, informers, sets, secrets, tolerated)
        forced_release = ForcedRelease(client, recorder, releases)
        self._uninstaller = Uninstaller(client, sets, forced_release, namespace=settings.namespace, clock=clock)
        self._conditions = ConditionMetrics(process.metrics)
        self._probe = WebhookProbe(client, clock, webhook=names.POD_WEBHOOK, namespace=settings.namespace)
        self._is_uninstalled = False
        self._held: tuple[str, ...] = ()
        self._backoff = UninstallBackoff()

    def on_change(self, changed: Callable[..., None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""
        self._informers.on_change(changed)
        self._sets.add_handler(changed)

    async def reconcile(self, key: ObjectKey) -> Result:
        self._sets.serve(self._discovery.served & MONITORING)
        document = self._informers.document
        if document is None:
            if await exists(self._client, CPPCS, names.SINGLETON):
                return STEP_TAKEN  # the cache is behind
            self._conditions.show(CPPCS.kind, ())
            return await self._uninstall(None)
        if self._informers.documents.writes.is_stale(key):
            return STEP_TAKEN
        if document.metadata.deletion_timestamp is not None or self._namespace.is_terminating:
            return await self._uninstall(document)
        return await self._deploy(document)

    # -- deployed ------------------------------------------------------------------------------------------------------

    async def _deploy(self, document: Unstructured) -> Result:
        configuration, cluster = self._informers.configuration, self._discovery.cluster
        if configuration is None or cluster is None or not self._deployer.is_ready:
            return STEP_TAKEN
        obstacles = self._obstacles()
        if obstacles:
            await self._write_conditions(document, self._facts(problems=obstacles))
            return RequeueAfter(PREDECESSOR_INTERVAL)
        self._uninstaller.forget()
        self._is_uninstalled = False
        if not self._deployer.should_be_configured and self._deployer.is_configured:
            await self._uninstaller.delete_webhook_configuration()
        if unusable := self._namespace.problems:  # a change of these begins another reconcile
            changed = self._deployer.changed_by_others(configuration, cluster)
            facts = self._facts(problems=placement_status.unusable(unusable), unreachable=changed)
            await self._write_conditions(document, facts)
            return NoRequeue()
        wanted = placement_objects.finalizers(configuration, configs=len(self._informers.configs.store))
        if not await self._add_finalizers(document, wanted):
            return STEP_TAKEN
        if placement_objects.is_monitored(configuration):
            self._held = ()
        problems = (
            *conversion_problems(document.document),
            *ignored_values(configuration),
            *self._left_out(),
            *self._held,
        )
        if _is_available(document) and (changed := self._deployer.changed_by_others(configuration, cluster)):
            # Before it is put right, so that the condition's times say that pods were not placed meanwhile.
            document = await self._write_conditions(document, self._facts(problems=problems, unreachable=changed))
        deployed = await self._deployer.apply(configuration, cluster)
        unreachable = (*deployed.unreachable, *await self._not_reached(document))
        facts = self._facts(problems=(*deployed.problems, *problems), unreachable=unreachable)
        document = await self._write_conditions(document, facts)
        if deployed.failure is not None:
            raise deployed.failure
        monitored = placement_objects.is_monitored(configuration)
        if not monitored and (waits := await self._remove_monitor(document)) is not None:
            return waits
        await self._drop_finalizer(document, wanted)
        result = after_apply(deployed.outcome, self._sets)
        pauses = [self._probe.wait, *([result.seconds] if isinstance(result, RequeueAfter) else [])]
        return RequeueAfter(min(pauses))

    async def _not_reached(self, document: Unstructured) -> tuple[str, ...]:
        """Why the API server does not reach the pod webhook, as it says itself."""
        if not (self._deployer.is_configured and self._deployer.should_be_configured):
            self._probe.forget()
            return ()
        is_current = self._sets.rollout(names.WEBHOOK).up_to_date
        problem = await self._probe.problem(was_reached=_is_available(document), is_current=is_current)
        return (problem,) if problem else ()

    async def watch_predecessor(self, leads: Callable[[], bool]) -> None:
        """For replicas that do not lead, until cancelled: in one namespace the predecessor holds the Lease."""
        while True:
            await self._clock.sleep(PREDECESSOR_INTERVAL)
            document = self._informers.document
            if document is None or leads() or self._informers.predecessor is None:
                continue
            try:
                await self._write_conditions(document, self._facts(problems=self._obstacles()))
            except KubernetesError as error:
                log.warning("conditions not written", error=str(error))

    def _obstacles(self) -> tuple[str, ...]:
        """Why nothing is deployed."""
        cluster, predecessor = self._discovery.cluster, self._informers.predecessor
        if cluster is not None and (problem := placement_status.version_problem(cluster)):
            return problem
        if predecessor is not None:
            command = f"kubectl scale deployment {predecessor.name} -n {predecessor.namespace} --replicas=0"
            return (f"another operator for the same objects runs, {predecessor}; this one takes over after: {command}",)
        return ()

    async def _add_finalizers(self, document: Unstructured, wanted: Iterable[str]) -> bool:
        """False: the object is being deleted by now."""
        present = document.metadata.finalizers or ()
        for name in wanted:
            if name not in present and not await add_finalizer(self._client, CPPCS, document.metadata, name):
                return False
        return True

    async def _drop_finalizer(self, document: Unstructured, wanted: Iterable[str]) -> None:
        """Remove the finalizer for PodPlacementConfigs with the last of them, after a live read."""
        name = names.NO_POD_PLACEMENT_CONFIG_FINALIZER
        if name in wanted or name not in (document.metadata.finalizers or ()):
            return
        with suppress(NotFound):  # a kind without a definition has no objects
            if (await self._client.list(PPCS, type=PartialObjectMetadata, limit=1)).items:
                return
        await remove_finalizer(self._client, CPPCS, document.metadata, name)

    async def _remove_monitor(self, document: Unstructured) -> Result | None:
        """The next step of removing the monitor, while anything of it is there."""
        kept = names.ENOEXEC_EVENTS_FINALIZER in (document.metadata.finalizers or ())
        if not kept and not self._sets.has_any_of(MONITOR):
            return None
        found = await self._sets.live()
        step = await self._uninstaller.remove_monitor(found, document.metadata)
        self._report_held(document.metadata, await self._uninstaller.held_events())
        return RequeueAfter(self._backoff.after(step, left=len(found)))

    # -- uninstalled ---------------------------------------------------------------------------------------------------

    async def _uninstall(self, document: Unstructured | None) -> Result:
        metadata = document.metadata if document is not None else None
        if self._namespace.is_terminating:
            await self._uninstaller.remove_at_once(metadata)
            return WAITING
        if self._informers.predecessor is not None:  # its controller removes the gates, with constraints
            if document is not None:
                facts = self._facts(deleting=True, waiting_for="; ".join(self._obstacles()))
                await self._write_conditions(document, facts)
            return RequeueAfter(PREDECESSOR_INTERVAL)
        if document is None and not self._sets.cached() and self._is_uninstalled:
            return NoRequeue()
        remaining = await self._uninstaller.look(metadata)
        step = next_placement_step(remaining.left)
        if document is not None:
            waiting = _waiting(step, remaining)
            facts = self._facts(deleting=True, gated=len(remaining.gated), waiting_for=waiting)
            await self._write_conditions(document, facts)
        if step is PlacementUninstallStep.REMOVE_CONTROLLER and remaining.gated:
            self._report_gated(metadata, remaining)
        self._report_held(metadata, remaining.held)
        await self._uninstaller.take(remaining, metadata)
        if step is PlacementUninstallStep.FINISHED:
            self._is_uninstalled = True
            log.info("placement is uninstalled")
            return NoRequeue()
        if step in (PlacementUninstallStep.WAIT_FOR_CONFIGS, PlacementUninstallStep.WAIT_FOR_GATES):
            return WAITING
        return RequeueAfter(self._backoff.after(step, left=len(remaining.found) + len(remaining.leases)))

    def _report_gated(self, metadata: ObjectMeta | None, remaining: RemainingPlacementObjects) -> None:
        """Log and post which gates nobody could remove."""
        text = f"pods keep their scheduling gate: {named(remaining.gated)}"
        log.error("placement is removed although pods are gated", problem=text)
        self._warn(metadata, "PolyarchForcedRelease", text)

    def _report_held(self, metadata: ObjectMeta | None, held: Sequence[str]) -> None:
        """Log and post what others hold, once for each of these."""
        for words in held:
            if words in self._held:
                continue
            log.warning("a deletion is held by others", problem=words)
            self._warn(metadata, "PolyarchDeletionHeld", words)
        self._held = tuple(held)

    def _warn(self, metadata: ObjectMeta | None, reason: str, note: str) -> None:
        """Post a warning of an uninstallation on the object; None: there is none any more."""
        if metadata is not None:
            regarding = Regarding.of(CPPCS, metadata)
            self._recorder.event(regarding, type="Warning", reason=reason, action="Uninstall", note=note)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _facts(
        self,
        *,
        deleting: bool = False,
        gated: int | None = None,
        waiting_for: str = "",
        problems: tuple[str, ...] = (),
        unreachable: tuple[str, ...] = (),
    ) -> PlacementFacts:
        return PlacementFacts(
            controller=self._sets.rollout(names.CONTROLLER),
            webhook=self._sets.rollout(names.WEBHOOK),
            configured=self._deployer.is_configured,
            deleting=deleting,
            gated_pods=gated,
            waiting_for=waiting_for,
            problems=problems,
            unreachable=unreachable,
        )

    async def _write_conditions(self, document: Unstructured, facts: PlacementFacts) -> Unstructured:
        """Write the conditions if they changed. Returns the object with them."""
        metadata = document.metadata
        conditions = placement_status.conditions(facts)
        self._conditions.show(CPPCS.kind, conditions)
        found = merged(
            conditions,
            document.status.get("conditions"),
            generation=metadata.generation,
            now=self._clock.now(),
        )
        await apply_status(
            self._client, CPPCS, document, {"conditions": found}, writes=self._informers.documents.writes
        )
        return Unstructured({**document.document, "status": {**document.status, "conditions": found}})


def _is_available(document: Unstructured) -> bool:
    known = document.status.get("conditions") or ()
    return any((condition["type"], condition["status"]) == (placement_status.AVAILABLE, "True") for condition in known)


def _waiting(step: PlacementUninstallStep, remaining: RemainingPlacementObjects) -> str:
    """What happens, and what it waits for, for people: causes first."""
    return "; ".join((*remaining.held, _waiting_for(step, remaining)))


def _waiting_for(step: PlacementUninstallStep, remaining: RemainingPlacementObjects) -> str:
    if step is PlacementUninstallStep.WAIT_FOR_CONFIGS:
        return f"PodPlacementConfigs depend on it: {few(remaining.configs)}; delete them"
    if step is PlacementUninstallStep.REMOVE_CONTROLLER and remaining.gated:
        return f"their gates could not be removed: {named(remaining.gated)}"
    return f"next: {step.value}"


# -- status ------------------------------------------------------------------------------------------------------------


class StatusReconciler:
    """Writes the status of PodPlacementConfigs and of the PlacementPolicy.

    Keys: a namespace of PodPlacementConfigs as ``Key(namespace, "")``, and :data:`SINGLETON` for the policy.
    ``left_out``: called when the controllers' leader tells of other facts that it does without.
    """

    def __init__(
        self,
        client: Client,
        informers: PlacementInformers,
        *,
        namespace: str,
        clock: Clock,
        left_out: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._informers = informers
        self._namespace = namespace
        self._clock = clock
        self._left_out = left_out
        self._notes = LeaderNotes()
        self._read_at: float | None = None

    def listen(self, queue: WorkQueue[ObjectKey]) -> None:
        """Enqueue what a change is about."""

        def configs_changed(change: ObjectChange[Unstructured]) -> None:
            queue.add(ObjectKey(change.key.namespace, ""))

        def policy_changed(*_: object) -> None:
            queue.add(SINGLETON)

        self._informers.config_documents.add_handler(configs_changed)
        for informer in (self._informers.policy_documents, self._informers.documents):
            informer.add_handler(policy_changed)
        self._informers.namespaces_changed = policy_changed

    @property
    def notes(self) -> LeaderNotes:
        """What the controllers' leader last reported."""
        return self._notes

    async def reconcile(self, key: ObjectKey) -> Result:
        if key == SINGLETON:
            return await self._policy()
        return await self._configs(key.namespace)

    async def _configs(self, namespace: str) -> Result:
        configs = [
            config for config in self._informers.configs.store.values() if config.metadata.namespace == namespace
        ]
        for name, condition in placement_status.of_configs(configs).items():
            document = self._informers.config_documents.store.get(ObjectKey(namespace, name))
            if document is None or document.metadata.deletion_timestamp is not None:
                continue
            status = {"conditions": self._merged(condition, document)}
            await apply_status(self._client, PPCS, document, status, writes=self._informers.config_documents.writes)
        return NoRequeue()

    async def _policy(self) -> Result:
        informers = self._informers
        policy, document = informers.policies.store.get(SINGLETON), informers.policy_documents.store.get(SINGLETON)
        informers.want_namespaces(bool(policy is not None and policy.overrides))
        await self._read_notes()
        if policy is None or document is None or document.metadata.deletion_timestamp is not None:
            return RequeueAfter(COUNTING)
        table = informers.policy
        condition = placement_status.of_policy(table, configured=informers.configuration is not None)
        status: dict[str, Any] = {
            "observedGeneration": document.metadata.generation,
            "conditions": self._merged(condition, document),
            "heldPods": self._notes.held,
            "unplacedPods": self._notes.unplaced,
        }
        if policy.overrides:
            labels = [item.metadata.labels or {} for item in informers.namespaces]
            status["overrides"] = placement_status.matched(policy, table, labels)
        await apply_status(self._client, POLICIES, document, status, writes=informers.policy_documents.writes)
        return RequeueAfter(COUNTING)

    async def _read_notes(self) -> None:
        """Read what the controllers' leader reports, unless that was done shortly before."""
        now = self._clock.monotonic()
        if self._informers.configuration is None:
            self._notes, self._read_at = LeaderNotes(), None
            return
        if self._read_at is not None and now - self._read_at < COUNTING - 1:
            return
        self._read_at = now
        before = self._notes.left_out
        try:
            lease = await self._client.get(
                LEASES, names.CONTROLLER_LEASE, namespace=self._namespace, type=PartialObjectMetadata
            )
        except NotFound:
            self._notes = LeaderNotes()
        else:
            self._notes = LeaderNotes.of(lease.metadata.annotations)
        if self._notes.left_out != before:
            self._left_out()

    def _merged(self, condition: Condition, document: Unstructured) -> list[dict[str, Any]]:
        return merged(
            [condition],
            document.status.get("conditions"),
            generation=document.metadata.generation,
            now=self._clock.now(),
        )
