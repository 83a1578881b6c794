"""The controllers ``numaresourcesoperator`` and ``kubeletconfig``: gather what a plan needs, and do what it says.

A cluster as it should be is only read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from polyarch import names as shared
from polyarch.clock import Clock
from polyarch.kube.certificate_rotation import SelfManaged, SelfManagedSettings
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import Conflict, KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer
from polyarch.kube.owners import Owner, add_finalizer, delete_object, held_words, remove_finalizer
from polyarch.kube.resources import CRDS, DAEMONSETS, NAMESPACES, PODS, ObjectRef, Resource, few
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import fields_beyond_ours, is_behind, topology_crd
from polyarch.objects import Condition, ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.cluster import Discovery, OperatorNamespace, applied_architectures
from polyarch.operator.components import numa_facts
from polyarch.operator.components.numa_cluster import (
    UNINSTALL_INTERVAL,
    UNINSTALL_TIMEOUT,
    NumaInformers,
    NumaMetrics,
    NumaStatusWriter,
    Platforms,
    TopologyPoller,
    exporter_pods,
    is_late,
    optional_kinds,
)
from polyarch.operator.components.numa_exporter_plan import plan_exporters, stale_topologies
from polyarch.operator.components.numa_facts import (
    ROLLOUT_TIMEOUT,
    ExporterFacts,
    ExporterPlan,
    NodeLabels,
    OperatorCondition,
    Platform,
    ReadDocument,
    ServingCertificate,
    is_evicting,
)
from polyarch.operator.components.numa_node_groups import HOSTED_KEY, KUBELET_CONFIGS
from polyarch.operator.components.numa_operator_rbac import AUTHORITY
from polyarch.operator.owned_objects import PART_OF, Document, labels
from polyarch.operator.reconciler import CONTESTED, STEP_TAKEN
from polyarch.operator.settings import OperatorSettings
from polyarch.platforms import IMAGE_ARCHITECTURES

log = structlog.get_logger(__name__)

Decoder = Callable[[str, str], ReadDocument]
"""Decodes a manifest, given its place and its text. Raises ``ValueError``."""

EXPORTERS_KEY: Final = ObjectKey("", names.OPERATOR_SINGLETON)
KUBELETS_KEY: Final = ObjectKey("", "kubeletconfigs")
WAITING: Final = RequeueAfter(5.0)
FAILED: Final = "FailedRTESync"
MAX_NAMED_FIELDS: Final = 3
"""Fields that a log line names."""
MAX_NAMED: Final = 5
MAX_CONCURRENT_DELETIONS: Final = 8
SIGNING_INTERVAL: Final = 3600.0
"""Seconds between two looks at a certificate that is good for months."""
_PROGRESS: Final = (
    "observedGeneration",
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "updatedNumberScheduled",
    "numberReady",
    "numberAvailable",
)


class KubeletConfigReconciler:
    """What OpenShift and HyperShift tell the kubelets of each pool; its only key is :data:`KUBELETS_KEY`.

    It keeps the configurations in one form, whichever kind of object has them. ``changed`` is called when
    :attr:`documents` have changed, a deletion included. Nothing is polled: without a NUMAResourcesOperator nobody asks.
    """

    def __init__(self, informers: NumaInformers, *, changed: Callable[[], None], decode: Decoder) -> None:
        self._informers = informers
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
        """The KubeletConfigs; those of HyperShift have the metadata of their ConfigMaps."""
        return self._found or ()

    async def reconcile(self, _: ObjectKey) -> Result:
        if self._platform == "kubernetes":
            return NoRequeue()
        if not self._informers.has_synced:
            return STEP_TAKEN
        found = self._informers.kubelet_configs
        if self._platform == "hypershift":
            hosted = map(self._hosted, self._informers.mirrored)
            found = tuple(document for document in hosted if document is not None)
        if found != self._found:
            self._found = found
            self._changed()
        return NoRequeue()

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


class TopologyCRD:
    """Keeps the CRD of NodeResourceTopology: made where there is none, completed where it lacks something.

    The CRD is never owned and never deleted, since objects of other producers depend on it as well. ``cache``: its
    metadata; the CRD is read as a whole only when it has changed.
    """

    def __init__(self, client: Client, cache: Informer[PartialObjectMetadata]) -> None:
        self._client = client
        self._cache = cache
        self._checked = ""

    async def sync(self, *, left_alone: bool) -> str:
        """Bring the CRD up to date; why that failed, empty if it did not."""
        seen = self._cache.store.get(ObjectKey("", str(TOPOLOGIES)))
        if left_alone or (seen is not None and seen.metadata.resource_version == self._checked):
            return ""
        try:
            self._checked = await self._sync()
        except KubernetesError as error:
            return f"CustomResourceDefinition {TOPOLOGIES}: {error}"
        return ""

    async def _sync(self) -> str:
        """Its resourceVersion afterwards."""
        ours = topology_crd()
        try:
            installed: dict[str, Any] = await self._client.get(CRDS, str(TOPOLOGIES))
        except NotFound:
            written: PartialObjectMetadata = await self._client.apply(CRDS, _marked(ours))
            log.info("definition made", definition=str(TOPOLOGIES))
            return written.metadata.resource_version
        if not is_behind(installed, ours):
            if others := fields_beyond_ours(installed, ours):
                log.info(
                    "definition left alone: it has more than ours",
                    definition=str(TOPOLOGIES),
                    more=others[:MAX_NAMED_FIELDS],
                )
            return str(installed["metadata"]["resourceVersion"])
        made_by_us = PART_OF.items() <= (installed["metadata"].get("labels") or {}).items()
        written = await self._client.apply(CRDS, _marked(ours) if made_by_us else ours)
        log.info("definition completed", definition=str(TOPOLOGIES))
        return written.metadata.resource_version


def _marked(ours: dict[str, Any]) -> dict[str, Any]:
    """The CRD as one that we made, which an uninstall looks for; a label that is not applied again would be lost."""
    described = ours["metadata"]
    return {**ours, "metadata": {**described, "labels": {**described.get("labels", {}), **PART_OF}}}


class ExporterCertificate:
    """The serving certificate of the exporters where the operator signs it itself, as long as plans ask for it.

    CA and leaf are Secrets beside the exporters. The CA is one of its own: that of the webhooks is trusted by API
    servers, and has no business on every node.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: tuple[ServingCertificate, SelfManaged] | None = None
        self._due = 0.0

    async def keep(self, wanted: ServingCertificate | None, owner: Owner) -> None:
        """Make or renew the certificate when it is time to. Raises ``KubernetesError``."""
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


