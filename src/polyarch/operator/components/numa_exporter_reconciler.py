"""The controller ``kubeletconfig``: what OpenShift and HyperShift tell the kubelets of each pool.

It keeps the configurations in one form, whichever kind of object has them, and wakes the controller of the exporters
when they have become others, a deletion included. Nothing is polled: without a NUMAResourcesOperator nobody asks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from polyarch import names as shared
from polyarch.clock import Clock
from polyarch.kube.certificate_rotation import SelfManaged, SelfManagedSettings
from polyarch.kube.client import Client
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.owners import Owner, add_finalizer
from polyarch.kube.resources import CRDS, DAEMONSETS, NAMESPACES
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import fields_beyond_ours, is_behind, topology_crd
from polyarch.objects import Condition, Key, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import MONITORING, Discovery, OperatorNamespace
from polyarch.operator.components import numa_facts
from polyarch.operator.components.alerts import NUMA_ALERTS
from polyarch.operator.components.numa_cluster import (
    NumaInformers,
    NumaMetrics,
    NumaStatusWriter,
    Platforms,
    TopologyPoller,
    exporter_pods,
    optional_kinds,
)
from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import (
    ROLLOUT_TIMEOUT,
    ExporterFacts,
    ExporterPlan,
    NodeLabels,
    OperatorCondition,
    PlanDocument,
    Platform,
    ServingCertificate,
)
from polyarch.operator.components.numa_node_groups import HOSTED_KEY, KUBELET_CONFIGS
from polyarch.operator.components.numa_operator_rbac import AUTHORITY
from polyarch.operator.components.numa_uninstall import ExporterRemoval
from polyarch.operator.monitoring import prometheus_rule
from polyarch.operator.owned_objects import PART_OF, finished, labels, owned
from polyarch.operator.settings import OperatorSettings

log = structlog.get_logger(__name__)

KUBELETS_KEY: Final = Key("", "kubeletconfigs")
SOON: Final = 0.2

ReadDocument = Mapping[str, Any]
Decoder = Callable[[str, str], ReadDocument]
"""From the place and the text of a manifest to the object; raises ``ValueError``."""


class KubeletConfigReconciler:
    """Its only key is :data:`KEY`. ``changed`` is called when :attr:`documents` are others than before."""

    def __init__(self, watched: NumaInformers, *, changed: Callable[[], None], decode: Decoder) -> None:
        self._watched = watched
        self._changed = changed
        self._decode = decode
        self._platform: Platform = "kubernetes"
        self._found: tuple[ReadDocument, ...] | None = None

    def expect(self, platform: Platform) -> bool:
        """Whether the configurations are known, on this platform. On plain Kubernetes there are none."""
        self._platform = platform
        return platform == "kubernetes" or self._found is not None

    @property
    def documents(self) -> tuple[ReadDocument, ...]:
        """As KubeletConfigs; those of HyperShift have the metadata of their ConfigMaps."""
        return self._found or ()

    async def reconcile(self, _: Key) -> Result:
        """One pass."""
        if self._platform == "kubernetes":
            return Done()
        if not self._watched.has_synced:
            return After(SOON)
        found = self._watched.kubelet_configs
        if self._platform == "hypershift":
            several = (self._hosted(each) for each in self._watched.mirrored)
            found = tuple(each for each in several if each is not None)
        if found != self._found:
            self._found = found
            self._changed()
        return Done()

    def _hosted(self, config_map: Unstructured) -> ReadDocument | None:
        """None: there is nothing in it, or nothing that can be read, which is no error of ours."""
        place = f"ConfigMap {config_map.metadata.key}"
        content = (config_map.document.get("data") or {}).get(HOSTED_KEY)
        if not content:
            log.debug("no kubelet configuration in it", object=place)
            return None
        try:
            found = self._decode(place, content)
        except ValueError as error:
            log.warning("kubelet configuration left out", object=place, error=str(error))
            return None
        spec = found.get("spec")
        metadata = config_map.document["metadata"]
        return {"apiVersion": KUBELET_CONFIGS.api_version, "kind": KUBELET_CONFIGS.kind, "metadata": metadata} | (
            {"spec": spec} if isinstance(spec, dict) else {}
        )


# -- Keeps the definition of NodeResourceTopology: made where there is none, completed where it lacks something.


NAME: Final = str(TOPOLOGIES)
NAMED: Final = 3
"""Fields that a log line names."""


class TopologyCRD:
    """``cache``: the definition's metadata; it is read as a whole only when it is another one than last time."""

    def __init__(self, client: Client, cache: Informer[PartialObjectMetadata]) -> None:
        self._client = client
        self._cache = cache
        self._checked = ""

    async def sync(self, *, left_alone: bool) -> str:
        """Brings it up to date; why that failed, empty if it did not."""
        seen = self._cache.store.get(Key("", NAME))
        if left_alone or (seen is not None and seen.metadata.resource_version == self._checked):
            return ""
        try:
            self._checked = await self._sync()
        except KubernetesError as error:
            return f"CustomResourceDefinition {NAME}: {error}"
        return ""

    async def _sync(self) -> str:
        """Its resourceVersion afterwards."""
        ours = topology_crd()
        try:
            installed: dict[str, Any] = await self._client.get(CRDS, NAME)
        except NotFound:
            written: PartialObjectMetadata = await self._client.apply(CRDS, _marked(ours))
            log.info("definition made", definition=NAME)
            return written.metadata.resource_version
        if not is_behind(installed, ours):
            if others := fields_beyond_ours(installed, ours):
                log.info("definition left alone: it has more than ours", definition=NAME, more=others[:NAMED])
            return str(installed["metadata"]["resourceVersion"])
        made_by_us = PART_OF.items() <= (installed["metadata"].get("labels") or {}).items()
        written = await self._client.apply(CRDS, _marked(ours) if made_by_us else ours)
        log.info("definition completed", definition=NAME)
        return written.metadata.resource_version


