"""The uninstall of placement, step by step: look live, take one step, look again.

The order of the steps is in ``operator.uninstall`` and, for the exec-format-error monitor, in
``placement.exec_monitor_rules``. Nothing here believes a cache: whatever is counted is listed from the API server. At
the end of its time the operator releases pods that are still gated itself: a released pod has lost its gate without a
decision, and runs without a constraint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import Counter

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.owners import add_finalizer, delete_object, held_words, remove_finalizer
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, PODS, ObjectRef, Resource, few
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Pod
from polyarch.operator.apply_sets import Found, OperandApplySets, belonging
from polyarch.operator.reconciler import attempt_all, deletions_in_cluster, exists
from polyarch.operator.uninstall import (
    PlacementUninstallStep,
    RemainingController,
    RemainingPlacement,
    next_placement_step,
)
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, PPCS
from polyarch.placement.events import EventReason
from polyarch.placement.exec_monitor_rules import ExecMonitorFacts, MonitorUninstallStep, next_monitor_step
from polyarch.placement.patch import bare_release, has_gate

log = structlog.get_logger(__name__)

FORCE: Final = f"{names.OWN_GROUP}/force-uninstall"
"""Annotation of the ClusterPodPlacementConfig; ``"true"``: gates are removed at once."""
FINALIZERS: Final = (
    names.ENOEXEC_EVENTS_FINALIZER,
    names.NO_POD_PLACEMENT_CONFIG_FINALIZER,
    names.POD_PLACEMENT_FINALIZER,
)
LEASE_NAMES: Final = (names.CONTROLLER_LEASE, names.ENOEXEC_LEASE)
"""Made by the operands themselves."""
GATED_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}={names.GATED}"
WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
MAX_HELD: Final = 5
"""Objects of a kind that are named if others hold them."""
MAX_CONCURRENT_RELEASES: Final = 16
"""PATCHes at one time."""


async def gated_pods(client: Client) -> list[Pod]:
    """The pods with our gate, by live lists.

    Most gated pods carry our label. When none is left, all pods that wait for a node are looked at once more, since a
    gate may be there without its label. Pods that are being deleted do not count, and gates of others delay nothing.
    """
    for labels, fields in ((GATED_SELECTOR, ""), ("", WITHOUT_NODE)):
        listed = await client.list(PODS, type=Pod, label_selector=labels, field_selector=fields)
        if found := [pod for pod in listed.items if has_gate(pod) and pod.metadata.deletion_timestamp is None]:
            return found
    return []


async def release(client: Client, pod: Pod) -> bool:
    """Remove our gate from the pod. False: the pod is gone. Raises ``KubernetesError``, also if it has changed."""
    metadata = pod.metadata
    try:
        await client.patch(PODS, metadata.name, JsonPatch(bare_release(pod)), namespace=metadata.namespace)
    except NotFound:
        return False
    return True


class ForcedRelease:
    """Releases pods without a decision; each is logged, told by an event on the pod, and counted by ``releases``."""

    def __init__(self, client: Client, recorder: Recorder, releases: Counter) -> None:
        self._client = client
        self._recorder = recorder
        self._releases = releases

    async def release(self, pods: Sequence[Pod]) -> None:
        """Release the pods, one PATCH each. A pod that has changed since is tried again with the next list."""
        limit = asyncio.Semaphore(MAX_CONCURRENT_RELEASES)

        async def release_one(pod: Pod) -> None:
            async with limit:
                await self._release(pod)

        async with asyncio.TaskGroup() as tasks:
            for pod in pods:
                tasks.create_task(release_one(pod))

    async def _release(self, pod: Pod) -> None:
        try:
            if not await release(self._client, pod):
                return
        except KubernetesError as error:
            log.warning("gate not removed", pod=str(pod.metadata.key), error=str(error))
            return
        self._releases.inc()
        log.warning("gate removed without a decision, the pod has no constraint", pod=str(pod.metadata.key))
        self._recorder.event(
            Regarding.of(PODS, pod.metadata),
            type="Warning",
            reason=EventReason.FORCED_RELEASE,
            action="RemoveGate",
            note="placement is being removed, and nobody decided about the pod's architectures in time: its gate was "
            "removed without a constraint",
        )


def _held(resource: Resource, objects: Sequence[ObjectMeta]) -> list[str]:
    return [words for each in objects if (words := held_words(resource, each, FINALIZERS))][:MAX_HELD]


def named(pods: Sequence[Pod]) -> str:
    """Up to five of the pods, and how many more there are; then the command that removes the gate of the first."""
    return f"{few(pod.metadata.key for pod in pods)}; remove a gate with: {command(pods[0])}"


def command(pod: Pod) -> str:
    """The ``kubectl`` command that removes the gate of this pod."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    place = f"/spec/schedulingGates/{gates.index(names.GATE)}"
    patch = f'[{{"op":"remove","path":"{place}"}}]'
    return f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=json -p '{patch}'"


