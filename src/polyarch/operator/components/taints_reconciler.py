"""The reconciler of taints: the role is deployed while ArchitectureTaints exists, then uninstalled in order.

The webhook is registered once a pod can answer, for the pods that placement's webhook does not see; so it changes with
placement's. The order of an uninstall is in ``operator.uninstall``, and what a step writes in ``taints.removal``, as
``polyarch taint clean`` does it. An uninstall believes no cache but for whether the role lives: only its Lease tells.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.apply import ApplyFailed
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged, taking_over
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.informer import Informer, OnDemandInformer, Shares
from polyarch.kube.lease import Lease, LeaseAge
from polyarch.kube.manager import Process
from polyarch.kube.owners import add_finalizer, delete_object, held_words, remove_finalizer
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, ObjectRef
from polyarch.kube.store import ObjectChange
from polyarch.objects import Condition, ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components import taints_objects
from polyarch.operator.components.placement_reconciler import PlacementInformers
from polyarch.operator.components.taints_objects import PlacementScope, affinity_covered, taints_operands, webhooks
from polyarch.operator.operands import RolloutStatus
from polyarch.operator.reconciler import (
    STEP_TAKEN,
    WAITING,
    after_apply,
    attempt_all,
    deletions_in_cluster,
    exists,
    needs_newer_kubernetes,
)
from polyarch.operator.serving_secrets import ServingSecrets
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings, SecretAccess
from polyarch.operator.uninstall import RemainingTaints, TaintsUninstallStep, next_taints_step
from polyarch.placement import names as placement_names
from polyarch.selectors import NOTHING, InvalidSelector, Selector
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.inventory import RECORDED_ONLY
from polyarch.taints.removal import ADMISSION_GROUP, POLICY_PLURALS, TaintRemover
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import StepResult, Writer

log = structlog.get_logger(__name__)

SINGLETON: Final = ObjectKey("", names.SINGLETON)
MAX_WAIT: Final = 10.0
"""Seconds between two reconciles at the most while nothing changes."""
LEASE_TIMEOUT: Final = 30.0
"""Seconds without a change of the role's Lease after which nobody is taken to clean up."""


class PlacementState:
    """Placement, as far as taints has to do with it. ``sets``: the operands of placement."""

    def __init__(self, informers: PlacementInformers, sets: OperandApplySets) -> None:
        self._informers = informers
        self._sets = sets

    @property
    def scope(self) -> PlacementScope | None:
        """What the ClusterPodPlacementConfig and the policy say; None without the former."""
        configuration, policy = self._informers.configuration, self._informers.policy.spec
        if configuration is None:
            return None
        selector = configuration.spec.namespace_selector
        try:
            namespaces = Selector.parse(selector) if selector is not None else None
        except InvalidSelector:
            namespaces = NOTHING
        return PlacementScope(namespaces=namespaces, excluded=policy.excluded_namespaces, audits=policy.mode == "audit")

    @property
    def secret_access(self) -> SecretAccess:
        """``images.secretAccess`` of the policy, which is about every process that reads images."""
        return self._informers.policy.spec.images_secret_access

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """The entry of the pod webhook's configuration, as the API server has it; None: there is none."""
        found = self._sets.get(MUTATING_WEBHOOKS, placement_names.WEBHOOK_CONFIGURATION)
        if found is None or found.metadata.deletion_timestamp is not None:
            return None
        registered: list[dict[str, Any]] = found.document.get("webhooks") or []
        return registered[0] if registered else None


class RemainingTaintsObjects(msgspec.Struct, frozen=True, kw_only=True):
    """What one live look has found: in numbers, and the objects behind them."""

    left: RemainingTaints
    operands: Mapping[ObjectRef, PartialObjectMetadata]
    marked: tuple[ObjectRef, ...] = ()
    """Nodes and pods on which something of ours is."""
    lease: bool = False


