"""The controllers of NUMA and what they watch, put together; ``operated_numa`` imports it when it is needed."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from polyarch.kube.controller import After, Done, Result
from polyarch.kube.events import Recorder
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    Resource,
)
from polyarch.kube.store import Change
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.operator.scheduler.image import ImageRules
from polyarch.numa.operator.scheduler.objects import KUBE_SYSTEM
from polyarch.numa.reconcilers import exporters, kubelets, scheduler
from polyarch.numa.reconcilers.census import NodeCensus
from polyarch.numa.reconcilers.exporters import ExporterReconciler
from polyarch.numa.reconcilers.kubelets import KubeletConfigReconciler
from polyarch.numa.reconcilers.leaving import ExporterRemoval, SchedulerRemoval
from polyarch.numa.reconcilers.platforms import Platforms
from polyarch.numa.reconcilers.scheduler import SchedulerReconciler
from polyarch.numa.reconcilers.series import NumaSeries
from polyarch.numa.reconcilers.telling import Telling
from polyarch.numa.reconcilers.watching import Watched
from polyarch.objects import Key, Unstructured
from polyarch.operating import names as shared
from polyarch.operating.keeping.discovery import Discovery
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.settings import OperatorSettings
from polyarch.operating.workloads import tolerated

EXPORTERS, SCHEDULER, KUBELETS = "numaresourcesoperator", "numaresourcesscheduler", "kubeletconfig"
IMAGE_RESTRICTION: Final = "EXPORTER_IMAGE_RESTRICTION"
"""``false``: ``imageSpec`` of a NUMAResourcesOperator is taken (NO-041)."""
EXPORTER_KINDS: Final = (
    SERVICE_ACCOUNTS,
    CONFIGMAPS,
    SERVICES,
    NETWORK_POLICIES,
    ROLES,
    ROLE_BINDINGS,
    DAEMONSETS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
SCHEDULER_KINDS: Final = (
    SERVICE_ACCOUNTS,
    CONFIGMAPS,
    SERVICES,
    NETWORK_POLICIES,
    ROLES,
    ROLE_BINDINGS,
    DEPLOYMENTS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
)


class NumaControllers:
    """``enqueue``: has the controller of that name look at that key."""

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        home: Home,
        discovery: Discovery,
        recorder: Recorder,
        enqueue: Callable[[str, Key], None],
        environment: Mapping[str, str],
    ) -> None:
        client, clock, place = process.client, process.clock, settings.numa_home
        self._enqueue = enqueue
        watched = self._watched = Watched(
            process.informers,
            settings,
            changed=self.look_again,
            kubelets_changed=lambda: enqueue(KUBELETS, kubelets.KEY),
        )
        exporter_sets, scheduler_sets = (
            OperandSets(
                client,
                process.informers,
                [(kind, place if kind.namespaced else "") for kind in kinds] + others,
                home=place,
                part_of=part,
                clock=clock,
                recorder=recorder,
                required=False,
            )
            for part, kinds, others in (
                (shared.NUMA_EXPORTER, EXPORTER_KINDS, []),
                (shared.NUMA_SCHEDULER, SCHEDULER_KINDS, [(ROLE_BINDINGS, KUBE_SYSTEM)]),
            )
        )

        series = NumaSeries(process.metrics)

        def telling(resource: Resource, cache: Informer[Unstructured]) -> Telling:
            return Telling(client, resource, cache, recorder=recorder, series=series, clock=clock)

        platforms = Platforms(client, settings)
        self._kubelets = KubeletConfigReconciler(
            watched, changed=lambda: enqueue(EXPORTERS, exporters.KEY), decode=_decoded
        )
        self._exporters = ExporterReconciler(
            client,
            settings,
            home=home,
            discovery=discovery,
            platforms=platforms,
            watched=watched,
            kubelets=self._kubelets,
            sets=exporter_sets,
            removal=ExporterRemoval(client, exporter_sets, recorder, home=place, clock=clock),
            telling=telling(OPERATORS, watched.operators),
            series=series,
            image_restricted=environment.get(IMAGE_RESTRICTION, "").lower() != "false",
            clock=clock,
            look_at_kubelets=lambda: enqueue(KUBELETS, kubelets.KEY),
        )
        self._scheduler = SchedulerReconciler(
            client,
            settings,
            home=home,
            discovery=discovery,
            platforms=platforms,
            watched=watched,
            sets=scheduler_sets,
            nodes=NodeCensus(client, clock, tolerations=tolerated(settings)),
            removal=SchedulerRemoval(client, recorder, home=place, clock=clock),
            telling=telling(SCHEDULERS, watched.schedulers),
            image_rules=ImageRules.of(environment),
        )
        watched.operators.add_handler(self._told(EXPORTERS))
        watched.schedulers.add_handler(self._told(SCHEDULER))
        exporter_sets.add_handler(lambda _: enqueue(EXPORTERS, exporters.KEY))
        scheduler_sets.add_handler(lambda _: enqueue(SCHEDULER, scheduler.KEY))

    def look_again(self) -> None:
        """Something has changed that every pass may have to answer."""
        self._enqueue(EXPORTERS, exporters.KEY)
        self._enqueue(SCHEDULER, scheduler.KEY)

    async def reconcile(self, name: str, key: Key) -> Result:
        """One pass of the controller of that name."""
        if name == EXPORTERS:
            return await self._exporters.reconcile(key)
        if name == SCHEDULER:
            return await self._scheduler.reconcile(key)
        return await self._kubelets.reconcile(key) if name == KUBELETS else Done()

    def has_looked(self, result: Result) -> bool:
        """Whether a pass that ended so did more than wait for a cache, or for its own write."""
        return result not in (After(exporters.SOON), After(scheduler.SOON))

    def _told(self, name: str) -> Callable[[Change[Any]], None]:
        def handle(change: Change[Any]) -> None:
            self._enqueue(name, change.key)

        return handle


def _decoded(place: str, content: str) -> Mapping[str, Any]:
    """A manifest in YAML, which only HyperShift has."""
    from polyarch.numa.host.kubelet.configuration import manifest

    return manifest(place, content.encode())