class RemainingPlacementObjects(msgspec.Struct, frozen=True, kw_only=True):
    """What one live look has found: in numbers, and the objects behind them."""

    left: RemainingPlacement
    found: Found
    gated: Sequence[Pod]
    configs: Sequence[str]
    """PodPlacementConfigs, as ``namespace/name``."""
    leases: Sequence[str]
    held: Sequence[str] = ()
    """What finalizers of others hold, each with what to do, as sentences."""


class Uninstaller:
    """Uninstalls placement from the namespace. It remembers times alone, which no object records."""

    def __init__(
        self, client: Client, operands: OperandApplySets, forced_release: ForcedRelease, *, namespace: str, clock: Clock
    ) -> None:
        self._client = client
        self._operands = operands
        self._forced_release = forced_release
        self._namespace = namespace
        self._clock = clock
        self._since: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    async def look(self, configuration: ObjectMeta | None) -> RemainingPlacementObjects:
        """What is still there. ``configuration``: the terminating ClusterPodPlacementConfig; None: there is none."""
        found = await self._operands.live()
        webhook, node_side, handler = (
            belonging(found, name) for name in (names.WEBHOOK, names.ENOEXEC_DAEMON, names.ENOEXEC_HANDLER)
        )
        rest = found.keys() - webhook.keys() - node_side.keys() - handler.keys()
        deployment = found.get(ObjectRef(DEPLOYMENTS, ObjectKey(self._namespace, names.CONTROLLER)))
        gated = await gated_pods(self._client)
        depending = await self._listed(PPCS) if configuration is not None else []
        configs = sorted(str(config.key) for config in depending)
        leases = (
            [] if rest else [name for name in LEASE_NAMES if await exists(self._client, LEASES, name, self._namespace)]
        )
        ours = (names.POD_PLACEMENT_FINALIZER, names.NO_POD_PLACEMENT_CONFIG_FINALIZER)
        kept = set((configuration.finalizers if configuration is not None else None) or ())
        left = RemainingPlacement(
            configuration=bool(kept & set(ours)),
            configs=len(configs),
            webhook_configured=await exists(self._client, MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION),
            webhook=len(webhook),
            monitor=bool(node_side or handler or names.ENOEXEC_EVENTS_FINALIZER in kept),
            controller=RemainingController(
                objects=len(rest) + len(leases),
                exists=deployment is not None,
                deleting_for=self._deleting_for(deployment.metadata) if deployment is not None else None,
            ),
            gated=len(gated),
            releasing_for=self._waited("releasing", begin=False),
            forced=configuration is not None and (configuration.annotations or {}).get(FORCE) == "true",
        )
        events = await self._listed(ENOEXECEVENTS, namespace=self._namespace) if left.monitor else []
        held = [
            *_held(ENOEXECEVENTS, events),
            *_held(PPCS, depending),
            *(words for ref, operand in found.items() for words in _held(ref.resource, [operand.metadata])),
            *(_held(CPPCS, [configuration]) if configuration is not None else ()),
        ]
        return RemainingPlacementObjects(left=left, found=found, gated=gated, configs=configs, leases=leases, held=held)

    async def held_events(self) -> tuple[str, ...]:
        """What finalizers of others hold of the monitor's ENoExecEvents, as sentences."""
        return tuple(_held(ENOEXECEVENTS, await self._listed(ENOEXECEVENTS, namespace=self._namespace)))

    async def take(
        self, remaining: RemainingPlacementObjects, configuration: ObjectMeta | None
    ) -> PlacementUninstallStep:
        """Take the next step, and return it."""
        step = next_placement_step(remaining.left)
        self._log("uninstall", step.value, gated_pods=len(remaining.gated))
        if configuration is not None and not remaining.configs:
            await self._drop_finalizer(configuration, names.NO_POD_PLACEMENT_CONFIG_FINALIZER)
        match step:
            case PlacementUninstallStep.DELETE_WEBHOOK_CONFIGURATION:
                await self.delete_webhook_configuration()
            case PlacementUninstallStep.REMOVE_MONITOR:
                await self.remove_monitor(remaining.found, configuration)
            case PlacementUninstallStep.REMOVE_WEBHOOK:
                await self._operands.remove(belonging(remaining.found, names.WEBHOOK))
            case PlacementUninstallStep.RETIRE_CONTROLLER:
                await self._retire_controller(remaining.found)
            case PlacementUninstallStep.RELEASE_PODS:
                self._waited("releasing")
                await self._forced_release.release(remaining.gated)
            case PlacementUninstallStep.REMOVE_CONTROLLER:
                await self._remove_controller(remaining)
            case PlacementUninstallStep.RELEASE_CONFIGURATION if configuration is not None:
                for name in (names.NO_POD_PLACEMENT_CONFIG_FINALIZER, names.POD_PLACEMENT_FINALIZER):
                    await self._drop_finalizer(configuration, name)
            case PlacementUninstallStep.FINISHED:
                self.forget()
        return step

    def forget(self) -> None:
        """No uninstall is under way (any more)."""
        self._since.clear()
        self._logged.clear()

    async def remove_at_once(self, configuration: ObjectMeta | None) -> None:
        """Do all that is possible while the operator's namespace is being deleted, and its own permissions with it.

        Whatever is namespaced goes by itself, but for our finalizers. So nothing is waited for or listed there.
        """
        self._log("uninstall", "the operator's namespace is being deleted: all at once")
        parts: list[Callable[[], Awaitable[Any]]] = [self.delete_webhook_configuration, self._release_all]
        for name, finalizer in (
            (names.CONTROLLER, names.POD_PLACEMENT_FINALIZER),
            (names.ENOEXEC_HANDLER, names.ENOEXEC_EVENTS_FINALIZER),
        ):
            if (found := self._operands.get(DEPLOYMENTS, name)) is not None:
                parts.append(partial(remove_finalizer, self._client, DEPLOYMENTS, found.metadata, finalizer))
        parts += deletions_in_cluster(self._client, self._operands)
        if configuration is not None:
            parts += [partial(self._drop_finalizer, configuration, finalizer) for finalizer in FINALIZERS]
        await attempt_all(parts)

    async def _release_all(self) -> None:
        await self._forced_release.release(await gated_pods(self._client))

    async def delete_webhook_configuration(self) -> bool:
        """Delete the pod webhook's configuration, so that no more pods are gated. False: there is none."""
        key = ObjectKey("", names.WEBHOOK_CONFIGURATION)
        return await delete_object(self._client, MUTATING_WEBHOOKS, key) is not None

    async def remove_monitor(self, found: Found, configuration: ObjectMeta | None) -> MonitorUninstallStep:
        """Take the next step of removing the monitor, also while placement itself stays."""
        node_side, handler = (belonging(found, name) for name in (names.ENOEXEC_DAEMON, names.ENOEXEC_HANDLER))
        failed, events = await self._events()
        deployment = handler.get(ObjectRef(DEPLOYMENTS, ObjectKey(self._namespace, names.ENOEXEC_HANDLER)))
        finalizer = names.ENOEXEC_EVENTS_FINALIZER
        kept = configuration is not None and finalizer in (configuration.finalizers or ())
        step = next_monitor_step(
            ExecMonitorFacts(
                node_side=len(node_side),
                failed_events=len(failed),
                events=len(events),
                waited=self._waited("monitor's events", begin=bool(events) and not node_side),
                handler_finalizer=deployment is not None and finalizer in (deployment.metadata.finalizers or ()),
                handler=len(handler),
                configuration_finalizer=kept,
            )
        )
        self._log("removal of the monitor", step.value)
        match step:
            case MonitorUninstallStep.DELETE_NODE_SIDE:
                await self._operands.remove(node_side)
            case MonitorUninstallStep.DELETE_FAILED_EVENTS:
                await self._delete_events(failed)
            case MonitorUninstallStep.DELETE_EVENTS:
                await self._delete_events(events)
            case MonitorUninstallStep.DROP_HANDLER_FINALIZER if deployment is not None:
                await remove_finalizer(self._client, DEPLOYMENTS, deployment.metadata, finalizer)
            case MonitorUninstallStep.DELETE_HANDLER:
                await self._operands.remove(handler)
            case MonitorUninstallStep.DROP_CONFIGURATION_FINALIZER if configuration is not None:
                await self._drop_finalizer(configuration, finalizer)
        if not events:
            self._since.pop("monitor's events", None)
        return step

    def _log(self, event: str, step: str, **details: int) -> None:
        """Log a step once for all its repetitions."""
        if self._logged.get(event) != step:
            log.info(event, step=step, **details)
        self._logged[event] = step

    async def _retire_controller(self, found: Found) -> None:
        """Request the deletion: its pods go on until the finalizer is removed, which is added first if missing."""
        metadata = found[ObjectRef(DEPLOYMENTS, ObjectKey(self._namespace, names.CONTROLLER))].metadata
        if await add_finalizer(self._client, DEPLOYMENTS, metadata, names.POD_PLACEMENT_FINALIZER):
            await delete_object(self._client, DEPLOYMENTS, metadata.key, uid=metadata.uid)

    async def _remove_controller(self, remaining: RemainingPlacementObjects) -> None:
        deployment = remaining.found.get(ObjectRef(DEPLOYMENTS, ObjectKey(self._namespace, names.CONTROLLER)))
        if deployment is not None:
            await remove_finalizer(self._client, DEPLOYMENTS, deployment.metadata, names.POD_PLACEMENT_FINALIZER)
        if remaining.found:
            await self._operands.remove(remaining.found)
        for name in remaining.leases:
            await delete_object(self._client, LEASES, ObjectKey(self._namespace, name))

    async def _drop_finalizer(self, configuration: ObjectMeta, name: str) -> None:
        await remove_finalizer(self._client, CPPCS, configuration, name)

    async def _events(self) -> tuple[list[ObjectMeta], list[ObjectMeta]]:
        """ENoExecEvents: those that could not be reported, and the others."""
        failed: list[ObjectMeta] = []
        others: list[ObjectMeta] = []
        for event in await self._listed(ENOEXECEVENTS, namespace=self._namespace):
            (failed if names.ENOEXEC_EVENT_ERROR_LABEL in (event.labels or {}) else others).append(event)
        return failed, others

    async def _listed(self, resource: Resource, *, namespace: str = "") -> list[ObjectMeta]:
        """Objects of a kind of ours; none if it is not served any more: then there are none, for good."""
        try:
            found = await self._client.list(resource, type=PartialObjectMetadata, namespace=namespace)
        except NotFound:
            return []
        return [item.metadata for item in found.items]

    async def _delete_events(self, events: Sequence[ObjectMeta]) -> None:
        for event in events:
            await delete_object(self._client, ENOEXECEVENTS, event.key, uid=event.uid)

    def _deleting_for(self, metadata: ObjectMeta) -> float | None:
        """Seconds since the object's deletion was requested, or since this process saw that, whichever is more: the
        clocks of API server and operator may differ."""
        if metadata.deletion_timestamp is None:
            return None
        asked = (self._clock.now() - msgspec.convert(metadata.deletion_timestamp, datetime)).total_seconds()
        return max(asked, self._waited(f"deletion of {metadata.uid}"))

    def _waited(self, what: str, *, begin: bool = True) -> float:
        """Seconds since this was first asked for with ``begin``; 0 before."""
        now = self._clock.monotonic()
        if begin:
            self._since.setdefault(what, now)
        return now - self._since.get(what, now)