class RolloutProgress:
    """Since when a rollout of a DaemonSet makes no progress: a time, which no object records.

    After a restart of the operator the time begins again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[Any, ...], float]] = {}

    def look(self, daemon_sets: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        """Seconds since the numbers of each DaemonSet last changed."""
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


class ExporterUninstaller:
    """Uninstalls exporters, with what they published.

    Exporters write what is to be deleted, so they go first. Nothing here waits for ever: two minutes after the deletion
    was requested the object is let go, and an Event says what is left. All else has the object as its owner.
    """

    def __init__(
        self, client: Client, sets: OperandApplySets, recorder: Recorder, *, namespace: str, clock: Clock
    ) -> None:
        self._client = client
        self._sets = sets
        self._recorder = recorder
        self._namespace = namespace
        self._clock = clock

    async def delete_stale(self, poller: TopologyPoller, groups: Mapping[str, tuple[str, ...]]) -> int:
        """Delete what nodes have published that are in no group any more. How many have to wait until an exporter has
        ended. Raises ``KubernetesError``."""
        without_group = stale_topologies(poller.found.labelled, group_nodes=groups, exporters_on=())
        if not without_group:
            return 0
        pods = await exporter_pods(self._client, self._namespace)
        exporters_on = {pod.spec.node_name for pod in pods}
        stale = stale_topologies(poller.found.labelled, group_nodes=groups, exporters_on=exporters_on)
        known = {topology.name: topology for topology in poller.found.labelled}
        await _together(self._delete(known[name]) for name in stale)
        for name in stale:
            poller.forget(name)
            log.info("topology deleted: its node is in no group", node=name)
        return len(without_group) - len(stale)

    async def uninstall(self, live: Unstructured, *, at_once: bool) -> Result:
        """Take one step. ``at_once``: the operator's namespace is terminating, and its permissions with it."""
        metadata = live.metadata
        if names.FINALIZER not in (metadata.finalizers or ()):
            return NoRequeue()
        late = at_once or is_late(metadata, self._clock)
        try:
            left = await self._step(late=late) if metadata.name == names.OPERATOR_SINGLETON else []
        except KubernetesError as error:
            if not late:
                raise
            left = [str(error)]
        if left and not late:
            return UNINSTALL_INTERVAL
        if left:
            self._post_left(metadata, left)
        await remove_finalizer(self._client, OPERATORS, metadata, names.FINALIZER)
        log.info("exporters removed", left=left)
        return NoRequeue()

    async def _step(self, *, late: bool) -> list[str]:
        """What is still there; empty: the rest goes by itself.

        The pod of a node that is down is never deleted: no other topology waits for it, and in the end none.
        """
        found = await self._sets.live()
        daemon_sets = {ref: operand for ref, operand in found.items() if ref.resource == DAEMONSETS}
        for ref, daemon_set in daemon_sets.items():
            await delete_object(self._client, ref.resource, ref.key, uid=daemon_set.metadata.uid)
        left = [_left(ref.resource, each.metadata) for ref, each in daemon_sets.items()]
        if daemon_sets and not late:
            return left
        pods = await exporter_pods(self._client, self._namespace)
        exporters_on = set() if late else {pod.spec.node_name for pod in pods}
        left += [_left(PODS, pod.metadata) for pod in pods]
        try:
            listed = await self._client.list(
                TOPOLOGIES, type=PartialObjectMetadata, label_selector=names.NODE_GROUP_LABEL
            )
        except NotFound:
            return left
        await _together(
            self._delete(topology.metadata) for topology in listed.items if topology.metadata.name not in exporters_on
        )
        held = [words for each in listed.items if (words := held_words(TOPOLOGIES, each.metadata, ()))]
        return [*held, *left] if late else [*left, *(_left(TOPOLOGIES, each.metadata) for each in listed.items)]

    async def _delete(self, metadata: ObjectMeta) -> None:
        try:
            await self._client.delete(TOPOLOGIES, metadata.name, uid=metadata.uid)
        except (NotFound, Conflict):
            return  # gone, or another object by now

    def _post_left(self, metadata: ObjectMeta, left: list[str]) -> None:
        self._recorder.event(
            Regarding.of(OPERATORS, metadata),
            type="Warning",
            reason="CleanupIncomplete",
            note=f"after {UNINSTALL_TIMEOUT:g} s these were left: {few(left, MAX_NAMED)}",
            action="Delete",
        )


