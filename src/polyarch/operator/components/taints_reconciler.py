"""Removes taints from the cluster when ArchitectureTaints is deleted: looks live, takes one step, looks again.

The order is in ``operator.uninstall``, and what a step writes in ``removal``, as ``polyarch taint clean`` does it.
Nothing here believes a cache but for whether the role lives, which only its Lease can tell."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.apply import ApplyFailed
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged, taking_over
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Invalid, KubernetesError, NotFound
from polyarch.kube.informer import Informer, OnDemand, Shares
from polyarch.kube.lease import Lease, RecordAge
from polyarch.kube.owners import add_finalizer, delete_object, remove_finalizer
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, Ref, Resource
from polyarch.kube.store import Change
from polyarch.objects import Condition, Key, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components import taints_status
from polyarch.operator.components.taints_objects import taints_operands, webhooks
from polyarch.operator.components.taints_status import PlacementScope, affinity_covered
from polyarch.operator.operands import RolloutStatus
from polyarch.operator.settings import OLDEST_KUBERNETES, ClusterCapabilities, OperatorSettings
from polyarch.operator.uninstall import RemainingTaints, TaintsUninstallStep, next_taints_step
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.inventory import RECORDED_ONLY
from polyarch.taints.removal import ADMISSION_GROUP, POLICY_PLURALS, Removal
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import Outcome, Writer

log = structlog.get_logger(__name__)

LEASE_TIMEOUT: Final = 30.0
"""Seconds without a change of the role's Lease after which nobody is taken to clean up."""


class RemainingObjects(msgspec.Struct, frozen=True, kw_only=True):
    """One live look."""

    left: RemainingTaints
    operands: Mapping[Ref, PartialObjectMetadata]
    marked: tuple[Ref, ...] = ()
    """Nodes and pods on which something of ours is."""
    lease: bool = False