def _marked(ours: dict[str, Any]) -> dict[str, Any]:
    """As one that we made, which an uninstall looks for; what is not applied again would be lost."""
    described = ours["metadata"]
    return {**ours, "metadata": {**described, "labels": {**described.get("labels", {}), **PART_OF}}}


# -- The serving certificate of the exporters where the operator signs it itself.


SIGNING_INTERVAL: Final = 3600.0
"""Seconds between two looks at a certificate that is good for months."""


class ExporterCertificate:
    """Kept as long as plans ask for it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: tuple[ServingCertificate, SelfManaged] | None = None
        self._due = 0.0

    async def keep(self, wanted: ServingCertificate | None, owner: Owner) -> None:
        """Makes or renews it when it is time to. Raises ``KubernetesError``."""
        if wanted is None:
            self._kept = None
            return
        if self._kept is None or self._kept[0] != wanted:
            self._kept, self._due = (wanted, SelfManaged(self._client, _settings(wanted, owner), clock=self._clock)), 0
        now = self._clock.monotonic()
        if now >= self._due:
            managed = self._kept[1]
            await managed.reconcile(managed.key)
            self._due = now + SIGNING_INTERVAL


def _settings(wanted: ServingCertificate, owner: Owner) -> SelfManagedSettings:
    return SelfManagedSettings(
        namespace=wanted.namespace,
        names=wanted.dns_names,
        secret=wanted.secret,
        authority_secret=AUTHORITY,
        labels=labels(shared.NUMA_EXPORTER),
        owner=owner.reference() | {"blockOwnerDeletion": False},
        interval=SIGNING_INTERVAL,
    )


# -- Since when a roll-out of a DaemonSet gets no further: a time, which no object records.


_PROGRESS: Final = (
    "observedGeneration",
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "updatedNumberScheduled",
    "numberReady",
    "numberAvailable",
)


class RolloutProgress:
    """After a restart of the operator the time begins again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[Any, ...], float]] = {}

    def look(self, daemon_sets: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """By DaemonSet: seconds since its numbers last became others."""
        now = self._clock.monotonic()
        seen: dict[str, tuple[tuple[Any, ...], float]] = {}
        for name, document in daemon_sets.items():
            status = document.get("status") or {}
            numbers = (
                (document.get("metadata") or {}).get("generation"),
                *(status.get(field) for field in _PROGRESS),
            )
            known = self._seen.get(name)
            seen[name] = known if known is not None and known[0] == numbers else (numbers, now)
        self._seen = seen
        return {name: now - since for name, (_, since) in seen.items()}

    def is_long(self, stalled: Mapping[str, float]) -> bool:
        """Whether one of those that are not done has lasted so long that its pods are worth a look."""
        return any(
            seconds >= ROLLOUT_TIMEOUT and not _is_done(self._seen[name][0]) for name, seconds in stalled.items()
        )


def _is_done(numbers: tuple[Any, ...]) -> bool:
    generation, observed, desired, _, updated, ready, _ = numbers
    return bool(observed == generation and desired == (updated or 0) == (ready or 0))


# -- The controller ``numaresourcesoperator``: gathers what a plan needs, and does what it says.


EXPORTERS_KEY: Final = Key("", names.OPERATOR_SINGLETON)
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
        home: OperatorNamespace,
        discovery: Discovery,
        platforms: Platforms,
        watched: NumaInformers,
        kubelets: KubeletConfigReconciler,
        sets: OperandApplySets,
        removal: ExporterRemoval,
        telling: NumaStatusWriter,
        series: NumaMetrics,
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
        self._definition = TopologyCRD(client, watched.definition)
        self._census = TopologyPoller(client, clock)
        self._certificate = ExporterCertificate(client, clock)
        self._stalling = RolloutProgress(clock)
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
        planned = plan_exporters(observed)
        if planned.conditions is None:
            return Done()  # paused
        if planned.documents is None:
            return await self._tell(live, planned)
        problem = await self._definition.sync(left_alone=_is_cluster_defined(live))
        if problem:
            planned = plan_exporters(msgspec.structs.replace(observed, api_problem=problem))
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

    async def _observed(self, live: Unstructured, platform: Platform) -> ExporterFacts:
        cluster = self._discovery.cluster
        assert cluster is not None  # noqa: S101 - reconcile has looked
        daemon_sets = self._daemon_sets()
        stalled = self._stalling.look(daemon_sets)
        waiting: Mapping[str, tuple[str, ...]] = {}
        if self._stalling.is_long(stalled):
            waiting = _waiting(await exporter_pods(self._client, self._settings.numa_home), daemon_sets)
        namespace = self._watched.namespace
        return ExporterFacts(
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

    async def _apply(self, live: Unstructured, planned: ExporterPlan, observed: ExporterFacts) -> float | None:
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

    def _alerts(self, planned: ExporterPlan, owner: Owner) -> list[PlanDocument]:
        """Where Prometheus' operator is, and exporters are."""
        if not planned.documents or MONITORING - self._discovery.served:
            return []
        rule = prometheus_rule(shared.NUMA_EXPORTER, shared.NUMA_EXPORTER, NUMA_ALERTS, self._settings.numa_home)
        return [owned(finished(rule), owner)]

    async def _clean_up(self, planned: ExporterPlan) -> float | None:
        """Looks at what exporters have published when it is time to; seconds until the next look."""
        nodes = {node for several in planned.group_nodes.values() for node in several}
        published = self._census.found.findings.keys()
        expecting = not nodes <= published or any(each.name not in nodes for each in self._census.found.labelled)
        if self._census.is_due(expecting=expecting):
            await self._census.look()
        left = await self._removal.take_stale(self._census, planned.group_nodes)
        return self._census.next_look(expecting=expecting or left > 0)

    def _count(self, planned: ExporterPlan, observed: ExporterFacts) -> None:
        named = _daemon_set_names(planned)
        ready = {
            group: int(((observed.daemon_sets.get(name) or {}).get("status") or {}).get("numberReady") or 0)
            for group, name in named.items()
        }
        self._series.nodes(
            {group: (len(several), ready.get(group, 0)) for group, several in planned.group_nodes.items()}
        )

    async def _tell(self, live: Unstructured, planned: ExporterPlan) -> Result:
        status = planned.status if planned.status is not None else _without_conditions(live.status)
        if not await self._telling.tell(live, status, planned.conditions or (), planned.announcements):
            return After(SOON)
        return After(planned.look_again) if planned.look_again is not None else Done()


def _is_cluster_defined(live: Unstructured) -> bool:
    return (live.metadata.annotations or {}).get(names.API_DEFINITION) == "cluster"


def _degraded(planned: ExporterPlan, message: str) -> ExporterPlan:
    """The plan whose execution failed."""
    states = numa_facts.four(OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, message))
    replaced = {each.type for each in states}
    others: Iterable[Condition] = (each for each in planned.conditions or () if each.type not in replaced)
    return msgspec.structs.replace(planned, conditions=(*states, *others), status=None)


def _lacks(namespace: PlanDocument, labels: Mapping[str, str] | None) -> bool:
    wanted = namespace["metadata"].get("labels") or {}
    return any((labels or {}).get(name) != value for name, value in wanted.items())


def _daemon_set_names(planned: ExporterPlan) -> dict[str, str]:
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