class TaintsUninstaller:
    """Uninstalls taints from the namespace. It remembers times alone, which no object records."""

    def __init__(
        self, client: Client, informers: Shares, operands: OperandApplySets, *, namespace: str, clock: Clock
    ) -> None:
        self._client = client
        self._operands = operands
        self._namespace = namespace
        self._clock = clock
        self._lease = OnDemandInformer(
            informers, LEASES, Lease, self._lease_changed, namespace=namespace, name=names.LEASE
        )
        self._age: LeaseAge | None = None
        self._registered_at: float | None = None
        self._progress: tuple[int, float] | None = None
        self._logged: TaintsUninstallStep | None = None
        self.failures: tuple[str, ...] = ()
        """What the operator itself could not remove, and why."""

    def forget(self) -> None:
        """No uninstall is under way (any more)."""
        self._lease.want(False)
        self._age = self._registered_at = self._progress = self._logged = None
        self.failures = ()

    async def look(self, settings: TaintSettings | None, terminating: ObjectMeta | None) -> RemainingTaintsObjects:
        """What is still there. ``settings``: of the object; ``terminating``: its metadata. None: it is deleted."""
        self._watch_lease()
        removal = self._removal(settings)
        found = await self._operands.live()
        configuration = ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", names.ROLE))
        registered = configuration in found or await self._has_policy()
        now = self._clock.monotonic()
        if registered or self._registered_at is None:
            self._registered_at = now
        marked = await removal.left()
        role = {ref: operand for ref, operand in found.items() if ref != configuration}
        has_lease = not role and await exists(self._client, LEASES, names.LEASE, self._namespace)
        left = RemainingTaints(
            registered=registered,
            marks=len(marked),
            role=len(role) + has_lease,
            lives=self._lives(),
            idle=self._idle(len(marked), now),
            settling=now - self._registered_at,
            finalizer=terminating is not None and names.FINALIZER in (terminating.finalizers or ()),
        )
        return RemainingTaintsObjects(left=left, operands=role, marked=marked, lease=has_lease)

    async def take(
        self, remaining: RemainingTaintsObjects, settings: TaintSettings | None, terminating: ObjectMeta | None
    ) -> TaintsUninstallStep:
        """Take the next step, and return it. Raises ``KubernetesError``."""
        step = next_taints_step(remaining.left)
        if step is not self._logged:
            log.info("removal of taints", step=step.value, marks=len(remaining.marked))
        self._logged = step
        match step:
            case TaintsUninstallStep.UNREGISTER:
                self._note_failures(await self._removal(settings).registration())
            case TaintsUninstallStep.CLEAN:
                removal = self._removal(settings)
                self._note_failures(StepResult.of((await removal.taints(), await removal.gates())))
            case TaintsUninstallStep.REMOVE_ROLE:
                self.failures = ()
                await self._operands.remove(remaining.operands)
                if remaining.lease:
                    await delete_object(self._client, LEASES, ObjectKey(self._namespace, names.LEASE))
            case TaintsUninstallStep.RELEASE if terminating is not None:
                await remove_finalizer(self._client, ARCHITECTURE_TAINTS, terminating, names.FINALIZER)
            case TaintsUninstallStep.FINISHED:
                self.forget()
        return step

    async def remove_at_once(self, settings: TaintSettings | None, terminating: ObjectMeta | None) -> None:
        """Do all that is possible while the operator's namespace is being deleted, and its own permissions with it."""
        removal = self._removal(settings)
        parts: list[Callable[[], Awaitable[Any]]] = [removal.registration, removal.gates, removal.taints]
        parts += deletions_in_cluster(self._client, self._operands)
        if terminating is not None:
            parts.append(partial(remove_finalizer, self._client, ARCHITECTURE_TAINTS, terminating, names.FINALIZER))
        await attempt_all(parts)

    def _removal(self, settings: TaintSettings | None) -> TaintRemover:
        return TaintRemover(Writer(self._client, clock=self._clock), settings or RECORDED_ONLY)

    def _note_failures(self, outcome: StepResult) -> None:
        self.failures = tuple(map(str, outcome.failed))
        for failure in self.failures:
            log.warning("not removed", problem=failure)

    # -- facts --------------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        """The role will remove taints and gates by itself."""
        available = self._operands.rollout(names.ROLE).available
        return available and self._age is not None and self._age.age() < LEASE_TIMEOUT

    def _watch_lease(self) -> None:
        if self._age is None:
            self._age = LeaseAge(self._clock, blind=lambda: self._lease.blind_seconds)
            self._lease.want(True)

    def _lease_changed(self, change: ObjectChange[Lease]) -> None:
        if self._age is not None:
            self._age.observe(change.new)

    def _idle(self, marks: int, now: float) -> float:
        """Seconds since fewer marks were seen than before."""
        if self._progress is None or marks < self._progress[0]:
            self._progress = marks, now
        return now - self._progress[1]

    async def _has_policy(self) -> bool:
        served = await self._client.discover(ADMISSION_GROUP)
        newest = [next((kind for kind in served if kind.plural == plural), None) for plural in POLICY_PLURALS]
        for resource in newest:
            if resource is not None and await exists(self._client, resource, names.REGISTRATION_POLICY):
                return True
        return False


