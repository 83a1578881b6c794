"""The controllers of NUMA and what they watch, put together; ``operated_numa`` imports it when it is needed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from polyarch import names as shared
from polyarch.kube.controller import NoRequeue, Result
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
from polyarch.kube.store import ObjectChange
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import ObjectKey, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import Discovery, OperatorNamespace
from polyarch.operator.components.numa_cluster import (
    NodePoller,
    NumaInformers,
    NumaMetrics,
    NumaStatusWriter,
    Platforms,
)
from polyarch.operator.components.numa_exporter_reconciler import (
    EXPORTERS_KEY,
    KUBELETS_KEY,
    ExporterReconciler,
    ExporterUninstaller,
    KubeletConfigReconciler,
)
from polyarch.operator.components.numa_facts import takes_exporter_image
from polyarch.operator.components.numa_scheduler_objects import KUBE_SYSTEM
from polyarch.operator.components.numa_scheduler_plan import ImageRules
from polyarch.operator.components.numa_scheduler_reconciler import (
    SCHEDULER_KEY,
    SchedulerReconciler,
    SchedulerUninstaller,
)
from polyarch.operator.settings import OperatorSettings

EXPORTERS, SCHEDULER, KUBELETS = "numaresourcesoperator", "numaresourcesscheduler", "kubeletconfig"
"""As in ``numa_component``, which loads this module."""
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
    """The three controllers. ``enqueue`` puts a key into the queue of the controller of that name."""

    def __init__(
        self,
        process: Process,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        recorder: Recorder,
        enqueue: Callable[[str, ObjectKey], None],
        tolerated: Callable[[], Sequence[str]],
        environment: Mapping[str, str],
    ) -> None:
        client, clock, place = process.client, process.clock, settings.numa_home
        self._enqueue = enqueue
        informers = NumaInformers(
            process.informers,
            settings,
            changed=self.enqueue_all,
            kubelets_changed=lambda: enqueue(KUBELETS, KUBELETS_KEY),
        )
        exporter_sets, scheduler_sets = (
            OperandApplySets(
                client,
                process.informers,
                [(kind, place if kind.namespaced else "") for kind in kinds] + others,
                namespace=place,
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

        metrics = NumaMetrics(process.metrics)

        def status_writer(resource: Resource, cache: Informer[Unstructured]) -> NumaStatusWriter:
            return NumaStatusWriter(client, resource, cache, recorder=recorder, metrics=metrics, clock=clock)

        platforms = Platforms(client, settings)
        self._kubelets = KubeletConfigReconciler(
            informers, changed=lambda: enqueue(EXPORTERS, EXPORTERS_KEY), decode=_decode
        )
        self._exporters = ExporterReconciler(
            client,
            settings,
            namespace=namespace,
            discovery=discovery,
            platforms=platforms,
            informers=informers,
            kubelets=self._kubelets,
            sets=exporter_sets,
            uninstaller=ExporterUninstaller(client, exporter_sets, recorder, namespace=place, clock=clock),
            status_writer=status_writer(OPERATORS, informers.operators),
            metrics=metrics,
            image_restricted=not takes_exporter_image(environment),
            clock=clock,
            look_at_kubelets=lambda: enqueue(KUBELETS, KUBELETS_KEY),
        )
        self._scheduler = SchedulerReconciler(
            client,
            settings,
            namespace=namespace,
            discovery=discovery,
            platforms=platforms,
            informers=informers,
            sets=scheduler_sets,
            node_poller=NodePoller(client, clock),
            uninstaller=SchedulerUninstaller(client, recorder, namespace=place, clock=clock),
            status_writer=status_writer(SCHEDULERS, informers.schedulers),
            image_rules=ImageRules.of(environment),
            tolerated=tolerated,
        )
        informers.operators.add_handler(self._enqueue_changed(EXPORTERS))
        informers.schedulers.add_handler(self._enqueue_changed(SCHEDULER))
        informers.schedulers.add_handler(lambda _: enqueue(EXPORTERS, EXPORTERS_KEY))
        exporter_sets.add_handler(lambda _: enqueue(EXPORTERS, EXPORTERS_KEY))
        scheduler_sets.add_handler(lambda _: enqueue(SCHEDULER, SCHEDULER_KEY))

    def enqueue_all(self) -> None:
        """Something has changed that every reconcile may have to answer."""
        self._enqueue(EXPORTERS, EXPORTERS_KEY)
        self._enqueue(SCHEDULER, SCHEDULER_KEY)

    async def reconcile(self, name: str, key: ObjectKey) -> Result:
        """Reconcile by the controller of that name."""
        if name == EXPORTERS:
            return await self._exporters.reconcile(key)
        if name == SCHEDULER:
            return await self._scheduler.reconcile(key)
        return await self._kubelets.reconcile(key) if name == KUBELETS else NoRequeue()

    def _enqueue_changed(self, name: str) -> Callable[[ObjectChange[Any]], None]:
        def handle(change: ObjectChange[Any]) -> None:
            self._enqueue(name, change.key)

        return handle


def _decode(place: str, content: str) -> Mapping[str, Any]:
    """A manifest in YAML, which only HyperShift has."""
    from polyarch.numa.host.kubelet import yaml_mapping

    return yaml_mapping(place, content.encode())