class TaintsUninstaller:
    """``home`` is the operator's namespace. What it remembers are times, which no object records."""

    def __init__(
        self, client: Client, informers: Shares, operands: OperandApplySets, *, home: str, clock: Clock
    ) -> None:
        self._client = client
        self._operands = operands
        self._home = home
        self._clock = clock
        self._lease = OnDemand(informers, LEASES, Lease, self._lease_changed, namespace=home, name=names.LEASE)
        self._age: RecordAge | None = None
        self._registered_at: float | None = None
        self._progress: tuple[int, float] | None = None
        self._logged: TaintsUninstallStep | None = None
        self.failures: tuple[str, ...] = ()
        """What the operator itself could not remove, and why."""

    def forget(self) -> None:
        """No removal is under way (any more)."""
        self._lease.want(False)
        self._age = self._registered_at = self._progress = self._logged = None
        self.failures = ()

    async def look(self, settings: TaintSettings | None, leaving: ObjectMeta | None) -> RemainingObjects:
        """What is left. ``settings``: of the object, None if it is gone; ``leaving``: its metadata while it goes."""
        self._watch_lease()
        removal = self._removal(settings)
        found = await self._operands.live()
        configuration = Ref(MUTATING_WEBHOOKS, Key("", names.ROLE))
        registered = configuration in found or await self._has_policy()
        now = self._clock.monotonic()
        if registered or self._registered_at is None:
            self._registered_at = now
        marked = await removal.left()
        role = {ref: each for ref, each in found.items() if ref != configuration}
        has_lease = not role and await self._exists(LEASES, names.LEASE, self._home)
        left = RemainingTaints(
            registered=registered,
            marks=len(marked),
            role=len(role) + has_lease,
            lives=self._lives(),
            idle=self._idle(len(marked), now),
            settling=now - self._registered_at,
            finalizer=leaving is not None and names.FINALIZER in (leaving.finalizers or ()),
        )
        return RemainingObjects(left=left, operands=role, marked=marked, lease=has_lease)

    async def take(
        self, seen: RemainingObjects, settings: TaintSettings | None, leaving: ObjectMeta | None
    ) -> TaintsUninstallStep:
        """Takes the next step, and says which it was. Raises ``KubernetesError``."""
        step = next_taints_step(seen.left)
        if step is not self._logged:
            log.info("removal of taints", step=step.value, marks=len(seen.marked))
        self._logged = step
        match step:
            case TaintsUninstallStep.UNREGISTER:
                self._note(await self._removal(settings).registration())
            case TaintsUninstallStep.CLEAN:
                removal = self._removal(settings)
                self._note(Outcome.of((await removal.taints(), await removal.gates())))
            case TaintsUninstallStep.REMOVE_ROLE:
                self.failures = ()
                await self._operands.remove(seen.operands)
                if seen.lease:
                    await delete_object(self._client, LEASES, Key(self._home, names.LEASE))
            case TaintsUninstallStep.RELEASE if leaving is not None:
                await remove_finalizer(self._client, ARCHITECTURE_TAINTS, leaving, names.FINALIZER)
            case TaintsUninstallStep.FINISHED:
                self.forget()
        return step

    async def remove_at_once(self, settings: TaintSettings | None, leaving: ObjectMeta | None) -> None:
        """All that can still be done while the operator's namespace is being deleted, and its own rights with it."""
        removal = self._removal(settings)
        parts: list[Callable[[], Awaitable[Any]]] = [removal.registration, removal.gates, removal.taints]
        in_cluster = [ref for ref in self._operands.cached() if not ref.resource.namespaced]
        parts += [partial(delete_object, self._client, ref.resource, ref.key) for ref in in_cluster]
        if leaving is not None:
            parts.append(partial(remove_finalizer, self._client, ARCHITECTURE_TAINTS, leaving, names.FINALIZER))
        for part in parts:
            try:
                await part()
            except KubernetesError as error:
                log.warning("left behind in a namespace that is being deleted", error=str(error))

    def _removal(self, settings: TaintSettings | None) -> Removal:
        return Removal(Writer(self._client, clock=self._clock), settings or RECORDED_ONLY)

    def _note(self, outcome: Outcome) -> None:
        self.failures = tuple(map(str, outcome.failed))
        for failure in self.failures:
            log.warning("not removed", problem=failure)

    # -- facts --------------------------------------------------------------------------------------------------------

    def _lives(self) -> bool:
        """The role will remove taints and gates by itself."""
        deployment = self._operands.get(DEPLOYMENTS, names.ROLE)
        available = RolloutStatus.of(deployment.document if deployment is not None else None).available
        return available and self._age is not None and self._age.age() < LEASE_TIMEOUT

    def _watch_lease(self) -> None:
        if self._age is None:
            self._age = RecordAge(self._clock, blind=lambda: self._lease.blind_seconds)
            self._lease.want(True)

    def _lease_changed(self, change: Change[Lease]) -> None:
        if self._age is not None:
            self._age.observe(change.new)

    def _idle(self, marks: int, now: float) -> float:
        """Seconds since fewer marks were seen than before."""
        if self._progress is None or marks < self._progress[0]:
            self._progress = marks, now
        return now - self._progress[1]

    async def _has_policy(self) -> bool:
        served = await self._client.discover(ADMISSION_GROUP)
        newest = [next((each for each in served if each.plural == plural), None) for plural in POLICY_PLURALS]
        for resource in newest:
            if resource is not None and await self._exists(resource, names.REGISTRATION_POLICY):
                return True
        return False

    async def _exists(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self._client.get(resource, name, namespace=namespace, type=PartialObjectMetadata)
        except NotFound:
            return False
        return True


# -- The lifecycle of taints: the role is deployed while ArchitectureTaints exists, then removed.


Document = dict[str, Any]

SINGLETON: Final = Key("", names.SINGLETON)
SOON: Final = 0.2
"""Seconds until the next pass when a step was taken, or a cache is behind."""
WAITING: Final = 1.0
"""Seconds until the next pass while something is waited for; twice as long each time nothing has changed."""
LONGEST_WAIT: Final = 10.0
CONTESTED: Final = 30.0


class CABundle(Protocol):
    """Whose certificates API servers are to trust."""

    @property
    def is_known(self) -> bool: ...

    def bundle(self, found: str) -> bytes:
        """The CAs (PEM) for a configuration whose ``caBundle`` is ``found``."""


class PlacementState(Protocol):
    """Placement, as far as taints has to do with it."""

    @property
    def configuration(self) -> PlacementScope | None:
        """What it does; None: it is off."""

    @property
    def webhook(self) -> Mapping[str, Any] | None:
        """The entry of its webhook configuration in the cluster; None: there is none."""


class TaintsReconciler:
    """The reconciler; its only key is :data:`SINGLETON`. ``objects``: the cache of ArchitectureTaints."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        objects: Informer[Unstructured],
        *,
        home: OperatorNamespace,
        discovery: Discovery,
        sets: OperandApplySets,
        trust: CABundle,
        placement: PlacementState,
        farewell: TaintsUninstaller,
        clock: Clock,
    ) -> None:
        self._client = client
        self._settings = settings
        self._objects = objects
        self._home = home
        self._discovery = discovery
        self._sets = sets
        self._trust = trust
        self._placement = placement
        self._farewell = farewell
        self._clock = clock
        self._nothing_left = False
        self._waits = WAITING
        self._silent_since: float | None = None

    @property
    def tolerated(self) -> tuple[str, ...]:
        """Keys of taints that all Deployments of ours tolerate while the object exists."""
        document = self._objects.store.get(SINGLETON)
        return (_settings_of(document).key,) if document is not None else ()

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        self._sets.serve(self._discovery.served & MONITORING)
        document = self._objects.store.get(SINGLETON)
        if document is None:
            if await self._exists():
                return After(SOON)  # the cache is behind
            return await self._leave(None)
        if self._objects.writes.is_stale(key):
            return After(SOON)
        if document.metadata.deletion_timestamp is not None or self._home.is_terminating:
            return await self._leave(document)
        return await self._deploy(document)

    async def _exists(self) -> bool:
        try:
            await self._client.get(ARCHITECTURE_TAINTS, names.SINGLETON, type=PartialObjectMetadata)
        except NotFound:
            return False
        return True

    # -- deployed ------------------------------------------------------------------------------------------------------

    async def _deploy(self, document: Unstructured) -> Result:
        cluster = self._discovery.cluster
        if cluster is None or not self._trust.is_known:
            return After(SOON)
        if cluster.version < OLDEST_KUBERNETES:
            needed = ".".join(map(str, OLDEST_KUBERNETES))
            await self._set(
                document, taints_status.not_available(RolloutStatus(), (f"taints need Kubernetes {needed} or newer",))
            )
            return After(LONGEST_WAIT)
        self._farewell.forget()
        self._nothing_left = False
        if not await add_finalizer(self._client, ARCHITECTURE_TAINTS, document.metadata, names.FINALIZER):
            return After(SOON)
        taints = _settings_of(document)
        if unusable := self._home.problems:  # a change of them begins another pass
            log.error("the role is not deployed or changed", problems=unusable)
            silent = await self._tell(document, taints, unusable)
            return Done() if silent is None else After(silent)
        problems: tuple[str, ...] = ()
        failure: ApplyFailed | None = None
        wanted = self._documents(cluster, taints)
        try:
            outcome = await self._sets.apply(wanted, keeps=lambda _: False)
        except ApplyFailed as error:
            outcome, failure = error.outcome, error
            problems = tuple(f"{ref} could not be changed: {each}" for ref, each in error.failures.items())
        problems += tuple(
            f"{ref}: {conflict.manager} keeps changing {conflict.field}" for ref, conflict in outcome.contested
        )
        silent = await self._tell(document, taints, problems)
        if failure is not None:
            raise failure
        if outcome.contested:
            return After(CONTESTED)
        if outcome.leaving or not self._sets.is_complete:
            return After(WAITING)
        return Done() if silent is None else After(silent)

    def _documents(self, cluster: ClusterCapabilities, taints: TaintSettings) -> list[Document]:
        documents = list(
            taints_operands(
                self._settings,
                cluster,
                taints,
                ca_bundle=self._trust.bundle(""),
                registries=self._home.registries,
                placed=self._placement.configuration is not None,
            )
        )
        if taints.state == "active" and self._rollout().available:
            bundle = self._trust.bundle(self._trusted())
            documents.append(webhooks(self._settings, taints, bundle, placement=self._placement.webhook, owner=None))
        return documents

    def _rollout(self) -> RolloutStatus:
        found = self._sets.get(DEPLOYMENTS, names.ROLE)
        return RolloutStatus.of(found.document if found is not None else None)

    def _trusted(self) -> str:
        """``caBundle`` of the webhook configuration now."""
        found = self._sets.get(MUTATING_WEBHOOKS, names.ROLE)
        registered = (found.document.get("webhooks") if found is not None else None) or [{}]
        return str((registered[0].get("clientConfig") or {}).get("caBundle") or "")

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def _leave(self, document: Unstructured | None) -> Result:
        metadata = document.metadata if document is not None else None
        taints = _settings_of(document) if document is not None else None
        if self._home.is_terminating:
            leaving = metadata if metadata is not None and metadata.deletion_timestamp is not None else None
            await self._farewell.remove_at_once(taints, leaving)
            return After(WAITING)
        if document is None and not self._sets.cached() and self._nothing_left:
            return Done()
        seen = await self._farewell.look(taints, metadata)
        step = await self._farewell.take(seen, taints, metadata)
        if document is not None and self._farewell.failures:
            await self._set(document, taints_status.not_removed(self._farewell.failures))
        if step is TaintsUninstallStep.FINISHED:
            self._nothing_left = True
            return Done()
        if step not in (TaintsUninstallStep.LET_ROLE_CLEAN, TaintsUninstallStep.CLEAN):
            self._waits = WAITING
            return After(WAITING if step is TaintsUninstallStep.SETTLE else SOON)
        waits, self._waits = self._waits, min(self._waits * 2, LONGEST_WAIT)
        return After(waits)

    # -- conditions ----------------------------------------------------------------------------------------------------

    async def _tell(self, document: Unstructured, taints: TaintSettings, problems: tuple[str, ...]) -> float | None:
        """Writes what the role's leader does not know, or cannot say. Seconds until it counts as silent; None: it does,
        or it lives."""
        covered = affinity_covered(taints, self._placement.configuration)
        known = document.status.get("conditions")
        generation = document.metadata.generation
        own = [each for each in (covered, taints_status.refused(problems)) if each is not None]
        listed = merged(own, known, generation=generation, now=self._clock.now())
        await apply_status(
            self._client,
            ARCHITECTURE_TAINTS,
            document,
            {"conditions": listed} if listed else {},
            field_manager=taints_status.FIELD_MANAGER,
            writes=self._objects.writes,
        )
        rollout = self._rollout()
        if rollout.available:
            self._silent_since = None
            return None
        now = self._clock.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        rest = self._silent_since + taints_status.SILENCE_REPORTED_AFTER - now
        if rest > 0 and any(each.get("type") == "Ready" for each in known or ()):
            return rest  # what the leader said is still fresh, or said by its successor, whose pod is just not counted
        await self._set(document, taints_status.not_available(rollout, problems))
        return None

    async def _set(self, document: Unstructured, found: Condition) -> None:
        """Sets a condition of the role's leader, which takes it back when it lives again."""
        operations = taking_over(found, document, now=self._clock.now())
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
            return  # it has changed: its event begins another pass
        self._objects.writes.note_write(SINGLETON, written.metadata.resource_version)


def _settings_of(document: Unstructured) -> TaintSettings:
    return TaintSettings.of(msgspec.convert(document.document, ArchitectureTaints).spec)
