"""ImageBuilds and their Runs as facts for the planner, and which builds a change concerns.

A plan is made from a few objects of many. A build sees its own executions and those of its namespace with a child
of the same key, which an index finds, and a sample of the nodes that decides as all of them (``NodeIndex``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.architectures import NodeChangeEffect, NodeIndex, deciding_labels
from polyarch.builds.controller.informers import (
    BY_BUILD,
    BY_KEY,
    ActiveJobs,
    BuildInformers,
    BuildRef,
    JobQueue,
    RecordConfigMap,
    WrittenCache,
    is_finished,
    jobs_known,
)
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildStep,
    Execution,
    InputData,
    JobFacts,
    PlanSettings,
    active_execution,
)
from polyarch.builds.facts.objects import (
    JobObject,
    NodeObject,
    PodObject,
    StoredRun,
    build_request,
    execution_of,
    node_facts,
    pod_security,
)
from polyarch.builds.jobs.contract import BUILD_CONTAINER, PUSH_CONTAINER
from polyarch.builds.keys import canonical_json
from polyarch.builds.metrics import BuildMetrics, newly_ended
from polyarch.builds.names import record_name
from polyarch.builds.places import NO_LOAD, JobPlaces
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, Result
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import Namespace, ObjectKey
from polyarch.oci.lru_cache import LRUCache

CONVERTED: Final = 4096
"""Executions that are kept in the planner's form."""
Planner = Callable[[BuildFacts], BuildPlan]


class _Attention(msgspec.Struct):
    """What a build waits for, by its last plan."""

    labels: frozenset[str]
    """The view of nodes that decides about it."""
    is_busy: bool = False
    """An execution is under way, or held back: it matters which nodes are available."""
    is_queued: bool | None = None
    """Some architecture waits for a Job; None: there was no plan yet."""
    job: frozenset[ObjectKey] = frozenset()
    """Jobs of others with the same key."""