def _left(resource: Resource, metadata: ObjectMeta) -> str:
    """An object that is still there, and what to do if others hold it."""
    return held_words(resource, metadata, ()) or str(ObjectRef(resource, metadata.key))


async def _together(deletions: Iterable[Awaitable[None]]) -> None:
    """Await all, a few at a time. Raises the first ``KubernetesError``, after the others have ended."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_DELETIONS)

    async def one(each: Awaitable[None]) -> KubernetesError | None:
        async with limit:
            try:
                await each
            except KubernetesError as error:
                return error
        return None

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(deletion)) for deletion in deletions]
    for task in running:
        if (error := task.result()) is not None:
            raise error


class ExporterReconciler:
    """Deploys and uninstalls exporters. Keys are names of NUMAResourcesOperators, of which one alone has an effect:
    :data:`EXPORTERS_KEY`."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        namespace: OperatorNamespace,
        discovery: Discovery,
        platforms: Platforms,
        informers: NumaInformers,
        kubelets: KubeletConfigReconciler,
        sets: OperandApplySets,
        uninstaller: ExporterUninstaller,
        status_writer: NumaStatusWriter,
        metrics: NumaMetrics,
        image_restricted: bool,
        clock: Clock,
        look_at_kubelets: Callable[[], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._image_restricted = image_restricted
        self._namespace = namespace
        self._discovery = discovery
        self._platforms = platforms
        self._informers = informers
        self._kubelets = kubelets
        self._look_at_kubelets = look_at_kubelets
        self._sets = sets
        self._uninstaller = uninstaller
        self._status_writer = status_writer
        self._crd = TopologyCRD(client, informers.definition)
        self._poller = TopologyPoller(client, clock)
        self._certificate = ExporterCertificate(client, clock)
        self._rollout_progress = RolloutProgress(clock)
        self._metrics = metrics

    async def reconcile(self, key: ObjectKey) -> Result:
        live = self._informers.operators.store.get(key)
        if live is None:
            self._status_writer.forget(key.name)
            return NoRequeue()
        if self._informers.operators.writes.is_stale(key):
            return STEP_TAKEN
        if live.metadata.deletion_timestamp is not None or self._namespace.is_terminating:
            return await self._uninstaller.uninstall(live, at_once=self._namespace.is_terminating)
        cluster = self._discovery.cluster
        if cluster is None:
            return WAITING
        platform = await self._platforms.find(openshift=cluster.openshift)
        self._informers.expect(platform)
        self._sets.serve(optional_kinds(platform, self._discovery.served))
        if not self._kubelets.expect(platform):
            self._look_at_kubelets()
            return STEP_TAKEN
        if not self._informers.has_synced or not self._sets.is_complete:
            return STEP_TAKEN
        return await self._carry_out(live, platform)

    async def _carry_out(self, live: Unstructured, platform: Platform) -> Result:
        facts = await self._facts(live, platform)
        planned = plan_exporters(facts)
        if planned.conditions is None:
            return NoRequeue()  # paused
        if planned.documents is None:
            return await self._write_status(live, planned)
        problem = await self._crd.sync(left_alone=_is_cluster_defined(live))
        if problem:
            planned = plan_exporters(msgspec.structs.replace(facts, api_problem=problem))
        if not await add_finalizer(self._client, OPERATORS, live.metadata, names.FINALIZER):
            return STEP_TAKEN
        try:
            again = await self._apply(live, planned, facts)
            self._count(planned, facts)
            waiting = await self._clean_up(planned)
        except KubernetesError as error:
            await self._write_status(live, _degraded(planned, f"{FAILED}: {error}"))
            raise
        result = await self._write_status(live, planned)
        if problem and not isinstance(result, RequeueAfter):
            return WAITING
        return _earliest(result, *(RequeueAfter(seconds) for seconds in (again, waiting) if seconds is not None))

    # -- facts --------------------------------------------------------------------------------------------------------

    async def _facts(self, live: Unstructured, platform: Platform) -> ExporterFacts:
        cluster = self._discovery.cluster
        assert cluster is not None  # noqa: S101 - reconcile has looked
        daemon_sets = self._daemon_sets()
        stalled = self._rollout_progress.look(daemon_sets)
        waiting: Mapping[str, tuple[str, ...]] = {}
        if self._rollout_progress.is_long(stalled):
            waiting = _waiting(await exporter_pods(self._client, self._settings.numa_home), daemon_sets)
        namespace = self._informers.namespace
        spec = live.document.get("spec")
        wanted = spec.get("imageSpec") if isinstance(spec, dict) and not self._image_restricted else None
        image = str(wanted or self._settings.image)
        applied = (applied_architectures(daemon_set, image) for daemon_set in daemon_sets.values())
        known = await self._discovery.images.of(image) or next(filter(None, applied), None)
        return ExporterFacts(
            object=live.document,
            settings=self._settings,
            image_architectures=known or IMAGE_ARCHITECTURES,
            image_restricted=self._image_restricted,
            platform=platform,
            version=cluster.version,
            served=self._discovery.served,
            namespace_labels=(namespace.labels or {}) if namespace is not None else None,
            api_server_ports=self._informers.api_server_ports,
            tls_profile=self._informers.tls_profile,
            nodes=tuple(
                NodeLabels(node.metadata.name, node.metadata.labels or {})
                for node in self._informers.nodes.store.values()
            ),
            pools=self._informers.pools,
            kubelet_configs=self._kubelets.documents,
            daemon_sets=daemon_sets,
            waiting_pods=waiting,
            stalled_for=stalled,
            evicts=any(is_evicting(each.document) for each in self._informers.schedulers.store.values()),
            findings=self._poller.found.findings,
        )

    def _daemon_sets(self) -> dict[str, Mapping[str, Any]]:
        cached = (self._sets.get(DAEMONSETS, ref.key.name) for ref in self._sets.cached() if ref.resource == DAEMONSETS)
        return {daemon_set.metadata.name: daemon_set.document for daemon_set in cached if daemon_set is not None}

    # -- effects ------------------------------------------------------------------------------------------------------

    async def _apply(self, live: Unstructured, planned: ExporterPlan, facts: ExporterFacts) -> float | None:
        """Seconds until another reconcile is needed, if it is. Raises ``KubernetesError``."""
        if planned.namespace is not None and _lacks(planned.namespace, facts.namespace_labels):
            await self._client.apply(NAMESPACES, planned.namespace)
        owner = Owner.of(OPERATORS, live.metadata)
        await self._certificate.keep(planned.certificate, owner)
        outcome = await self._sets.apply(list(planned.documents or ()), keeps=lambda _: False)
        if outcome.contested:
            return CONTESTED.seconds
        return WAITING.seconds if outcome.leaving else None

    async def _clean_up(self, planned: ExporterPlan) -> float | None:
        """Looks at what exporters have published when it is time to; seconds until the next look."""
        nodes = {node for group_nodes in planned.group_nodes.values() for node in group_nodes}
        published = self._poller.found.findings.keys()
        expecting = not nodes <= published or any(
            topology.name not in nodes for topology in self._poller.found.labelled
        )
        if self._poller.is_due(expecting=expecting):
            await self._poller.look()
        left = await self._uninstaller.delete_stale(self._poller, planned.group_nodes)
        return self._poller.next_look(expecting=expecting or left > 0)

    def _count(self, planned: ExporterPlan, facts: ExporterFacts) -> None:
        named = _daemon_set_names(planned)
        ready = {
            group: int(((facts.daemon_sets.get(name) or {}).get("status") or {}).get("numberReady") or 0)
            for group, name in named.items()
        }
        self._metrics.nodes({group: (len(nodes), ready.get(group, 0)) for group, nodes in planned.group_nodes.items()})

    async def _write_status(self, live: Unstructured, planned: ExporterPlan) -> Result:
        status = planned.status if planned.status is not None else _without_conditions(live.status)
        if not await self._status_writer.write(live, status, planned.conditions or (), planned.events):
            return STEP_TAKEN
        return RequeueAfter(planned.requeue_after) if planned.requeue_after is not None else NoRequeue()


def _is_cluster_defined(live: Unstructured) -> bool:
    return (live.metadata.annotations or {}).get(names.API_DEFINITION) == "cluster"


def _degraded(planned: ExporterPlan, message: str) -> ExporterPlan:
    """The plan whose execution failed."""
    states = numa_facts.four(OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, message))
    replaced = {condition.type for condition in states}
    others: Iterable[Condition] = (
        condition for condition in planned.conditions or () if condition.type not in replaced
    )
    return msgspec.structs.replace(planned, conditions=(*states, *others), status=None)


def _lacks(namespace: Document, labels: Mapping[str, str] | None) -> bool:
    wanted = namespace["metadata"].get("labels") or {}
    return any((labels or {}).get(name) != value for name, value in wanted.items())


def _daemon_set_names(planned: ExporterPlan) -> dict[str, str]:
    """The name of each group's DaemonSet."""
    return {
        document["metadata"]["labels"].get(names.GROUP_LABEL, ""): document["metadata"]["name"]
        for document in planned.documents or ()
        if document["kind"] == DAEMONSETS.kind
    }


def _waiting(pods: Iterable[Any], daemon_sets: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The pods of each DaemonSet that are not ready, and why."""
    found: dict[str, list[str]] = {name: [] for name in daemon_sets}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is not None and owner.name in found and pod.waits_for:
            found[owner.name].append(f"{pod.metadata.name}: {pod.waits_for}")
    return {name: tuple(sorted(pods)) for name, pods in found.items()}


def _without_conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != "conditions"}


def _earliest(*results: Result) -> Result:
    waits = [result.seconds for result in results if isinstance(result, RequeueAfter)]
    return RequeueAfter(min(waits)) if waits else NoRequeue()
