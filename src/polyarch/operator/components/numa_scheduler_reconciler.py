"""The controller ``numaresourcesscheduler``: gathers what a plan needs, and does what it says."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import KubernetesError
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.owners import Owner, add_finalizer, delete_object, remove_finalizer
from polyarch.kube.resources import DEPLOYMENTS, PODS, Resource
from polyarch.numa import names
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.objects import ObjectKey, PartialObjectMetadata, Unstructured
from polyarch.operator import operands
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace, applied_architectures
from polyarch.operator.components import numa_facts
from polyarch.operator.components.numa_cluster import (
    POLL_INTERVAL,
    UNINSTALL_INTERVAL,
    NodePoller,
    NumaInformers,
    NumaStatusWriter,
    Platforms,
    is_late,
)
from polyarch.operator.components.numa_facts import OperatorCondition
from polyarch.operator.components.numa_scheduler_objects import CAPACITIES
from polyarch.operator.components.numa_scheduler_plan import ImageRules, SchedulerFacts, SchedulerPlan, plan_scheduler
from polyarch.operator.reconciler import STEP_TAKEN
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

log = structlog.get_logger(__name__)

SCHEDULER_KEY: Final = ObjectKey("", names.SCHEDULER_SINGLETON)
WAITING: Final = RequeueAfter(5.0)
FAILED: Final = "FailedSchedulerSync"
MAX_PODS: Final = 100
"""Pending pods that get an Event."""


class SchedulerUninstaller:
    """Uninstalls the secondary scheduler, and tells the pods that wait for it."""

    def __init__(self, client: Client, recorder: Recorder, *, namespace: str, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._namespace = namespace
        self._clock = clock

    async def uninstall(self, live: Unstructured, *, at_once: bool) -> Result:
        """Take one step. ``at_once``: the operator's namespace is terminating, and its permissions with it."""
        metadata = live.metadata
        if names.FINALIZER not in (metadata.finalizers or ()):
            return NoRequeue()
        late = at_once or is_late(metadata, self._clock)
        try:
            left = metadata.name == names.SCHEDULER_SINGLETON and await self._step()
            if not left:
                await self._post_on_pods(str(live.status.get("schedulerName") or ""))
        except KubernetesError as error:
            if not late:
                raise
            log.warning("scheduler let go although not all was done", error=str(error))
            left = False
        if left and not late:
            return UNINSTALL_INTERVAL
        await remove_finalizer(self._client, SCHEDULERS, metadata, names.FINALIZER)
        return NoRequeue()

    async def _step(self) -> bool:
        """Whether something is still there."""
        deployment, kick = ObjectKey(self._namespace, names.SCHEDULER), ObjectKey(self._namespace, names.KICK)
        several: tuple[tuple[Resource, ObjectKey], ...] = ((DEPLOYMENTS, deployment), (CAPACITIES, kick))
        found = [await delete_object(self._client, resource, key) for resource, key in several]
        return any(remaining is not None for remaining in found)

    async def _post_on_pods(self, scheduler: str) -> None:
        if not scheduler:
            return
        page = await self._client.list(
            PODS,
            type=PartialObjectMetadata,
            field_selector=f"spec.schedulerName={scheduler},spec.nodeName=,status.phase=Pending",
        )
        for pod in page.items[:MAX_PODS]:
            self._recorder.event(
                Regarding.of(PODS, pod.metadata),
                type="Warning",
                reason="SchedulerRemoved",
                note=f"scheduler {scheduler} was removed with its NUMAResourcesScheduler; the pod stays Pending "
                "until a scheduler of that name runs, or the pod is made anew with another schedulerName",
                action="Delete",
            )


class SchedulerReconciler:
    """Deploys and uninstalls the secondary scheduler. Keys are names of NUMAResourcesSchedulers, of which one alone has
    an effect: :data:`SCHEDULER_KEY`."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        platforms: Platforms,
        informers: NumaInformers,
        sets: OperandApplySets,
        node_poller: NodePoller,
        uninstaller: SchedulerUninstaller,
        status_writer: NumaStatusWriter,
        image_rules: ImageRules,
        tolerated: Callable[[], Sequence[str]],
    ) -> None:
        """``tolerated``: the keys of taints that every Deployment of polyarch tolerates now."""
        self._tolerated = tolerated
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._discovery = discovery
        self._platforms = platforms
        self._informers = informers
        self._sets = sets
        self._node_poller = node_poller
        self._uninstaller = uninstaller
        self._status_writer = status_writer
        self._image_rules = image_rules

    async def reconcile(self, key: ObjectKey) -> Result:
        live = self._informers.schedulers.store.get(key)
        if live is None:
            self._status_writer.forget(key.name)
            return NoRequeue()
        if self._informers.schedulers.writes.is_stale(key):
            return STEP_TAKEN
        if live.metadata.deletion_timestamp is not None or self._namespace.is_terminating:
            return await self._uninstaller.uninstall(live, at_once=self._namespace.is_terminating)
        cluster = self._discovery.cluster
        self._sets.serve(self._discovery.served & MONITORING)
        if cluster is None or not self._informers.has_synced or not self._sets.is_complete:
            return STEP_TAKEN
        if (live.metadata.annotations or {}).get(names.PAUSE) == "enabled":
            return NoRequeue()
        return await self._carry_out(live, cluster)

    async def _carry_out(self, live: Unstructured, cluster: ClusterCapabilities) -> Result:
        facts = await self._facts(live, cluster)
        planned = plan_scheduler(facts)
        if planned.documents is None:
            return await self._write_status(live, planned)
        if not await add_finalizer(self._client, SCHEDULERS, live.metadata, names.FINALIZER):
            return STEP_TAKEN
        try:
            outcome = await self._sets.apply(planned.documents, keeps=lambda _: False)
        except KubernetesError as error:
            condition = OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, f"{FAILED}: {error}")
            await self._write_status(live, msgspec.structs.replace(planned, condition=condition))
            raise
        if outcome.leaving or outcome.contested:
            await self._write_status(live, planned)
            return WAITING
        return await self._write_status(live, planned)

    async def _facts(self, live: Unstructured, cluster: ClusterCapabilities) -> SchedulerFacts:
        deployment = self._sets.get(DEPLOYMENTS, names.SCHEDULER)
        settings = self._settings.tolerating(*self._tolerated())
        facts = SchedulerFacts(
            document=live.document,
            metadata=live.metadata,
            owner=Owner.of(SCHEDULERS, live.metadata),
            operator=settings,
            cluster=cluster,
            platform=await self._platforms.find(openshift=cluster.openshift),
            version=self._discovery.release,
            node_counts=await self._node_poller.look(self._informers.node_arrivals, operands.tolerated(settings)),
            image_rules=self._image_rules,
            api_server_ports=self._informers.api_server_ports,
            deployment=deployment.document if deployment is not None else None,
        )
        architectures = await self._discovery.images.of(facts.image)
        if architectures is None and facts.deployment is not None:
            architectures = applied_architectures(facts.deployment, facts.image)
        return msgspec.structs.replace(facts, image_architectures=architectures)

    async def _write_status(self, live: Unstructured, planned: SchedulerPlan) -> Result:
        conditions = (*numa_facts.four(planned.condition), *planned.extra)
        if not await self._status_writer.write(live, planned.status, conditions, planned.events):
            return STEP_TAKEN
        return RequeueAfter(planned.requeue_after if planned.requeue_after is not None else POLL_INTERVAL)
