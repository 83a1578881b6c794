"""Images of nodes' operating systems: informers, facts, metrics, and the deletion of images.

The record of a MachineOSBuild says what it has made, so the record has the finalizer and the build is held up by
nothing: garbage collection deletes the record after the build, or after the config that both belong to. Where the
planner takes a build away, the record is the config's from then on, and what it made is used again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.controller.informers import BuildInformers, BuildRef, RecordConfigMap, WrittenCache
from polyarch.builds.controller.pruner import DeletionReporter, ImagePruner, deleted, uncounted
from polyarch.builds.controller.reconciler import SETTLING, RepositoryLocks
from polyarch.builds.controller.resolver import SpecInputs
from polyarch.builds.controller.writes import Registries
from polyarch.builds.facts.build_facts import BuildFacts, Execution, NodeFacts, PlanSettings, seconds
from polyarch.builds.facts.objects import NodeObject, node_facts
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import ExecutionConfigMap, MachineOSConfigFacts, controlled_by
from polyarch.builds.machineos.job_objects import trust_bundle
from polyarch.builds.machineos.records import CONDITIONS, TERMINAL, ended, recorded_executions, stage_of
from polyarch.builds.machineos.request import machine_facts, pool_nodes, pool_of
from polyarch.builds.machineos.status import CONFIG_DELETED, STOCK_BUILDER_CURE, stock_builder_plan
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.names import normalised_repository
from polyarch.builds.places import JobPlaces
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.builds.registry import PruneResult
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter, Result
from polyarch.kube.errors import KubernetesError
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer, Shares
from polyarch.kube.metrics import Metrics
from polyarch.kube.owners import remove_finalizer
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, JOBS, SECRETS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, ObjectMeta, Unstructured

log = structlog.get_logger(__name__)


class _Leaving(NamedTuple):
    """A record that is being deleted, and what it is the record of."""

    record: RecordConfigMap
    execution: Execution


class MachineOSImages:
    """Reconciles the records of MachineOSBuilds. ``lives``: a MachineOSBuild with this UID is there and stays."""

    def __init__(
        self,
        client: Client,
        records: Informer[RecordConfigMap],
        pruner: ImagePruner,
        registries: Registries,
        inputs: SpecInputs,
        *,
        namespace: str,
        lives: Callable[[str], bool],
        locks: RepositoryLocks,
        recorder: Recorder,
        metrics: BuildMetrics,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._records = records
        self._pruner = pruner
        self._registries = registries
        self._inputs = inputs
        self._namespace = namespace
        self._lives = lives
        self._locks = locks
        self._reporter = DeletionReporter(recorder, metrics, clock)
        self._is_leading = is_leading
        self.key: Final = ObjectKey(namespace, "machine-os-images")

    async def reconcile(self, _: ObjectKey) -> Result:
        """Reconciles all records that are being deleted."""
        later: list[float] = []
        several: dict[str, list[_Leaving]] = {}
        for record in self._leaving():
            stored = stored_record(record)
            execution = ended(stored, namespace=self._namespace, uid=record.metadata.uid)
            if execution is None or any(self._lives(each) for each in stored.owners):
                await self._release(record)  # nothing of its own, or somebody has deleted the record of a build
            else:
                several.setdefault(normalised_repository(execution.repository), []).append(_Leaving(record, execution))
        for repository, leaving in several.items():
            found = await self._delete_images(repository, leaving)
            later += [found] if found is not None else []
        return RequeueAfter(min(later)) if later else NoRequeue()

    def subscribe(self, enqueue: Callable[[ObjectKey], None]) -> None:
        """Calls ``enqueue`` when a record is to go."""

        def changed(change: ObjectChange[RecordConfigMap]) -> None:
            if change.new is not None and _is_terminating(change.new, self._namespace):
                enqueue(self.key)

        self._records.add_handler(changed)

    def _leaving(self) -> list[RecordConfigMap]:
        found = [each for each in self._records.store.values() if _is_terminating(each, self._namespace)]
        return sorted(found, key=lambda each: each.metadata.name)

    async def _delete_images(self, repository: str, leaving: Sequence[_Leaving]) -> float | None:
        """Delete what only these refer to; seconds until the next try, None if they are all released."""
        if not self._is_leading():
            return None
        going = [each.execution for each in leaving]
        async with self._locks.for_deletion(repository):
            if self._pruner.is_behind():
                return SETTLING
            images = await self._pruner.unneeded(going)
            noted = ((each.record.metadata.annotations or {}).get(names.PUSH_SECRET_ANNOTATION) for each in leaving)
            secrets = tuple(dict.fromkeys(each for each in noted if each))
            credentials = self._inputs.credentials(self._namespace, secrets)
            if images is not None:
                found = await deleted(self._registries, images, credentials=credentials, tenant=self._namespace)
            else:
                found = uncounted(going)
        self._reporter.tell(_regarding(leaving[0]), found)
        holds = [hold for each in leaving if (hold := await self._ended(each, found)) is not None]
        return min(holds, default=None)

    async def _ended(self, leaving: _Leaving, found: PruneResult) -> float | None:
        """Release the record, or seconds until the next try."""
        since = leaving.record.metadata.deletion_timestamp
        hold = self._reporter.hold(_regarding(leaving), leaving.execution, found, since=since)
        if hold is None:
            await self._release(leaving.record)
        return hold

    async def _release(self, record: RecordConfigMap) -> None:
        if self._is_leading():
            await remove_finalizer(self._client, CONFIGMAPS, record.metadata, names.IMAGES_FINALIZER)
            log.info("released the record of a deleted build", record=str(record.metadata.key))


def _regarding(leaving: _Leaving) -> Regarding:
    """The build, which is gone by then."""
    kind = api.BUILDS
    uid = next(iter(_owners(leaving.record, kind.kind)), "")
    return Regarding(kind.api_version, kind.kind, "", leaving.execution.name, uid)


def stored_record(record: RecordConfigMap) -> ExecutionConfigMap:
    """A ConfigMap as the record of a MachineOSBuild."""
    metadata = record.metadata
    notes, labels = metadata.annotations or {}, metadata.labels or {}
    data: Any = record.data
    return ExecutionConfigMap(
        name=metadata.name,
        build=notes.get(names.RUN_LABEL) or labels.get(names.RUN_LABEL, ""),
        owners=frozenset(each.uid for each in metadata.owner_references or ()),
        deleting=metadata.deletion_timestamp is not None,
        architectures=data.architectures if data is not None else "",
        execution=data.execution if data is not None else "",
    )


def _owners(record: RecordConfigMap, kind: str) -> Iterable[str]:
    return (each.uid for each in record.metadata.owner_references or () if each.kind == kind)


def _is_terminating(record: RecordConfigMap, namespace: str) -> bool:
    metadata = record.metadata
    return (
        metadata.namespace == namespace
        and metadata.deletion_timestamp is not None
        and names.IMAGES_FINALIZER in (metadata.finalizers or ())
        and api.CONFIG_LABEL in (metadata.annotations or {})
    )


# -- informers ---------------------------------------------------------------------------------------------------------


MACHINE_OS_RIGHTS: Final = (
    rule((api.CONFIGS, api.BUILDS, api.POOLS, api.RENDERED), "get", "list", "watch"),
    rule(api.CONTROLLER_CONFIGS, "list", "watch"),
)
"""RBAC rules in the whole cluster."""
MACHINE_OS_NAMESPACE_RIGHTS: Final = (rule(DEPLOYMENTS, "list", "watch"),)
"""RBAC rules in the namespace of machine OS builds."""
BY_CONFIG: Final = "config"


class RenderedSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What of a MachineConfig enters keys and names."""

    os_image_url: str = msgspec.field(default="", name="osImageURL")
    base_os_extensions_container_image: str = msgspec.field(default="", name="baseOSExtensionsContainerImage")
    kernel_type: str | None = None
    extensions: list[str] | None = None
    kernel_arguments: list[str] | None = None


class RenderedObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A MachineConfig."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RenderedSpec = RenderedSpec()

    @property
    def document(self) -> dict[str, Any]:
        """The object as stored, without what is not kept."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class ControllerConfigSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The CAs that nodes trust in addition, in base64."""

    additional_trust_bundle: str | None = None


class ControllerConfigObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A ControllerConfig, as far as builds depend on it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerConfigSpec = ControllerConfigSpec()

    @property
    def trust(self) -> str:
        """The CAs (PEM); what cannot be read is none."""
        found = trust_bundle(self.spec.additional_trust_bundle or "")
        if found is None:
            log.warning("the additional trust bundle of nodes cannot be read", controller_config=self.metadata.name)
        return found or ""


class DeploymentSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How many replicas are wanted."""

    replicas: int | None = None


class DeploymentObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Deployment, as far as it is wanted at all."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()

    @property
    def is_wanted(self) -> bool:
        return self.spec.replicas is None or self.spec.replicas > 0


class MachineOSInformers:
    """The informers of machine OS builds. None of them keeps the role from being ready."""

    def __init__(self, informers: Shares, namespace: str, *, has_controller: bool) -> None:
        """``has_controller``: ControllerConfigs are served."""
        self.namespace = namespace
        self.configs: Informer[Unstructured] = informers.informer(api.CONFIGS, Unstructured, required=False)
        self.builds: Informer[Unstructured] = informers.informer(api.BUILDS, Unstructured, required=False)
        self.pools: Informer[Unstructured] = informers.informer(api.POOLS, Unstructured, required=False)
        self.rendered: Informer[RenderedObject] = informers.informer(api.RENDERED, RenderedObject, required=False)
        self.stock: Informer[DeploymentObject] = informers.informer(
            DEPLOYMENTS,
            DeploymentObject,
            required=False,
            namespace=namespace,
            field_selector=f"metadata.name={api.STOCK_DEPLOYMENT}",
        )
        self._controllers: Informer[ControllerConfigObject] | None = None
        if has_controller:
            self._controllers = informers.informer(
                api.CONTROLLER_CONFIGS,
                ControllerConfigObject,
                required=False,
                field_selector=f"metadata.name={api.CONTROLLER_CONFIG}",
            )
        self.builds.store.add_index(BY_CONFIG, _controller_of)

    @property
    def every(self) -> tuple[Informer[Any], ...]:
        controllers = (self._controllers,) if self._controllers is not None else ()
        return (self.configs, self.builds, self.pools, self.rendered, self.stock, *controllers)

    @property
    def trust(self) -> str:
        """The CAs (PEM) that nodes trust in addition."""
        found = self._controllers.store.values() if self._controllers is not None else ()
        return next((each.trust for each in found), "")

    @property
    def are_known(self) -> bool:
        """Whether nothing is missing in the caches that names or decisions are made of."""
        return all(each.has_synced and each.problem is None for each in self.every)

    @property
    def stock_builder(self) -> str:
        """The Deployment that does the same work, if it is wanted; empty: there is none."""
        wanted = any(each.is_wanted for each in self.stock.store.values())
        return f"{self.namespace}/{api.STOCK_DEPLOYMENT}" if wanted else ""


def _controller_of(build: Unstructured) -> Iterable[str]:
    owner = build.metadata.controller
    return (owner.uid,) if owner is not None else ()


# -- metrics of stock builders -----------------------------------------------------------------------------------------


_JOBS: Final = {"active": ("Prepared", "Building"), "succeeded": ("Succeeded",), "failed": ("Failed", "Interrupted")}
DURATIONS: Final = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 2700.0, 3600.0, 7200.0)


class MachineOSMetrics:
    """The families of one process. Pools are few, so a label may hold their names, as stock builders' does."""

    def __init__(self, metrics: Metrics) -> None:
        self._state = metrics.gauge(
            "ocl_build_state",
            "The state of the newest build of a pool: 1 for the one that it is in.",
            ("pool", "state"),
        )
        self._total = metrics.counter("ocl_build_total", "Builds that ended, by how.", ("pool", "state"))
        self._seconds = metrics.histogram(
            "ocl_build_duration_seconds", "Time of a build.", ("pool", "state"), buckets=DURATIONS
        )
        self._start = metrics.gauge("ocl_build_start_timestamp_seconds", "When the newest build began.", ("pool",))
        self._end = metrics.gauge("ocl_build_end_timestamp_seconds", "When the newest build ended.", ("pool",))
        self._active = metrics.gauge("ocl_active_builds", "Builds that have not ended.", ("pool",))
        self._jobs = metrics.gauge(
            "ocl_build_job_state", "The state of the Jobs of the newest build of a pool.", ("pool", "state")
        )
        self._changes = metrics.counter("ocl_config_change_total", "Changes of the spec of a config.", ("pool",))
        self._pushes = metrics.counter("ocl_image_push_total", "Results that were published.", ("pool",))
        self._configs = metrics.gauge("mco_mosc_count", "MachineOSConfigs.")
        self._pools: set[str] = set()

    def show_configs(self, count: int) -> None:
        self._configs.set(count)

    def show_active(self, active: Mapping[str, int]) -> None:
        """Builds that have not ended, by pool; a pool that has none any more shows 0."""
        self._pools |= active.keys()
        for pool in self._pools:
            self._active.labels(pool).set(active.get(pool, 0))

    def config_changed(self, pool: str) -> None:
        self._changes.labels(pool).inc()

    def build_written(self, pool: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
        """The status of a build was written; its stage if it ended by that."""
        before, after = stage_of(stored), stage_of(wanted) or ""
        if before == after or before in TERMINAL:
            return ""
        for stage in CONDITIONS:
            self._state.labels(pool, stage.lower()).set(float(stage == after))
        for state, stages in _JOBS.items():
            self._jobs.labels(pool, state).set(float(after in stages))
        began = seconds(wanted.get("buildStart"))
        if began is not None:
            self._start.labels(pool).set(began)
        if after not in TERMINAL:
            return ""
        self._ended(pool, after, began, seconds(wanted.get("buildEnd")))
        return after

    def _ended(self, pool: str, stage: str, began: float | None, ended: float | None) -> None:
        state = stage.lower()
        self._total.labels(pool, state).inc()
        if stage == "Succeeded":
            self._pushes.labels(pool).inc()
        if ended is not None:
            self._end.labels(pool).set(ended)
            if began is not None:
                self._seconds.labels(pool, state).observe(ended - began)


# -- facts -------------------------------------------------------------------------------------------------------------


SERVED_AGAIN: Final = 60.0
"""Seconds after which it is asked again whether the kinds are served."""


class MachineOSConfigReader:
    """The reader of MachineOSConfigs. It sees nothing before :meth:`attend` has found the kinds."""

    kind: Final = "MachineOSConfig"
    resources: Final[Mapping[str, Resource]] = {
        each.kind: each for each in (api.CONFIGS, api.BUILDS, api.POOLS, JOBS, CONFIGMAPS, SECRETS)
    }

    def __init__(
        self,
        informers: BuildInformers,
        factory: Shares,
        *,
        namespace: str,
        settings: PlanSettings,
        clock: Clock,
        metrics: BuildMetrics,
        own_metrics: MachineOSMetrics,
        places: Callable[[str], JobPlaces],
        recorder: Recorder,
    ) -> None:
        """``places``: what the builds of a namespace may start now."""
        self._informers = informers
        self._factory = factory
        self._namespace = namespace
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._own_metrics = own_metrics
        self._places = places
        self._recorder = recorder
        self._enqueue: Callable[[BuildRef], None] = lambda ref: None
        self._machine: MachineOSInformers | None = None
        self._are_absent = False
        self._nodes: dict[str, NodeFacts] = {}
        self._configs: dict[str, MachineOSConfigFacts] = {}
        self._stock = ""
        self.caches: Mapping[str, WrittenCache] = {}

    async def attend(self, client: Client) -> None:
        """Watches once the kinds are served; runs as long as the role leads."""
        while not await self._are_served(client):
            await self._clock.sleep(SERVED_AGAIN)
        self.start(has_controller=await client.is_served(api.CONTROLLER_CONFIGS))
        machine = self._machine
        if machine is not None:
            for informer in machine.every:
                await informer.synced()
        self._wake()

    def start(self, *, has_controller: bool = False) -> None:
        """From now on there are caches. ``has_controller``: ControllerConfigs are served, too."""
        if self._machine is not None:
            return
        self._machine = machine = MachineOSInformers(self._factory, self._namespace, has_controller=has_controller)
        watched = (machine.configs, machine.builds, machine.pools, self._informers.jobs, self._informers.records)
        self.caches = {each.resource.kind: WrittenCache(each.resource, each.store, each.writes) for each in watched}
        for informer in machine.every:
            informer.add_handler(lambda _: self._wake())
        machine.configs.add_handler(self._config_changed)
        machine.builds.add_handler(lambda _: self._show())
        machine.stock.add_handler(lambda _: self._stock_changed())
        self._informers.nodes.add_handler(self._node_changed)
        for shared in (self._informers.jobs, self._informers.pods, self._informers.records):
            shared.add_handler(self._object_changed)

    async def _are_served(self, client: Client) -> bool:
        try:
            found = await client.is_served(api.CONFIGS)
            self._are_absent = not found
            return found
        except KubernetesError as error:
            log.warning("the kinds of machine OS builds cannot be looked up", error=str(error))
            return False

    # -- facts ---------------------------------------------------------------------------------------------------------

    def _known(self) -> list[BuildRef]:
        if self._machine is None:
            return []
        return [self._ref(key.name) for key in self._machine.configs.store]

    def facts(self, key: BuildRef) -> BuildFacts | None:
        """None until everything is known that a name is made of, too."""
        machine = self._machine
        if machine is None or not machine.are_known or not self._informers.records.has_synced:
            return None
        stored = machine.configs.store.get(ObjectKey("", key.name))
        if stored is None or stored.metadata.deletion_timestamp is not None:
            self._configs.pop(key.name, None)
            return None
        config = self._configs[key.name] = self._config(machine, stored.document)
        pools = [pool_of(each.document) for each in machine.pools.store.values()]
        nodes = tuple(self._nodes.values())
        return machine_facts(
            config,
            pool_nodes(config.pool_name, pools, nodes),
            nodes if self._informers.knows_nodes else None,
            jobs=self._informers.jobs_in(self._namespace),
            settings=self._settings,
            now=self._clock.now().timestamp(),
            places=self._places(self._namespace),
        )

    def plan(self, facts: BuildFacts) -> BuildPlan:
        config = self._configs[facts.request.name]
        if self._stock:
            return stock_builder_plan(facts, config, self._stock)
        from polyarch.builds.machineos.plan import plan_machine_os  # with PyYAML, where there are such configurations

        return plan_machine_os(facts, config)

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """Counts each build once, when the write that ends it has succeeded."""
        if write.kind == api.BUILDS.kind:
            config = self._configs.get(write.name.rpartition("-")[0])
            pool = config.pool_name if config is not None else ""
            ended = self._own_metrics.build_written(pool, stored, write.body.get("status") or {})
            if ended:
                self._metrics.execution_ended(self.kind, ended.lower(), write.namespace)

    def executions(self) -> list[Execution] | None:
        """The executions of all configs: what they made cannot be deleted from registries.

        None while they are not known, or while a cache does not show what was written last: an image that they have
        just begun to refer to would be deleted.
        """
        machine = self._machine
        if machine is None:
            return [] if self._are_absent else None
        behind = any(each.writes.is_behind() for each in (machine.configs, machine.builds, self._informers.records))
        if behind or not machine.are_known or not self._informers.records.has_synced:
            return None
        found = [self._config(machine, each.document) for each in machine.configs.store.values()]
        return [execution for config in found for execution in recorded_executions(config)]

    def published(self) -> list[str]:
        """References in the statuses of all configs and builds that stay."""
        machine = self._machine
        if machine is None:
            return []
        configs = [each for each in machine.configs.store.values() if not _is_deleted(each)]
        builds = [each for each in machine.builds.store.values() if not _is_deleted(each)]
        return [
            *(str(each.status.get("currentImagePullSpec") or "") for each in configs),
            *(str(each.status.get("digestedImagePushSpec") or "") for each in builds),
        ]

    def lives(self, uid: str) -> bool:
        """Whether there is a build with this UID that stays."""
        machine = self._machine
        builds = machine.builds.store.values() if machine is not None else ()
        return any(each.metadata.uid == uid and not _is_deleted(each) for each in builds)

    def _config(self, machine: MachineOSInformers, document: dict[str, Any]) -> MachineOSConfigFacts:
        metadata: Mapping[str, Any] = document.get("metadata") or {}
        name = str(((document.get("spec") or {}).get("machineConfigPool") or {}).get("name") or "")
        pool = machine.pools.store.get(ObjectKey("", name))
        config = MachineOSConfigFacts(
            namespace=self._namespace, document=document, pool=pool.document if pool is not None else None
        )
        rendered = machine.rendered.store.get(ObjectKey("", config.rendered_name))
        builds = controlled_by((each.document for each in machine.builds.store.values()), str(metadata.get("uid")))
        return msgspec.structs.replace(
            config,
            rendered=rendered.document if rendered is not None else None,
            trust=machine.trust,
            builds=builds,
            records=tuple(self._records(config.name)),
        )

    def _records(self, config: str) -> list[ExecutionConfigMap]:
        found = []
        for record in self._informers.records.store.values():
            stored = _stored(record, self._namespace, config)
            if stored is not None:
                found.append(stored)
        return found

    # -- who is looked at again ----------------------------------------------------------------------------------------

    def subscribe(self, enqueue: Callable[[BuildRef], None]) -> None:
        self._enqueue = enqueue

    def _wake(self) -> None:
        for ref in self._known():
            self._enqueue(ref)

    def _config_changed(self, change: ObjectChange[Unstructured]) -> None:
        self._own_metrics.show_configs(len(self._known()))
        if change.old is not None and not _is_deleted(change.old) and (change.new is None or _is_deleted(change.new)):
            note = f"MachineOSConfig {change.key.name} is deleted, and its builds with it."
            about = Regarding.of(api.CONFIGS, change.old.metadata)
            self._recorder.event(about, type="Normal", reason=CONFIG_DELETED, note=note, action=CONFIG_DELETED)
        if change.old is not None and change.new is not None:
            before, after = change.old.metadata.generation, change.new.metadata.generation
            if before != after:
                pool = ((change.new.document.get("spec") or {}).get("machineConfigPool") or {}).get("name")
                self._own_metrics.config_changed(str(pool or ""))
        self._enqueue(self._ref(change.key.name))

    def _show(self) -> None:
        """Builds that have not ended, for the metrics."""
        active: Counter[str] = Counter()
        for build in self._machine.builds.store.values() if self._machine is not None else ():
            if stage_of(build.status) not in TERMINAL:
                active[(build.metadata.labels or {}).get(api.POOL_LABEL, "")] += 1
        self._own_metrics.show_active(active)

    def _node_changed(self, change: ObjectChange[NodeObject]) -> None:
        known = self._nodes.get(change.key.name)
        if change.new is None:
            self._nodes.pop(change.key.name, None)
        else:
            self._nodes[change.key.name] = node_facts(change.new)
        if known != self._nodes.get(change.key.name):
            self._wake()

    def _object_changed(self, change: ObjectChange[Any]) -> None:
        """A Job, a pod or a record of a machine OS build."""
        changed = change.new or change.old
        labels = (changed.metadata.labels if changed is not None else None) or {}
        if api.BUILD_LABEL in labels:
            self._wake()

    def _stock_changed(self) -> None:
        machine = self._machine
        found = machine.stock_builder if machine is not None else ""
        if found and not self._stock:
            log.warning("machine OS images are left to the stock builder", deployment=found, do=STOCK_BUILDER_CURE)
        self._stock = found
        self._wake()

    def _ref(self, name: str) -> BuildRef:
        return BuildRef("MachineOSConfig", self._namespace, name)


def _is_deleted(found: Unstructured) -> bool:
    return found.metadata.deletion_timestamp is not None


def _stored(record: RecordConfigMap, namespace: str, config: str) -> ExecutionConfigMap | None:
    """A ConfigMap as the record of a build of this config; None for others."""
    metadata = record.metadata
    named = (metadata.annotations or {}).get(api.CONFIG_LABEL)
    return stored_record(record) if metadata.namespace == namespace and named == config and record.data else None
