"""The controller ``numaresourcesoperator``: gathers what a plan needs, and does what it says (NO-040 – NO-046).

Every pass starts from what is there now and may be cut off anywhere. A cluster as it should be is only read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import KubernetesError
from polyarch.kube.owners import Owner, add_finalizer
from polyarch.kube.resources import DAEMONSETS, NAMESPACES
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.operator import conditions
from polyarch.numa.operator.conditions import Verdict
from polyarch.numa.operator.monitoring.alerts import ALERTS
from polyarch.numa.operator.observed import NodeLabels, Observed, Platform
from polyarch.numa.operator.outcome import Document, Plan
from polyarch.numa.operator.plan import plan
from polyarch.numa.reconcilers.census import TopologyCensus, exporter_pods
from polyarch.numa.reconcilers.definition import TopologyDefinition
from polyarch.numa.reconcilers.kubelets import KubeletConfigReconciler
from polyarch.numa.reconcilers.leaving import ExporterRemoval
from polyarch.numa.reconcilers.platforms import Platforms, optional_kinds
from polyarch.numa.reconcilers.series import NumaSeries
from polyarch.numa.reconcilers.signing import ExporterCertificate
from polyarch.numa.reconcilers.stalling import Stalling
from polyarch.numa.reconcilers.telling import Telling
from polyarch.numa.reconcilers.watching import Watched
from polyarch.objects import Condition, Key, Unstructured
from polyarch.operating import names as shared
from polyarch.operating.keeping.discovery import MONITORING, Discovery
from polyarch.operating.keeping.home import Home
from polyarch.operating.keeping.operand_sets import OperandSets
from polyarch.operating.labels import finished, owned
from polyarch.operating.monitoring.alerting import prometheus_rule
from polyarch.operating.settings import OperatorSettings

log = structlog.get_logger(__name__)

KEY: Final = Key("", names.OPERATOR_SINGLETON)
SOON: Final = 0.2
"""Seconds until the next pass while a cache is behind."""
WAITING: Final = 5.0
CONTESTED: Final = 30.0
FAILED: Final = "FailedRTESync"


class ExporterReconciler:
    """Keys are names of NUMAResourcesOperators; there should be only :data:`KEY`."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        home: Home,
        discovery: Discovery,
        platforms: Platforms,
        watched: Watched,
        kubelets: KubeletConfigReconciler,
        sets: OperandSets,
        removal: ExporterRemoval,
        telling: Telling,
        series: NumaSeries,
        image_restricted: bool,
        clock: Clock,
        look_at_kubelets: Callable[[], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._image_restricted = image_restricted
        self._home = home
        self._discovery = discovery
        self._platforms = platforms
        self._watched = watched
        self._kubelets = kubelets
        self._look_at_kubelets = look_at_kubelets
        self._sets = sets
        self._removal = removal
        self._telling = telling
        self._definition = TopologyDefinition(client, watched.definition)
        self._census = TopologyCensus(client, clock)
        self._certificate = ExporterCertificate(client, clock)
        self._stalling = Stalling(clock)
        self._series = series

    async def reconcile(self, key: Key) -> Result:
        """One pass."""
        live = self._watched.operators.store.get(key)
        if live is None:
            self._telling.forget(key.name)
            return Done()
        if self._watched.operators.writes.is_stale(key):
            return After(SOON)
        if live.metadata.deletion_timestamp is not None or self._home.is_terminating:
            return await self._removal.leave(live, at_once=self._home.is_terminating)
        cluster = self._discovery.cluster
        if cluster is None:
            return After(WAITING)
        platform = await self._platforms.find(openshift=cluster.openshift)
        self._watched.expect(platform)
        self._sets.serve(optional_kinds(platform, self._discovery.served))
        if not self._kubelets.expect(platform):
            self._look_at_kubelets()
            return After(SOON)
        if not self._watched.has_synced or not self._sets.is_complete:
            return After(SOON)
        return await self._pass(live, platform)

    async def _pass(self, live: Unstructured, platform: Platform) -> Result:
        observed = await self._observed(live, platform)
        planned = plan(observed)
        if planned.conditions is None:
            return Done()  # paused
        if planned.documents is None:
            return await self._tell(live, planned)
        problem = await self._definition.sync(left_alone=_is_cluster_defined(live))
        if problem:
            planned = plan(msgspec.structs.replace(observed, api_problem=problem))
        if not await add_finalizer(self._client, OPERATORS, live.metadata, names.FINALIZER):
            return After(SOON)
        try:
            again = await self._apply(live, planned, observed)
            self._count(planned, observed)
            waiting = await self._clean_up(planned)
        except KubernetesError as error:
            await self._tell(live, _degraded(planned, f"{FAILED}: {error}"))
            raise
        result = await self._tell(live, planned)
        if problem and not isinstance(result, After):
            return After(WAITING)
        return _earliest(result, *(After(each) for each in (again, waiting) if each is not None))

    # -- facts --------------------------------------------------------------------------------------------------------

    async def _observed(self, live: Unstructured, platform: Platform) -> Observed:
        cluster = self._discovery.cluster
        assert cluster is not None  # noqa: S101 - reconcile has looked
        daemon_sets = self._daemon_sets()
        stalled = self._stalling.look(daemon_sets)
        waiting: Mapping[str, tuple[str, ...]] = {}
        if self._stalling.is_long(stalled):
            waiting = _waiting(await exporter_pods(self._client, self._settings.numa_home), daemon_sets)
        namespace = self._watched.namespace
        return Observed(
            object=live.document,
            settings=self._settings,
            image_restricted=self._image_restricted,
            platform=platform,
            version=cluster.version,
            served=self._discovery.served,
            namespace_labels=(namespace.labels or {}) if namespace is not None else None,
            api_server_ports=self._watched.api_server_ports,
            tls_profile=self._watched.tls_profile,
            nodes=tuple(
                NodeLabels(each.metadata.name, each.metadata.labels or {})
                for each in self._watched.nodes.store.values()
            ),
            pools=self._watched.pools,
            kubelet_configs=self._kubelets.documents,
            daemon_sets=daemon_sets,
            waiting_pods=waiting,
            stalled_for=stalled,
            findings=self._census.found.findings,
        )

    def _daemon_sets(self) -> dict[str, Mapping[str, Any]]:
        several = (
            self._sets.get(DAEMONSETS, ref.key.name) for ref in self._sets.cached() if ref.resource == DAEMONSETS
        )
        return {each.metadata.name: each.document for each in several if each is not None}

    # -- effects ------------------------------------------------------------------------------------------------------

    async def _apply(self, live: Unstructured, planned: Plan, observed: Observed) -> float | None:
        """Seconds until another pass is needed, if it is. Raises ``KubernetesError``."""
        if planned.namespace is not None and _lacks(planned.namespace, observed.namespace_labels):
            await self._client.apply(NAMESPACES, planned.namespace)
        owner = Owner.of(OPERATORS, live.metadata)
        await self._certificate.keep(planned.certificate, owner)
        outcome = await self._sets.apply(
            [*(planned.documents or ()), *self._alerts(planned, owner)], keeps=lambda _: False
        )
        if outcome.contested:
            return CONTESTED
        return WAITING if outcome.leaving else None

    def _alerts(self, planned: Plan, owner: Owner) -> list[Document]:
        """Where Prometheus' operator is, and exporters are."""
        if not planned.documents or MONITORING - self._discovery.served:
            return []
        rule = prometheus_rule(shared.NUMA_EXPORTER, shared.NUMA_EXPORTER, ALERTS, self._settings.numa_home)
        return [owned(finished(rule), owner)]

    async def _clean_up(self, planned: Plan) -> float | None:
        """Looks at what exporters have published when it is time to; seconds until the next look."""
        nodes = {node for several in planned.group_nodes.values() for node in several}
        published = self._census.found.findings.keys()
        expecting = not nodes <= published or any(each.name not in nodes for each in self._census.found.labelled)
        if self._census.is_due(expecting=expecting):
            await self._census.look()
        left = await self._removal.take_stale(self._census, planned.group_nodes)
        return self._census.next_look(expecting=expecting or left > 0)

    def _count(self, planned: Plan, observed: Observed) -> None:
        named = _daemon_set_names(planned)
        ready = {
            group: int(((observed.daemon_sets.get(name) or {}).get("status") or {}).get("numberReady") or 0)
            for group, name in named.items()
        }
        self._series.nodes(
            {group: (len(several), ready.get(group, 0)) for group, several in planned.group_nodes.items()}
        )

    async def _tell(self, live: Unstructured, planned: Plan) -> Result:
        status = planned.status if planned.status is not None else _without_conditions(live.status)
        if not await self._telling.tell(live, status, planned.conditions or (), planned.announcements):
            return After(SOON)
        return After(planned.look_again) if planned.look_again is not None else Done()


def _is_cluster_defined(live: Unstructured) -> bool:
    return (live.metadata.annotations or {}).get(names.API_DEFINITION) == "cluster"


def _degraded(planned: Plan, message: str) -> Plan:
    """The plan whose execution failed."""
    states = conditions.four(Verdict("Degraded", conditions.INTERNAL_ERROR, message))
    replaced = {each.type for each in states}
    others: Iterable[Condition] = (each for each in planned.conditions or () if each.type not in replaced)
    return msgspec.structs.replace(planned, conditions=(*states, *others), status=None)


def _lacks(namespace: Document, labels: Mapping[str, str] | None) -> bool:
    wanted = namespace["metadata"].get("labels") or {}
    return any((labels or {}).get(name) != value for name, value in wanted.items())


def _daemon_set_names(planned: Plan) -> dict[str, str]:
    """By group."""
    return {
        each["metadata"]["labels"].get(names.GROUP_LABEL, ""): each["metadata"]["name"]
        for each in planned.documents or ()
        if each["kind"] == DAEMONSETS.kind
    }


def _waiting(pods: Iterable[Any], daemon_sets: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """By DaemonSet: its pods that are not ready, and why."""
    found: dict[str, list[str]] = {name: [] for name in daemon_sets}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is not None and owner.name in found and pod.waits_for:
            found[owner.name].append(f"{pod.metadata.name}: {pod.waits_for}")
    return {name: tuple(sorted(several)) for name, several in found.items()}


def _without_conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != "conditions"}


def _earliest(*several: Result) -> Result:
    waits = [each.seconds for each in several if isinstance(each, After)]
    return After(min(waits)) if waits else Done()
