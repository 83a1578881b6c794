"""What goes when a custom resource is deleted, or when a node leaves its group.

Exporters write what is to be deleted, so they go first. Nothing here waits for ever: two minutes after the deletion was
asked for the object is let go, and an Event says what is left. All else has the object as its owner."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.errors import Conflict, KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.owners import delete_object, remove_finalizer
from polyarch.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, Ref, Resource, few
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.names import KICK
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import OperandApplySets
from polyarch.operator.components.numa_cluster import TopologyPoller, exporter_pods
from polyarch.operator.components.numa_exporter_plan import stale_topologies
from polyarch.operator.components.numa_scheduler_objects import CAPACITIES

log = structlog.get_logger(__name__)

PATIENCE: Final = 120.0
"""Seconds after which an object is let go in any case."""
STEP: Final = 1.0
AT_ONCE: Final = 8
"""Deletions under way at a time."""
NAMED: Final = 5
MOST_PODS: Final = 100
"""Pending pods that get an Event."""


class ExporterRemoval:
    """Takes exporters and what they published out of the cluster."""

    def __init__(self, client: Client, sets: OperandApplySets, recorder: Recorder, *, home: str, clock: Clock) -> None:
        self._client = client
        self._sets = sets
        self._recorder = recorder
        self._home = home
        self._clock = clock

    async def take_stale(self, census: TopologyPoller, groups: Mapping[str, tuple[str, ...]]) -> int:
        """Deletes what nodes have published that are in no group any more; how many have to wait for an exporter to
        end. Raises ``KubernetesError``."""
        leaving = stale_topologies(census.found.labelled, group_nodes=groups, exporters_on=())
        if not leaving:
            return 0
        pods = await exporter_pods(self._client, self._home)
        exporters_on = {pod.spec.node_name for pod in pods}
        stale = stale_topologies(census.found.labelled, group_nodes=groups, exporters_on=exporters_on)
        known = {each.name: each for each in census.found.labelled}
        await _together(self._delete(known[name]) for name in stale)
        for name in stale:
            census.forget(name)
            log.info("topology deleted: its node is in no group", node=name)
        return len(leaving) - len(stale)

    async def leave(self, live: Unstructured, *, at_once: bool) -> Result:
        """One step after the object's deletion. ``at_once``: the operator's namespace goes, and its rights with it."""
        metadata = live.metadata
        if names.FINALIZER not in (metadata.finalizers or ()):
            return Done()
        late = at_once or _seconds_since(metadata.deletion_timestamp, self._clock) >= PATIENCE
        try:
            left = await self._step(late=late) if metadata.name == names.OPERATOR_SINGLETON else []
        except KubernetesError as error:
            if not late:
                raise
            left = [str(error)]
        if left and not late:
            return After(STEP)
        if left:
            self._tell_left(metadata, left)
        await remove_finalizer(self._client, OPERATORS, metadata, names.FINALIZER)
        log.info("exporters removed", left=left)
        return Done()

    async def _step(self, *, late: bool) -> list[str]:
        """What is still there; empty: the rest goes by itself.

        The pod of a node that is down is never gone, so all other topologies do not wait for it, and in the end none.
        """
        found = await self._sets.live()
        daemon_sets = {ref: each for ref, each in found.items() if ref.resource == DAEMONSETS}
        for ref, each in daemon_sets.items():
            await delete_object(self._client, ref.resource, ref.key, uid=each.metadata.uid)
        if daemon_sets and not late:
            return [str(ref) for ref in daemon_sets]
        pods = await exporter_pods(self._client, self._home)
        exporters_on = set() if late else {pod.spec.node_name for pod in pods}
        left = [*map(str, daemon_sets), *(str(Ref(PODS, pod.metadata.key)) for pod in pods)]
        try:
            listed = await self._client.list(
                TOPOLOGIES, type=PartialObjectMetadata, label_selector=names.NODE_GROUP_LABEL
            )
        except NotFound:
            return left
        await _together(self._delete(each.metadata) for each in listed.items if each.metadata.name not in exporters_on)
        return left if late else [*left, *(str(Ref(TOPOLOGIES, each.metadata.key)) for each in listed.items)]

    async def _delete(self, metadata: ObjectMeta) -> None:
        try:
            await self._client.delete(TOPOLOGIES, metadata.name, uid=metadata.uid)
        except (NotFound, Conflict):
            return  # gone, or another object by now

    def _tell_left(self, metadata: ObjectMeta, left: list[str]) -> None:
        self._recorder.event(
            Regarding.of(OPERATORS, metadata),
            type="Warning",
            reason="CleanupIncomplete",
            note=f"after {PATIENCE:g} s these were left: {few(left, NAMED)}",
            action="Delete",
        )


class SchedulerRemoval:
    """Takes the secondary scheduler out of the cluster, and tells the pods that wait for it."""

    def __init__(self, client: Client, recorder: Recorder, *, home: str, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._home = home
        self._clock = clock

    async def leave(self, live: Unstructured, *, at_once: bool) -> Result:
        """One step after the object's deletion. ``at_once``: the operator's namespace goes, and its rights with it."""
        metadata = live.metadata
        if names.FINALIZER not in (metadata.finalizers or ()):
            return Done()
        late = at_once or _seconds_since(metadata.deletion_timestamp, self._clock) >= PATIENCE
        try:
            left = metadata.name == names.SCHEDULER_SINGLETON and await self._step()
            if not left:
                await self._tell_pods(str(live.status.get("schedulerName") or ""))
        except KubernetesError as error:
            if not late:
                raise
            log.warning("scheduler let go although not all was done", error=str(error))
            left = False
        if left and not late:
            return After(STEP)
        await remove_finalizer(self._client, SCHEDULERS, metadata, names.FINALIZER)
        return Done()

    async def _step(self) -> bool:
        """Whether something is still there."""
        deployment, kick = Key(self._home, names.SCHEDULER), Key(self._home, KICK)
        several: tuple[tuple[Resource, Key], ...] = ((DEPLOYMENTS, deployment), (CAPACITIES, kick))
        found = [await delete_object(self._client, resource, key) for resource, key in several]
        return any(each is not None for each in found)

    async def _tell_pods(self, scheduler: str) -> None:
        if not scheduler:
            return
        page = await self._client.list(
            PODS,
            type=PartialObjectMetadata,
            field_selector=f"spec.schedulerName={scheduler},spec.nodeName=,status.phase=Pending",
        )
        for pod in page.items[:MOST_PODS]:
            self._recorder.event(
                Regarding.of(PODS, pod.metadata),
                type="Warning",
                reason="SchedulerRemoved",
                note=f"scheduler {scheduler} was removed with its NUMAResourcesScheduler; the pod stays Pending "
                "until a scheduler of that name runs, or the pod is made anew with another schedulerName",
                action="Delete",
            )


async def _together(several: Iterable[Awaitable[None]]) -> None:
    """All of them, a few at a time. Raises the first ``KubernetesError``, after the others have ended."""
    allowed = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[None]) -> KubernetesError | None:
        async with allowed:
            try:
                await each
            except KubernetesError as error:
                return error
        return None

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(each)) for each in several]
    for task in running:
        if (error := task.result()) is not None:
            raise error


def _seconds_since(moment: str | None, clock: Clock) -> float:
    if not moment:
        return 0.0
    return (clock.now() - msgspec.convert(moment, datetime)).total_seconds()