class ImageBuildReader:
    """The reader of ImageBuilds."""

    kind: Final = "ImageBuild"
    resources: Final[Mapping[str, Resource]] = {
        each.kind: each for each in (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS, JOBS, CONFIGMAPS)
    }

    def __init__(
        self,
        informers: BuildInformers,
        nodes: NodeIndex,
        planner: Planner,
        *,
        settings: PlanSettings,
        clock: Clock,
        metrics: BuildMetrics,
        machine_namespace: str = "",
    ) -> None:
        """``nodes`` is kept here by the watch of nodes. ``machine_namespace``: where MachineOSBuilds have their Jobs,
        which are no ImageBuildRuns'."""
        self._informers = informers
        self._nodes = nodes
        self._planner = planner
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._enqueue: Callable[[BuildRef], None] = lambda ref: None
        self._machine_namespace = machine_namespace
        self._workload = ActiveJobs(metrics, self._allowed_jobs)
        self._converted: LRUCache[ObjectKey, tuple[str, str | None, Execution]] = LRUCache(CONVERTED)
        self._attention: dict[BuildRef, _Attention] = {}
        self._by_view: defaultdict[frozenset[str], set[BuildRef]] = defaultdict(set)
        self._queue = JobQueue()
        metrics.ask_queue(lambda: self._queue.oldest_seconds(clock.now().timestamp()))
        self.caches: Mapping[str, WrittenCache] = {
            informer.resource.kind: WrittenCache(informer.resource, informer.store, informer.writes)
            for informer in (informers.builds, informers.runs, informers.jobs, informers.records)
        }

    # -- facts ---------------------------------------------------------------------------------------------------------

    def facts(self, key: BuildRef) -> BuildFacts | None:
        """From the caches, without answers; None if the build is gone or going."""
        informers = self._informers
        build = informers.builds.store.get(key.key)
        if build is None or build.metadata.deletion_timestamp is not None:
            self._ignore(key)
            return None
        request = build_request(build)
        labels = deciding_labels(request.spec)
        self._attend(key, labels)
        runs = informers.runs.store.by_index(BY_BUILD, str(key.key))
        return BuildFacts(
            now=self._clock.now().timestamp(),
            request=request,
            nodes=self._nodes.sample(labels) if informers.knows_nodes else None,
            executions=tuple(self._execution(each) for each in runs),
            jobs=tuple(informers.jobs_in(key.namespace)),
            inputs=InputData(pod_security=pod_security(informers.namespaces.store.get(ObjectKey("", key.namespace)))),
            settings=self._settings,
        )

    def plan(self, facts: BuildFacts) -> BuildPlan:
        """The plan, which knows the executions of others whose children could be used, and the places that are free
        now: answers to its lookups may have taken long."""
        ref = self._ref(ObjectKey(facts.request.namespace, facts.request.name))
        self._workload.planned(ref)
        facts = msgspec.structs.replace(facts, places=self.places(ref.namespace, active_execution(facts)))
        plan = self._planner(facts)
        there = {each.name for each in facts.executions}
        others = dict.fromkeys(
            run
            for key in plan.keys.values()
            for run in self._informers.runs.store.by_index(BY_KEY, f"{facts.request.namespace}/{key}")
            if run.name not in there
        )
        if others:
            executions = (*facts.executions, *(self._execution(each) for each in others))
            plan = self._planner(msgspec.structs.replace(facts, executions=executions))
        self._workload.planned(ref, _jobs_made(plan))
        self._watch_for(ref, facts, plan)
        return plan

    def places(self, namespace: str, active: Execution | None = None) -> JobPlaces:
        """What an execution may start now; without one, a new one."""
        most = self._settings.max_active_jobs
        loads = dict(self._workload.loads(self._clock.now().timestamp()))
        for each, (queued, oldest) in self._queue.queued(self._limit, most).items():
            loads[each] = msgspec.structs.replace(loads.get(each, NO_LOAD), queued=queued, oldest=oldest)
        before, predecessor = self._queue.before(namespace, active, self._limit, most)
        return JobPlaces.of(namespace, loads, most, before=before, predecessor=predecessor)

    def _allowed_jobs(self, run: ObjectKey) -> int:
        """How many Jobs of a Run are builders' own."""
        if run.namespace == self._machine_namespace:
            return self._settings.max_active_jobs
        found = self._informers.runs.store.get(run)
        return jobs_known(found) if found is not None else 0

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """Counts what has ended by it, and how long each architecture took."""
        if write.kind != names.IMAGE_BUILD_RUNS.kind:
            return
        wanted = write.body.get("status") or {}
        self._metrics.run_written(write.namespace, stored, wanted)
        for each in newly_ended(stored, wanted):
            if each.get("phase") == "Built":
                job = self._informers.job(ObjectKey(write.namespace, str(each.get("job") or "")))
                if job is not None:
                    self._metrics.took(str(each.get("architecture")), parts(job))

    def execution(self, key: ObjectKey) -> Execution | None:
        """One Run in the planner's form."""
        return self._execution(key) if key in self._informers.runs.store else None

    def _execution(self, key: ObjectKey) -> Execution:
        run = self._informers.runs.store.get(key)
        if run is None:
            raise LookupError(f"the index names the Run {key}, which the cache does not have")
        record = self._informers.records.store.get(ObjectKey(key.namespace, record_name(key.name)))
        text = record.data.architectures if record is not None and record.data is not None else None
        known = self._converted.get(key)
        if known is not None and known[:2] == (run.metadata.resource_version, text):
            return known[2]
        execution = execution_of(run, recorded=text)
        self._converted.put(key, (run.metadata.resource_version, text, execution))
        return execution

    def _limit(self, build: ObjectKey) -> int | None:
        """How many Jobs a build may have at a time; None if it waits for none."""
        found, attention = self._informers.builds.store.get(build), self._attention.get(self._ref(build))
        if found is None or found.metadata.deletion_timestamp is not None:
            return None
        return found.spec.scheduling.max_parallel if attention is None or attention.is_queued is not False else None

    # -- who is looked at again ----------------------------------------------------------------------------------------

    def subscribe(self, enqueue: Callable[[BuildRef], None]) -> None:
        """From now on changes wake builds."""
        self._enqueue = enqueue
        informers = self._informers
        informers.nodes.add_handler(self._node_changed)
        informers.builds.add_handler(lambda change: self._enqueue(self._ref(change.key)))
        informers.runs.add_handler(self._run_changed)
        informers.jobs.add_handler(self._workload.job_changed)
        informers.jobs.add_handler(self._job_changed)
        informers.pods.add_handler(self._pod_changed)
        informers.records.add_handler(lambda change: self._wake_owner(change.new or change.old))
        informers.namespaces.add_handler(self._namespace_changed)

    def _run_changed(self, change: ObjectChange[StoredRun]) -> None:
        run = change.new or change.old
        if run is None:
            return
        self._queue.run_changed(change.key, change.new)
        self._workload.run_changed()
        if change.new is None:
            self._converted.pop(change.key)
        self._enqueue(self._ref(ObjectKey(change.key.namespace, run.spec.image_build.name)))

    def _job_changed(self, change: ObjectChange[JobObject]) -> None:
        job = change.new or change.old
        self._wake_owner(job)
        ended = change.old is not None and not is_finished(change.old)
        if ended and (change.new is None or is_finished(change.new)):
            self._wake_queued()
        for ref in [each for each, attention in self._attention.items() if change.key in attention.job]:
            self._enqueue(ref)

    def _wake_queued(self) -> None:
        """A place for a Job may have become free."""
        for build in self._queue.next_builds(self._limit, self._settings.max_active_jobs):
            self._enqueue(self._ref(build))

    def _pod_changed(self, change: ObjectChange[PodObject]) -> None:
        if self._workload.pod_changed(change):
            self._wake_queued()
        self._wake_owner(change.new or change.old)

    def _node_changed(self, change: ObjectChange[NodeObject]) -> None:
        if change.new is not None:
            effect = self._nodes.put(node_facts(change.new))
        else:
            effect = self._nodes.remove(change.key.name)
        self._wake_by_nodes(effect)

    def _wake_by_nodes(self, effect: NodeChangeEffect) -> None:
        for labels in effect.membership | effect.availability:
            for ref in tuple(self._by_view.get(labels, ())):
                if labels in effect.membership or self._attention[ref].is_busy:
                    self._enqueue(ref)

    def _namespace_changed(self, change: ObjectChange[Namespace]) -> None:
        if pod_security(change.old) != pod_security(change.new) and not change.initial:
            for ref in self._attention:
                if ref.namespace == change.key.name:
                    self._enqueue(ref)

    def _wake_owner(self, object_: JobObject | PodObject | RecordConfigMap | None) -> None:
        """The build of the execution that an object is of, by its label."""
        if object_ is None:
            return
        metadata = object_.metadata
        run = (metadata.annotations or {}).get(names.RUN_LABEL) or (metadata.labels or {}).get(names.RUN_LABEL, "")
        found = self._informers.runs.store.get(ObjectKey(metadata.namespace, run))
        if found is not None:
            self._enqueue(self._ref(ObjectKey(metadata.namespace, found.spec.image_build.name)))

    def _attend(self, ref: BuildRef, labels: frozenset[str]) -> None:
        known = self._attention.get(ref)
        if known is not None and known.labels == labels:
            return
        self._ignore(ref)
        self._attention[ref] = _Attention(labels)
        self._by_view[labels].add(ref)

    def _ignore(self, ref: BuildRef) -> None:
        self._workload.planned(ref)
        known = self._attention.pop(ref, None)
        if known is not None:
            self._by_view[known.labels].discard(ref)
            if not self._by_view[known.labels]:
                del self._by_view[known.labels]
                self._nodes.keep(self._by_view)

    def _watch_for(self, ref: BuildRef, facts: BuildFacts, plan: BuildPlan) -> None:
        attention = self._attention.get(ref)
        if attention is None:
            return
        is_stuck = plan.decision == "Invalid" and plan.requeue_after is None
        attention.is_busy = plan.decision not in ("UpToDate", "Retag") and not is_stuck
        if not plan.lookups:
            was_queued = attention.is_queued
            attention.is_queued = any(each.reason == "Queued" for each in plan.per_architecture)
            if was_queued and not attention.is_queued:
                self._wake_queued()
        attention.job = frozenset(
            ObjectKey(facts.request.namespace, each.job)
            for each in plan.per_architecture
            if each.action == "Wait" and each.job
        )

    def _ref(self, key: ObjectKey) -> BuildRef:
        return BuildRef("ImageBuild", key.namespace, key.name)


