"""MachineOSConfigs and their builds, as facts for the planner, and who is looked at again when (BD-001, BD-260).

There are a few configs in a cluster, and a change of nearly anything may concern each of them: all are looked at again.
A look that finds nothing to do reads caches alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog

from polyarch.builds.controller.machine.machine_images import stored_record
from polyarch.builds.controller.machine.machine_watches import MachineWatches
from polyarch.builds.controller.machine.stock_metrics import MachineMetrics
from polyarch.builds.controller.passes import Posts
from polyarch.builds.controller.watches import RecordObject, Watches
from polyarch.builds.facts.facts import Execution, Facts, NodeFacts, Settings
from polyarch.builds.facts.nodes import NodeObject, node_facts
from polyarch.builds.frontend import Cache, WishKey
from polyarch.builds.machineos import stock, vocabulary, wishes
from polyarch.builds.machineos.case import Case, StoredRecord, controlled_by
from polyarch.builds.machineos.pools import Pool, members
from polyarch.builds.machineos.recording import records, stock_events
from polyarch.builds.machineos.recording.lifecycle import TERMINAL, stage_of
from polyarch.builds.machineos.wish_plan import plan
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import Plan, Write
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.events import Regarding
from polyarch.kube.informer import Shares
from polyarch.kube.resources import CONFIGMAPS, JOBS, SECRETS, Resource
from polyarch.kube.store import Change
from polyarch.objects import Key, Unstructured
from polyarch.selectors import LabelSelector

log = structlog.get_logger(__name__)

SERVED_AGAIN: Final = 60.0
"""Seconds after which it is asked again whether the kinds are served."""


class MachineBuilds:
    """The front-end of MachineOSConfigs. It sees nothing before :meth:`attend` has found the kinds."""

    kind: Final = "MachineOSConfig"
    resources: Final[Mapping[str, Resource]] = {
        each.kind: each for each in (vocabulary.CONFIGS, vocabulary.BUILDS, vocabulary.POOLS, JOBS, CONFIGMAPS, SECRETS)
    }

    def __init__(
        self,
        watches: Watches,
        informers: Shares,
        *,
        namespace: str,
        settings: Settings,
        clock: Clock,
        metrics: BuildMetrics,
        own_metrics: MachineMetrics,
        active_jobs: Callable[[], int],
        recorder: Posts,
    ) -> None:
        """``active_jobs``: unfinished build Jobs of the whole cluster (BD-154)."""
        self._watches = watches
        self._informers = informers
        self._namespace = namespace
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._own_metrics = own_metrics
        self._active_jobs = active_jobs
        self._recorder = recorder
        self._enqueue: Callable[[WishKey], None] = lambda wish: None
        self._machine: MachineWatches | None = None
        self._are_absent = False
        self._nodes: dict[str, NodeFacts] = {}
        self._cases: dict[str, Case] = {}
        self._stock = ""
        self.caches: Mapping[str, Cache] = {}

    async def attend(self, client: Client) -> None:
        """Watches once the kinds are served; runs as long as the role leads."""
        while not await self._are_served(client):
            await self._clock.sleep(SERVED_AGAIN)
        self.start(has_controller=await client.is_served(vocabulary.CONTROLLER_CONFIGS))
        machine = self._machine
        if machine is not None:
            for informer in machine.every:
                await informer.synced()
        self._wake()

    def start(self, *, has_controller: bool = False) -> None:
        """From now on there are caches. ``has_controller``: ControllerConfigs are served, too."""
        if self._machine is not None:
            return
        self._machine = machine = MachineWatches(self._informers, self._namespace, has_controller=has_controller)
        watched = (machine.configs, machine.builds, machine.pools, self._watches.jobs, self._watches.records)
        self.caches = {each.resource.kind: Cache(each.resource, each.store, each.writes) for each in watched}
        for informer in machine.every:
            informer.add_handler(lambda _: self._wake())
        machine.configs.add_handler(self._config_changed)
        machine.builds.add_handler(lambda _: self._show())
        machine.stock.add_handler(lambda _: self._stock_changed())
        self._watches.nodes.add_handler(self._node_changed)
        for shared in (self._watches.jobs, self._watches.pods, self._watches.records):
            shared.add_handler(self._object_changed)

    async def _are_served(self, client: Client) -> bool:
        try:
            found = await client.is_served(vocabulary.CONFIGS)
            self._are_absent = not found
            return found
        except KubernetesError as error:
            log.warning("the kinds of machine OS builds cannot be looked up", error=str(error))
            return False

    # -- facts ---------------------------------------------------------------------------------------------------------

    def known(self) -> list[WishKey]:
        if self._machine is None:
            return []
        return [self._wish(key.name) for key in self._machine.configs.store]

    def facts(self, key: WishKey) -> Facts | None:
        """None until everything is known that a name is made of, too."""
        machine = self._machine
        if machine is None or not machine.are_known or not self._watches.records.has_synced:
            return None
        config = machine.configs.store.get(Key("", key.name))
        if config is None or config.metadata.deletion_timestamp is not None:
            self._cases.pop(key.name, None)
            return None
        case = self._cases[key.name] = self._case(machine, config.document)
        pools = [_pool(each.document) for each in machine.pools.store.values()]
        nodes = tuple(self._nodes.values())
        return wishes.facts(
            case,
            members(case.pool_name, pools, nodes),
            nodes if self._watches.knows_nodes else None,
            jobs=self._watches.jobs_in(self._namespace),
            settings=self._settings,
            now=self._clock.now().timestamp(),
            active_jobs=self._active_jobs(),
        )

    def plan(self, facts: Facts) -> Plan:
        case = self._cases[facts.wish.name]
        return stock.plan(facts, case, self._stock) if self._stock else plan(facts, case)

    def credentials(self, facts: Facts) -> tuple[str, ...]:
        case = self._cases[facts.wish.name]
        return tuple(dict.fromkeys(each for each in (case.push_secret, case.pull_secret) if each))

    def regarding(self, facts: Facts) -> Regarding:
        kind = vocabulary.CONFIGS
        return Regarding(kind.api_version, kind.kind, "", facts.wish.name, facts.wish.uid)

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """Counts each build once, when the write that ends it has succeeded."""
        if write.kind == vocabulary.BUILDS.kind:
            case = self._cases.get(write.name.rpartition("-")[0])
            pool = case.pool_name if case is not None else ""
            ended = self._own_metrics.build_written(pool, stored, write.body.get("status") or {})
            if ended:
                self._metrics.execution_ended(self.kind, ended.lower())

    def executions(self) -> list[Execution] | None:
        """Of all configs: what cannot be deleted from registries. None while they are not known, or while a cache does
        not show what was written last: an image that they have just begun to refer to would be deleted."""
        machine = self._machine
        if machine is None:
            return [] if self._are_absent else None
        behind = any(each.writes.is_behind() for each in (machine.configs, machine.builds, self._watches.records))
        if behind or not machine.are_known or not self._watches.records.has_synced:
            return None
        found = [self._case(machine, each.document) for each in machine.configs.store.values()]
        return [execution for case in found for execution in records.executions(case)]

    def published(self) -> list[str]:
        """References in the statuses of all configs and builds that stay."""
        machine = self._machine
        if machine is None:
            return []
        configs = [each for each in machine.configs.store.values() if not _is_leaving(each)]
        builds = [each for each in machine.builds.store.values() if not _is_leaving(each)]
        return [
            *(str(each.status.get("currentImagePullSpec") or "") for each in configs),
            *(str(each.status.get("digestedImagePushSpec") or "") for each in builds),
        ]

    def lives(self, uid: str) -> bool:
        """Whether there is a build with this UID that stays."""
        machine = self._machine
        builds = machine.builds.store.values() if machine is not None else ()
        return any(each.metadata.uid == uid and not _is_leaving(each) for each in builds)

    def _case(self, machine: MachineWatches, config: dict[str, Any]) -> Case:
        metadata: Mapping[str, Any] = config.get("metadata") or {}
        name = str(((config.get("spec") or {}).get("machineConfigPool") or {}).get("name") or "")
        pool = machine.pools.store.get(Key("", name))
        case = Case(namespace=self._namespace, config=config, pool=pool.document if pool is not None else None)
        rendered = machine.rendered.store.get(Key("", case.rendered_name))
        builds = controlled_by((each.document for each in machine.builds.store.values()), str(metadata.get("uid")))
        return msgspec.structs.replace(
            case,
            rendered=rendered.document if rendered is not None else None,
            trust=machine.trust,
            builds=builds,
            records=tuple(self._records(case.name)),
        )

    def _records(self, config: str) -> list[StoredRecord]:
        found = []
        for record in self._watches.records.store.values():
            stored = _stored(record, self._namespace, config)
            if stored is not None:
                found.append(stored)
        return found

    # -- who is looked at again ----------------------------------------------------------------------------------------

    def subscribe(self, enqueue: Callable[[WishKey], None]) -> None:
        self._enqueue = enqueue

    def _wake(self) -> None:
        for wish in self.known():
            self._enqueue(wish)

    def _config_changed(self, change: Change[Unstructured]) -> None:
        self._own_metrics.show_configs(len(self.known()))
        if change.old is not None and not _is_leaving(change.old) and (change.new is None or _is_leaving(change.new)):
            note = f"MachineOSConfig {change.key.name} is deleted, and its builds with it."
            about = Regarding.of(vocabulary.CONFIGS, change.old.metadata)
            self._recorder.event(
                about, type="Normal", reason=stock_events.CONFIG_DELETED, note=note, action=stock_events.CONFIG_DELETED
            )
        if change.old is not None and change.new is not None:
            before, after = change.old.metadata.generation, change.new.metadata.generation
            if before != after:
                pool = ((change.new.document.get("spec") or {}).get("machineConfigPool") or {}).get("name")
                self._own_metrics.config_changed(str(pool or ""))
        self._enqueue(self._wish(change.key.name))

    def _show(self) -> None:
        """Builds that have not ended, for the metrics."""
        active: Counter[str] = Counter()
        for build in self._machine.builds.store.values() if self._machine is not None else ():
            if stage_of(build.status) not in TERMINAL:
                active[(build.metadata.labels or {}).get(vocabulary.POOL_LABEL, "")] += 1
        self._own_metrics.show_active(active)

    def _node_changed(self, change: Change[NodeObject]) -> None:
        known = self._nodes.get(change.key.name)
        if change.new is None:
            self._nodes.pop(change.key.name, None)
        else:
            self._nodes[change.key.name] = node_facts(change.new)
        if known != self._nodes.get(change.key.name):
            self._wake()

    def _object_changed(self, change: Change[Any]) -> None:
        """A Job, a pod or a record of a machine OS build."""
        changed = change.new or change.old
        labels = (changed.metadata.labels if changed is not None else None) or {}
        if vocabulary.BUILD_LABEL in labels:
            self._wake()

    def _stock_changed(self) -> None:
        machine = self._machine
        found = machine.stock_builder if machine is not None else ""
        if found and not self._stock:
            log.warning("machine OS images are left to the stock builder", deployment=found, do=stock.CURE)
        self._stock = found
        self._wake()

    def _wish(self, name: str) -> WishKey:
        return WishKey("MachineOSConfig", self._namespace, name)


def _is_leaving(found: Unstructured) -> bool:
    return found.metadata.deletion_timestamp is not None


def _pool(document: Mapping[str, Any]) -> Pool:
    selector = (document.get("spec") or {}).get("nodeSelector")
    name = str((document.get("metadata") or {}).get("name") or "")
    return Pool(name, msgspec.convert(selector, LabelSelector) if selector is not None else None)


def _stored(record: RecordObject, namespace: str, config: str) -> StoredRecord | None:
    """A ConfigMap as the record of a build of this config; None for others."""
    metadata = record.metadata
    named = (metadata.annotations or {}).get(vocabulary.CONFIG_LABEL)
    return stored_record(record) if metadata.namespace == namespace and named == config and record.data else None
