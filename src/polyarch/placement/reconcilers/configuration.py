"""The lifecycle of placement: deployed while the ClusterPodPlacementConfig exists, then uninstalled in order.

PL-020 to PL-022, PL-500 to PL-504, PL-520. Every pass starts from what is there now and may be cut off anywhere. An
absent object is believed absent only after a live read (PL-522).
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.owners import add_finalizer, remove_finalizer
from polyarch.kube.resources import few
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operating.keeping.discovery import MONITORING, Discovery
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.placement import names
from polyarch.placement.api import CPPCS, PPCS
from polyarch.placement.conversion import conversion_problems
from polyarch.placement.operator import operands
from polyarch.placement.operator.status import conditions
from polyarch.placement.operator.status.conditions import Observed
from polyarch.placement.operator.status.readiness import ignored_values
from polyarch.placement.reconcilers.deploying import MONITOR, Deployer
from polyarch.placement.reconcilers.forced_release import named
from polyarch.placement.reconcilers.observation import Observation
from polyarch.placement.reconcilers.steps import SOON, Pauses, Step, next_step
from polyarch.placement.reconcilers.uninstalling import Seen, Uninstaller

log = structlog.get_logger(__name__)

WAITING: Final = 1.0
"""Seconds until the next pass while something is waited for."""
CONTESTED: Final = 30.0
PREDECESSOR: Final = 5.0


class PlacementReconciler:
    """The reconciler; its only key is ``SINGLETON``. ``left_out``: problems that the controllers' leader reports."""

    def __init__(
        self,
        client: Client,
        home: Home,
        observation: Observation,
        discovery: Discovery,
        sets: OperandSets,
        deployer: Deployer,
        uninstaller: Uninstaller,
        recorder: Recorder,
        clock: Clock,
        left_out: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._client = client
        self._home = home
        self._observation = observation
        self._discovery = discovery
        self._sets = sets
        self._deployer = deployer
        self._uninstaller = uninstaller
        self._recorder = recorder
        self._clock = clock
        self._left_out = left_out
        self._looked_for_gates = False
        self._pauses = Pauses()

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        self._sets.serve(self._discovery.served & MONITORING)
        document = self._observation.document
        if document is None:
            if await self._exists():
                return After(SOON)  # the cache is behind
            return await self._uninstall(None)
        if self._observation.documents.writes.is_stale(key):
            return After(SOON)
        if document.metadata.deletion_timestamp is not None:
            return await self._uninstall(document)
        if self._home.is_terminating:
            return await self._uninstall(document)
        return await self._deploy(document)

    async def _exists(self) -> bool:
        try:
            await self._client.get(CPPCS, names.SINGLETON, type=PartialObjectMetadata)
        except NotFound:
            return False
        return True

    # -- deployed ------------------------------------------------------------------------------------------------------

    async def _deploy(self, document: Unstructured) -> Result:
        configuration, cluster = self._observation.configuration, self._discovery.cluster
        if configuration is None or cluster is None or not self._deployer.is_ready:
            return After(SOON)
        obstacles = self._obstacles()
        if obstacles:
            await self._write_conditions(document, self._observed(problems=obstacles))
            return After(PREDECESSOR)
        self._uninstaller.forget()
        self._looked_for_gates = False
        if not self._deployer.should_be_configured and self._deployer.is_configured:
            await self._uninstaller.delete_webhook_configuration()
        if unusable := self._home.problems:  # a change of them begins another pass
            changed = self._deployer.changed_by_others(configuration, cluster)
            observed = self._observed(problems=conditions.unusable(unusable), unreachable=changed)
            await self._write_conditions(document, observed)
            return Done()
        wanted = operands.finalizers(configuration, configs=len(self._observation.configs.store))
        if not await self._add_finalizers(document, wanted):
            return After(SOON)
        problems = (*conversion_problems(document.document), *ignored_values(configuration), *self._left_out())
        if _is_available(document) and (changed := self._deployer.changed_by_others(configuration, cluster)):
            # Before it is put right, so that the condition's times say that pods were not placed meanwhile.
            document = await self._write_conditions(document, self._observed(problems=problems, unreachable=changed))
        deployed = await self._deployer.apply(configuration, cluster)
        observed = self._observed(problems=(*deployed.problems, *problems), unreachable=deployed.unreachable)
        document = await self._write_conditions(document, observed)
        if deployed.failure is not None:
            raise deployed.failure
        monitored = operands.is_monitored(configuration)
        if not monitored and (waits := await self._remove_monitor(document)) is not None:
            return waits
        await self._drop_finalizer(document, wanted)
        if deployed.outcome.contested:
            return After(CONTESTED)
        return After(WAITING) if deployed.outcome.leaving or not self._sets.is_complete else Done()

    async def watch_predecessor(self, leads: Callable[[], bool]) -> None:
        """For replicas that do not lead, until cancelled: in one namespace the predecessor holds the Lease (PL-503)."""
        while True:
            await self._clock.sleep(PREDECESSOR)
            document = self._observation.document
            if document is None or leads() or self._observation.predecessor is None:
                continue
            try:
                await self._write_conditions(document, self._observed(problems=self._obstacles()))
            except KubernetesError as error:
                log.warning("conditions not written", error=str(error))

    def _obstacles(self) -> tuple[str, ...]:
        """Why nothing is deployed."""
        cluster, predecessor = self._discovery.cluster, self._observation.predecessor
        if cluster is not None and (problem := conditions.version_problem(cluster)):
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
        """The one for PodPlacementConfigs goes with the last of them, after a live read (PL-522)."""
        name = names.NO_POD_PLACEMENT_CONFIG_FINALIZER
        if name in wanted or name not in (document.metadata.finalizers or ()):
            return
        with suppress(NotFound):  # a kind without a definition has no objects
            if (await self._client.list(PPCS, type=PartialObjectMetadata, limit=1)).items:
                return
        await remove_finalizer(self._client, CPPCS, document.metadata, name)

    async def _remove_monitor(self, document: Unstructured) -> Result | None:
        """The monitor's own removal, while anything of it is there (PL-630)."""
        kept = names.ENOEXEC_EVENTS_FINALIZER in (document.metadata.finalizers or ())
        if not kept and not self._sets.has_any_of(MONITOR):
            return None
        found = await self._sets.live()
        step = await self._uninstaller.remove_monitor(found, document.metadata)
        return After(self._pauses.after(step, left=len(found)))

    # -- uninstalled ---------------------------------------------------------------------------------------------------

    async def _uninstall(self, document: Unstructured | None) -> Result:
        metadata = document.metadata if document is not None else None
        if self._home.is_terminating:
            await self._uninstaller.remove_at_once(metadata)
            return After(WAITING)
        if self._observation.predecessor is not None:  # its controller removes the gates, with constraints
            if document is not None:
                observed = self._observed(deleting=True, waiting_for="; ".join(self._obstacles()))
                await self._write_conditions(document, observed)
            return After(PREDECESSOR)
        if document is None and not self._sets.cached() and self._looked_for_gates:
            return Done()
        seen = await self._uninstaller.look(metadata)
        step = next_step(seen.left)
        if document is not None:
            waiting = _waiting(step, seen)
            observed = self._observed(deleting=True, gated=len(seen.gated), waiting_for=waiting)
            await self._write_conditions(document, observed)
        if step is Step.REMOVE_CONTROLLER and seen.gated:
            self._report_gated(metadata, seen)
        await self._uninstaller.take(seen, metadata)
        if step is Step.FINISHED:
            self._looked_for_gates = True
            log.info("placement is uninstalled")
            return Done()
        if step in (Step.WAIT_FOR_CONFIGS, Step.WAIT_FOR_GATES):
            return After(WAITING)
        return After(self._pauses.after(step, left=len(seen.found) + len(seen.leases)))

    def _report_gated(self, metadata: ObjectMeta | None, seen: Seen) -> None:
        """PL-521: gates that nobody could remove."""
        text = f"pods keep their scheduling gate: {named(seen.gated)}"
        log.error("placement is removed although pods are gated", problem=text)
        if metadata is not None:
            self._recorder.event(
                Regarding.of(CPPCS, metadata),
                type="Warning",
                reason="PolyarchForcedRelease",
                action="Uninstall",
                note=text,
            )

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _observed(
        self,
        *,
        deleting: bool = False,
        gated: int | None = None,
        waiting_for: str = "",
        problems: tuple[str, ...] = (),
        unreachable: tuple[str, ...] = (),
    ) -> Observed:
        return Observed(
            controller=self._deployer.rollout(names.CONTROLLER),
            webhook=self._deployer.rollout(names.WEBHOOK),
            configured=self._deployer.is_configured,
            deleting=deleting,
            gated_pods=gated,
            waiting_for=waiting_for,
            problems=problems,
            unreachable=unreachable,
        )

    async def _write_conditions(self, document: Unstructured, observed: Observed) -> Unstructured:
        """Writes the conditions if they changed (PL-021). Returns the object with them."""
        metadata = document.metadata
        found = merged(
            conditions.conditions(observed),
            document.status.get("conditions"),
            generation=metadata.generation,
            now=self._clock.now(),
        )
        await apply_status(
            self._client, CPPCS, document, {"conditions": found}, writes=self._observation.documents.writes
        )
        return Unstructured({**document.document, "status": {**document.status, "conditions": found}})


def _is_available(document: Unstructured) -> bool:
    known = document.status.get("conditions") or ()
    return any((each["type"], each["status"]) == (conditions.AVAILABLE, "True") for each in known)


def _waiting(step: Step, seen: Seen) -> str:
    """For people: what happens, and what it waits for."""
    if step is Step.WAIT_FOR_CONFIGS:
        return f"PodPlacementConfigs depend on it: {few(seen.configs)}; delete them"
    if step is Step.REMOVE_CONTROLLER and seen.gated:
        return f"their gates could not be removed: {named(seen.gated)}"
    return f"next: {step.value}"
