"""The controller ``numaresourcesscheduler``: gathers what a plan needs, and does what it says."""

from typing import Final

import msgspec

from polyarch.kube.client import Client
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import KubernetesError
from polyarch.kube.owners import Owner, add_finalizer
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.numa import names
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.objects import Key, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components import numa_facts
from polyarch.operator.components.numa_cluster import (
    POLL_INTERVAL,
    NodePoller,
    NumaInformers,
    NumaStatusWriter,
    Platforms,
)
from polyarch.operator.components.numa_facts import OperatorCondition
from polyarch.operator.components.numa_scheduler_plan import ImageRules, SchedulerFacts, SchedulerPlan, plan_scheduler
from polyarch.operator.components.numa_uninstall import SchedulerRemoval
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

KEY: Final = Key("", names.SCHEDULER_SINGLETON)
SOON: Final = 0.2
WAITING: Final = 5.0
FAILED: Final = "FailedSchedulerSync"


class SchedulerReconciler:
    """Keys are names of NUMAResourcesSchedulers; there should be only :data:`KEY`."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        home: OperatorNamespace,
        discovery: Discovery,
        platforms: Platforms,
        watched: NumaInformers,
        sets: OperandApplySets,
        nodes: NodePoller,
        removal: SchedulerRemoval,
        telling: NumaStatusWriter,
        image_rules: ImageRules,
    ) -> None:
        self._client = client
        self._settings = settings
        self._home = home
        self._discovery = discovery
        self._platforms = platforms
        self._watched = watched
        self._sets = sets
        self._nodes = nodes
        self._removal = removal
        self._telling = telling
        self._image_rules = image_rules

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        live = self._watched.schedulers.store.get(key)
        if live is None:
            self._telling.forget(key.name)
            return Done()
        if self._watched.schedulers.writes.is_stale(key):
            return After(SOON)
        if live.metadata.deletion_timestamp is not None or self._home.is_terminating:
            return await self._removal.leave(live, at_once=self._home.is_terminating)
        cluster = self._discovery.cluster
        self._sets.serve(self._discovery.served & MONITORING)
        if cluster is None or not self._watched.has_synced or not self._sets.is_complete:
            return After(SOON)
        if (live.metadata.annotations or {}).get(names.PAUSE) == "enabled":
            return Done()
        return await self._pass(live, cluster)

    async def _pass(self, live: Unstructured, cluster: ClusterCapabilities) -> Result:
        observed = await self._observed(live, cluster)
        planned = plan_scheduler(observed)
        if planned.documents is None:
            return await self._tell(live, planned)
        if not await add_finalizer(self._client, SCHEDULERS, live.metadata, names.FINALIZER):
            return After(SOON)
        try:
            outcome = await self._sets.apply(planned.documents, keeps=lambda _: False)
        except KubernetesError as error:
            verdict = OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, f"{FAILED}: {error}")
            await self._tell(live, msgspec.structs.replace(planned, verdict=verdict))
            raise
        if outcome.leaving or outcome.contested:
            await self._tell(live, planned)
            return After(WAITING)
        return await self._tell(live, planned)

    async def _observed(self, live: Unstructured, cluster: ClusterCapabilities) -> SchedulerFacts:
        deployment = self._sets.get(DEPLOYMENTS, names.SCHEDULER)
        return SchedulerFacts(
            document=live.document,
            metadata=live.metadata,
            owner=Owner.of(SCHEDULERS, live.metadata),
            operator=self._settings,
            cluster=cluster,
            platform=await self._platforms.find(openshift=cluster.openshift),
            version=self._discovery.release,
            candidates=await self._nodes.look(self._watched.node_arrivals),
            image_rules=self._image_rules,
            api_server_ports=self._watched.api_server_ports,
            deployment=deployment.document if deployment is not None else None,
        )

    async def _tell(self, live: Unstructured, planned: SchedulerPlan) -> Result:
        told = (*numa_facts.four(planned.verdict), *planned.extra)
        if not await self._telling.tell(live, planned.status, told):
            return After(SOON)
        return After(planned.requeue if planned.requeue is not None else POLL_INTERVAL)