class TaintsReconciler:
    """Deploys and uninstalls the role ``taints``; its only key is :data:`SINGLETON`.

    ``sets``: the operands of taints; ``secrets``: they know the CA that API servers are to trust.
    """

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        sets: OperandApplySets,
        secrets: ServingSecrets,
        placement: PlacementState,
    ) -> None:
        self._client = process.client
        self._clock = process.clock
        self._objects: Informer[Unstructured] = process.informer(ARCHITECTURE_TAINTS, Unstructured)
        self._settings = settings
        self._namespace = namespace
        self._discovery = discovery
        self._sets = sets
        self._secrets = secrets
        self._placement = placement
        self._uninstaller = TaintsUninstaller(
            process.client, process.informers, sets, namespace=settings.namespace, clock=process.clock
        )
        self._is_uninstalled = False
        self._wait = WAITING.seconds
        self._silent_since: float | None = None

    def on_change(self, changed: Callable[..., None]) -> None:
        """Call ``changed`` with every change that a reconcile may have to answer."""
        self._objects.add_handler(changed)
        self._sets.add_handler(changed)

    @property
    def tolerated(self) -> tuple[str, ...]:
        """Keys of taints that all Deployments of ours tolerate while the object exists."""
        document = self._objects.store.get(SINGLETON)
        return (_settings_of(document).key,) if document is not None else ()

    async def reconcile(self, key: ObjectKey) -> Result:
        self._sets.serve(self._discovery.served & MONITORING)
        document = self._objects.store.get(SINGLETON)
        if document is None:
            if await exists(self._client, ARCHITECTURE_TAINTS, names.SINGLETON):
                return STEP_TAKEN  # the cache is behind
            return await self._uninstall(None)
        if self._objects.writes.is_stale(key):
            return STEP_TAKEN
        if document.metadata.deletion_timestamp is not None or self._namespace.is_terminating:
            return await self._uninstall(document)
        return await self._deploy(document)

    # -- deployed ------------------------------------------------------------------------------------------------------

    async def _deploy(self, document: Unstructured) -> Result:
        cluster = self._discovery.cluster
        if cluster is None or not self._secrets.is_known:
            return STEP_TAKEN
        if problem := needs_newer_kubernetes(cluster, "taints"):
            await self._set_condition(document, taints_objects.not_available(RolloutStatus(), (problem,)))
            return RequeueAfter(MAX_WAIT)
        self._uninstaller.forget()
        self._is_uninstalled = False
        if not await add_finalizer(self._client, ARCHITECTURE_TAINTS, document.metadata, names.FINALIZER):
            return STEP_TAKEN
        taints = _settings_of(document)
        if unusable := self._namespace.problems:  # a change of these begins another reconcile
            log.error("the role is not deployed or changed", problems=unusable)
            silent = await self._write_conditions(document, taints, unusable)
            return NoRequeue() if silent is None else RequeueAfter(silent)
        problems: tuple[str, ...] = ()
        failure: ApplyFailed | None = None
        wanted = self._documents(cluster, taints)
        try:
            outcome = await self._sets.apply(wanted, keeps=lambda _: False)
        except ApplyFailed as error:
            outcome, failure = error.outcome, error
            problems = tuple(f"{ref} could not be changed: {reason}" for ref, reason in error.failures.items())
        problems += tuple(
            f"{ref}: {conflict.manager} keeps changing {conflict.field}"
            for ref, conflict in (*outcome.contested, *outcome.repeated)
        )
        silent = await self._write_conditions(document, taints, problems)
        if failure is not None:
            raise failure
        result = after_apply(outcome, self._sets)
        return RequeueAfter(silent) if silent is not None and isinstance(result, NoRequeue) else result

    def _role_settings(self) -> OperatorSettings:
        """The settings of the role, which reads no Secrets where the policy or the installation says so."""
        denied = self._placement.secret_access == "none"
        return msgspec.structs.replace(self._settings, secret_access="none") if denied else self._settings

    def _documents(self, cluster: ClusterCapabilities, taints: TaintSettings) -> list[dict[str, Any]]:
        documents = [
            *taints_operands(
                self._role_settings(),
                cluster,
                taints,
                ca_bundle=self._secrets.bundle(""),
                registries=self._namespace.registries,
                placed=self._placement.scope is not None,
            )
        ]
        if taints.state == "active" and self._sets.rollout(names.ROLE).available:
            bundle = self._secrets.bundle(self._sets.trusted_ca(MUTATING_WEBHOOKS, names.ROLE))
            registered = self._sets.get(MUTATING_WEBHOOKS, names.ROLE)
            key = self._secrets.review_key(registered, self._sets.get(DEPLOYMENTS, names.ROLE))
            documents.append(
                webhooks(
                    self._settings,
                    taints,
                    bundle,
                    placement=self._placement.webhook,
                    owner=None,
                    review_key=key,
                )
            )
        return documents

    # -- uninstalled ---------------------------------------------------------------------------------------------------

    async def _uninstall(self, document: Unstructured | None) -> Result:
        metadata = document.metadata if document is not None else None
        taints = _settings_of(document) if document is not None else None
        if self._namespace.is_terminating:
            terminating = metadata if metadata is not None and metadata.deletion_timestamp is not None else None
            await self._uninstaller.remove_at_once(taints, terminating)
            return WAITING
        if document is None and not self._sets.cached() and self._is_uninstalled:
            return NoRequeue()
        remaining = await self._uninstaller.look(taints, metadata)
        step = await self._uninstaller.take(remaining, taints, metadata)
        held = (held_words(ref.resource, each.metadata, (names.FINALIZER,)) for ref, each in remaining.operands.items())
        if document is not None and (left := (*filter(None, held), *self._uninstaller.failures)):
            await self._set_condition(document, taints_objects.not_removed(left))
        if step is TaintsUninstallStep.FINISHED:
            self._is_uninstalled = True
            return NoRequeue()
        if step not in (TaintsUninstallStep.LET_ROLE_CLEAN, TaintsUninstallStep.CLEAN):
            self._wait = WAITING.seconds
            return WAITING if step is TaintsUninstallStep.SETTLE else STEP_TAKEN
        wait, self._wait = self._wait, min(self._wait * 2, MAX_WAIT)
        return RequeueAfter(wait)

    # -- conditions ----------------------------------------------------------------------------------------------------

    async def _write_conditions(
        self, document: Unstructured, taints: TaintSettings, problems: tuple[str, ...]
    ) -> float | None:
        """Write what the role's leader does not know, or cannot say. Seconds until the leader counts as silent; None:
        it does, or it lives."""
        covered = affinity_covered(taints, self._placement.scope)
        known = document.status.get("conditions")
        generation = document.metadata.generation
        own = [condition for condition in (covered, taints_objects.refused(problems)) if condition is not None]
        listed = merged(own, known, generation=generation, now=self._clock.now())
        await apply_status(
            self._client,
            ARCHITECTURE_TAINTS,
            document,
            {"conditions": listed} if listed else {},
            field_manager=taints_objects.FIELD_MANAGER,
            writes=self._objects.writes,
        )
        rollout = self._sets.rollout(names.ROLE)
        if rollout.available:
            self._silent_since = None
            return None
        now = self._clock.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        rest = self._silent_since + taints_objects.SILENCE_REPORTED_AFTER - now
        if rest > 0 and any(condition.get("type") == "Ready" for condition in known or ()):
            return rest  # what the leader said is still fresh, or said by its successor, whose pod is just not counted
        await self._set_condition(document, taints_objects.not_available(rollout, problems))
        return None

    async def _set_condition(self, document: Unstructured, condition: Condition) -> None:
        """Set a condition of the role's leader, which takes it back when it lives again."""
        operations = taking_over(condition, document, now=self._clock.now())
        if not operations:
            return
        try:
            written: PartialObjectMetadata = await self._client.patch(
                ARCHITECTURE_TAINTS, names.SINGLETON, JsonPatch(operations), subresource="status"
            )
        except NotFound:
            return
        except Invalid as error:
            if not error.is_failed_test:
                raise
            return  # it has changed: its event begins another reconcile
        self._objects.writes.note_write(SINGLETON, written.metadata.resource_version)


def _settings_of(document: Unstructured) -> TaintSettings:
    return TaintSettings.of(msgspec.convert(document.document, ArchitectureTaints).spec)