def _jobs_made(plan: BuildPlan) -> Iterator[tuple[ObjectKey, str]]:
    """Run and name of the Jobs that a plan makes for architectures."""
    for write in plan.writes:
        if (write.kind, write.step) == (JOBS.kind, BuildStep.CREATE_JOB):
            metadata = write.body["metadata"]
            if metadata["labels"].get(names.ROLE_LABEL) == names.ARCH_ROLE:
                marks = {**metadata["labels"], **(metadata.get("annotations") or {})}
                yield ObjectKey(write.namespace, marks[names.RUN_LABEL]), write.name


def parts(job: JobFacts) -> dict[str, float]:
    """Seconds that a finished Job waited for its pod to run, built, and pushed, as far as its pod says so."""
    pod = job.pod
    if pod is None or pod.scheduled is None:
        return {}
    found = {"wait": pod.scheduled - job.created}
    built, pushed = pod.ends.get(BUILD_CONTAINER), pod.ends.get(PUSH_CONTAINER)
    if built is not None:
        found["build"] = built - pod.scheduled
        if pushed is not None:
            found["push"] = pushed - built
    return {part: max(0.0, seconds) for part, seconds in found.items()}


# -- ConfigMap ``polyarch-architectures`` ------------------------------------------------------------------------------


ARCHITECTURES_RIGHTS: Final = (
    rule(CONFIGMAPS, "get", "list", "watch", "patch", names=[names.ARCHITECTURES_CONFIGMAP]),
    rule(CONFIGMAPS, "create"),
)
"""RBAC rules in the builder's namespace."""


