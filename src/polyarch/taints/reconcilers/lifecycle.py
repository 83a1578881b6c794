"""The lifecycle of taints: the role is deployed while ArchitectureTaints exists, then removed (TN-003, TN-073).

Every pass starts from what is there now and may be cut off anywhere. The webhook is registered once a pod can answer,
for the pods that placement's webhook does not see; so it changes with placement's.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.apply import ApplyFailed
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged, taking_over
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.owners import add_finalizer
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import DEPLOYMENTS, MUTATING_WEBHOOKS
from polyarch.objects import Condition, Key, PartialObjectMetadata, Unstructured
from polyarch.operating.keeping.discovery import MONITORING, Discovery
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.rollouts import Rollout
from polyarch.operating.settings import OLDEST_KUBERNETES, Cluster, OperatorSettings
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.operator import conditions
from polyarch.taints.operator.coverage import Placement, affinity_covered
from polyarch.taints.operator.farewell import Step
from polyarch.taints.operator.operands import operands
from polyarch.taints.operator.webhooks import webhooks
from polyarch.taints.reconcilers.leaving import Farewell
from polyarch.taints.settings import TaintSettings

log = structlog.get_logger(__name__)

Document = dict[str, Any]

SINGLETON: Final = Key("", names.SINGLETON)
SOON: Final = 0.2
"""Seconds until the next pass when a step was taken, or a cache is behind."""
WAITING: Final = 1.0
"""Seconds until the next pass while something is waited for; twice as long each time nothing has changed."""
LONGEST_WAIT: Final = 10.0
CONTESTED: Final = 30.0


class Trust(Protocol):
    """Whose certificates API servers are to trust."""

    @property
    def is_known(self) -> bool: ...

    def bundle(self, found: str) -> bytes:
        """The CAs (PEM) for a configuration whose ``caBundle`` is ``found``."""


class Neighbour(Protocol):
    """Placement, as far as taints has to do with it."""

    @property
    def configuration(self) -> Placement | None:
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
        home: Home,
        discovery: Discovery,
        sets: OperandSets,
        trust: Trust,
        placement: Neighbour,
        farewell: Farewell,
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
        """Keys of taints that all Deployments of ours tolerate while the object exists (TN-081)."""
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
                document, conditions.not_available(Rollout(), (f"taints need Kubernetes {needed} or newer",))
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

    def _documents(self, cluster: Cluster, taints: TaintSettings) -> list[Document]:
        documents = list(
            operands(
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

    def _rollout(self) -> Rollout:
        found = self._sets.get(DEPLOYMENTS, names.ROLE)
        return Rollout.of(found.document if found is not None else None)

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
            await self._set(document, conditions.not_removed(self._farewell.failures))
        if step is Step.FINISHED:
            self._nothing_left = True
            return Done()
        if step not in (Step.LET_ROLE_CLEAN, Step.CLEAN):
            self._waits = WAITING
            return After(WAITING if step is Step.SETTLE else SOON)
        waits, self._waits = self._waits, min(self._waits * 2, LONGEST_WAIT)
        return After(waits)

    # -- conditions ----------------------------------------------------------------------------------------------------

    async def _tell(self, document: Unstructured, taints: TaintSettings, problems: tuple[str, ...]) -> float | None:
        """Writes what the role's leader does not know, or cannot say. Seconds until it counts as silent; None: it does,
        or it lives."""
        covered = affinity_covered(taints, self._placement.configuration)
        known = document.status.get("conditions")
        generation = document.metadata.generation
        own = [each for each in (covered, conditions.refused(problems)) if each is not None]
        listed = merged(own, known, generation=generation, now=self._clock.now())
        await apply_status(
            self._client,
            ARCHITECTURE_TAINTS,
            document,
            {"conditions": listed} if listed else {},
            field_manager=conditions.FIELD_MANAGER,
            writes=self._objects.writes,
        )
        rollout = self._rollout()
        if rollout.available:
            self._silent_since = None
            return None
        now = self._clock.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        rest = self._silent_since + conditions.SILENCE - now
        if rest > 0 and any(each.get("type") == "Ready" for each in known or ()):
            return rest  # what the leader said is still fresh, or said by its successor, whose pod is just not counted
        await self._set(document, conditions.not_available(rollout, problems))
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