def architectures_config_map(namespace: str, architectures: tuple[str, ...]) -> dict[str, Any]:
    """The ConfigMap as it should be."""
    content = {"architectures": list(architectures), "multiArchitecture": len(architectures) > 1, "schema": 1}
    return {
        "metadata": {
            "name": names.ARCHITECTURES_CONFIGMAP,
            "namespace": namespace,
            "labels": {names.MANAGED_BY: names.MANAGER},
        },
        "data": {names.ARCHITECTURES_FILE: canonical_json(content).decode()},
    }


class ArchitecturesConfigMap:
    """``stored`` is the ConfigMap in the cache; ``architectures`` those of the nodes, None while they are not known."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        stored: Callable[[ObjectKey], RecordConfigMap | None],
        architectures: Callable[[], tuple[str, ...] | None],
        wrote: Callable[[ObjectKey, str], None],
    ) -> None:
        self.key = ObjectKey(namespace, names.ARCHITECTURES_CONFIGMAP)
        self._client = client
        self._stored = stored
        self._architectures = architectures
        self._wrote = wrote

    async def reconcile(self, key: ObjectKey) -> Result:
        """Writes the ConfigMap if it says something else."""
        architectures = self._architectures()
        if architectures is None:
            return NoRequeue()
        wanted = architectures_config_map(key.namespace, architectures)
        stored = self._stored(key)
        text = stored.data.architectures if stored is not None and stored.data is not None else None
        if text != wanted["data"][names.ARCHITECTURES_FILE]:
            made = await self._client.apply(CONFIGMAPS, wanted, namespace=key.namespace)
            self._wrote(key, made.metadata.resource_version)
        return NoRequeue()
