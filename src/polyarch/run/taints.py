"""``polyarch run taints``: taints nodes and adds tolerations. One replica leads."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.admission import Route
from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Caches, Components, Leadership, Process, Role, Task, leader_check
from polyarch.kube.queue import Priority, Tenants, WorkQueue
from polyarch.kube.resources import DAEMONSETS, NODES, PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import DaemonSet, Node, ObjectKey, Pod
from polyarch.placement.patch import has_gate
from polyarch.run.logs import Verbosity
from polyarch.run.record_key import SigningKeyFile
from polyarch.run.services import ImageServices, lease_watch, open_admission_lookups, open_images, open_taint_facts
from polyarch.run.settings import RegistrySettings, TaintRoleSettings
from polyarch.taints import names
from polyarch.taints.bound_pods import BoundPods
from polyarch.taints.daemonsets import TemplateController
from polyarch.taints.events import ACTION, NodeEvent, PodEvent
from polyarch.taints.facts import TaintFacts
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.names import REGISTRATION_POLICY
from polyarch.taints.node_rules import KnowsUnscheduled, Pending, pending_because_of_taints
from polyarch.taints.nodes import NodeController, NodeRateLimiter, TaintedNodeIndex
from polyarch.taints.pods import CHANGED, UNSCHEDULED, ImageChangeHandler, PodController, PodWrites, WatchedPods
from polyarch.taints.registration import RegistrationPolicyController
from polyarch.taints.rollout import ClusterPreconditions, KnowsRunning, KnowsUncovered, KnowsUndecided, TaintRollout
from polyarch.taints.settings import TaintSettings
from polyarch.taints.status import OBJECT, NodeStatusPart, Part, StatusWriter
from polyarch.taints.webhook import PodAdmission, TemplateAdmission


async def setup(process: Process) -> Components:
    """The role, built from the shared services of its process. Without a certificate it serves no webhook."""
    services = await process.share(open_taint_services)
    if not process.settings.cert_dir:
        return components(process, services)
    pods = await process.share(open_pod_admission)
    templates = TemplateAdmission(
        facts=services.facts,
        lookups=await process.share(open_admission_lookups),
        failed=services.images.metrics.internal_errors.inc,
    )
    return components(process, services, routes=(pods.route(), templates.route()))


class TaintServices:
    """What the groups of the role share."""

    def __init__(self, process: Process, facts: TaintFacts, images: ImageServices) -> None:
        self.process = process
        self.facts = facts
        self.images = images
        self.metrics = TaintMetrics(process.metrics)
        keys = SigningKeyFile(
            process.settings.cert_dir, lambda signer: process.review_tokens.take(signer.keys), process.clock
        )
        self.caches: list[Caches] = [facts, keys, *images.caches]
        """To be run by each role that uses these services."""


def components(process: Process, services: TaintServices, *, routes: tuple[Route[Any], ...] = ()) -> Components:
    """All replicas serve; only the leader writes to the cluster."""
    election = process.election(names.LEASE)
    is_leading = leader_check(election)
    recorder = process.recorder("polyarch.dev/taints")
    pods: WorkQueue[ObjectKey] = WorkQueue(
        "unscheduled-pods", process.clock, metrics=process.metrics, tenants=Tenants(lambda key: key.namespace)
    )
    templates: WorkQueue[ObjectKey] = WorkQueue(
        "templates", process.clock, metrics=process.metrics, tenants=Tenants(lambda key: key.namespace)
    )
    images = ImageWaiting(
        pods=pods,
        templates=templates,
        inspector=services.images.registries,
        secrets=services.images.secrets,
        metrics=services.images.metrics,
        is_leading=is_leading,
        clock=process.clock,
        process_metrics=process.metrics,
    )
    services.images.credentials_changed.append(images.credentials_changed)
    services.images.registries.on_change(images.registries_changed)
    services.metrics.unknown_images.set_function(lambda: float(images.unknown if is_leading() else 0))
    placement_lives = lease_watch(process)

    def is_held(pod: Pod) -> bool:
        return has_gate(pod) and placement_lives()

    of_pods = pod_controllers(process, services, images, pods, recorder, is_leading=is_leading, is_held=is_held)
    of_templates = template_controllers(process, services, images, templates, recorder, is_leading=is_leading)
    of_nodes = node_controllers(
        process,
        services,
        recorder,
        is_leading=is_leading,
        daemon_sets=of_templates.controller,
        unscheduled=of_pods.controller,
        running=of_pods.bound,
    )
    contributions = (
        of_nodes.report.contribution,
        of_pods.controller.contribution,
        of_templates.controller.contribution,
    )
    of_status = status_controllers(process, services, contributions, is_leading=is_leading)
    groups = (of_pods.group, of_templates.group, of_nodes.group, of_status)
    background: dict[str, Task] = {
        "attempts": images.attempts.run,
        "pull secrets": images.reads.run,
        "changed pull secrets": images.look_for_new_secrets,
    }
    if election is None:  # it always leads, but gates are added only while the Lease is renewed
        background["lease"] = process.candidate(names.LEASE).run
    for group in groups:
        background |= group.background
    return Components(
        routes=routes,
        caches=tuple(services.caches),
        controllers=tuple(controller for group in groups for controller in group.controllers),
        leaderships=(
            Leadership(
                election=election,
                controllers=tuple(controller for group in groups for controller in group.led_controllers),
                background={name: task for group in groups for name, task in group.led.items()},
            ),
        ),
        background=background,
        recorders=(recorder,),
    )


ROLE: Final = Role(name="taints", setup=setup, settings=(RegistrySettings, TaintRoleSettings, Verbosity))

# -- nodes: their taints, the policy for those that register, and their part of the status


WRITERS: Final = 8
"""Nodes that are written at a time: as many as a slow API server needs for 600 a minute."""
ROLLOUT: Final = ObjectKey("", "rollout")
POLICY: Final = ObjectKey("", REGISTRATION_POLICY)


class Unscheduled(KnowsUndecided, KnowsUnscheduled, Protocol):
    """What is asked of the room ``unscheduled``."""


class ControllerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by name; what is ``led`` is the leader's, and its controllers are fenced by the Lease."""

    controllers: tuple[Controller[Any], ...] = ()
    background: Mapping[str, Task] = {}
    led_controllers: tuple[Controller[Any], ...] = ()
    led: Mapping[str, Task] = {}


class NodeControllers(NamedTuple):
    """The group, the numbers of nodes, and what the status says of them."""

    group: ControllerGroup
    census: TaintedNodeIndex
    report: NodeStatusPart


def node_controllers(
    process: Process,
    services: TaintServices,
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
    daemon_sets: KnowsUncovered,
    unscheduled: Unscheduled,
    running: KnowsRunning,
) -> NodeControllers:
    """The controllers of nodes, put together."""
    clock, facts, metrics = process.clock, services.facts, services.metrics
    from_file = process.settings_of(TaintRoleSettings).configuration is not None
    informer = process.informer(NODES, Node)
    writes: WorkQueue[ObjectKey] = WorkQueue("taint-nodes", clock, metrics=process.metrics)
    passes: WorkQueue[ObjectKey] = WorkQueue("taint-rollout", clock, metrics=process.metrics)
    policies: WorkQueue[ObjectKey] = WorkQueue("registration-policy", clock, metrics=process.metrics)

    def wake() -> None:
        passes.add(ROLLOUT)

    def post(node: Node, event: NodeEvent) -> None:
        regarding = Regarding.of(NODES, node.metadata)
        recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=ACTION)

    def pending(settings: TaintSettings) -> Pending | None:
        pods = unscheduled.pods()
        if pods is None:
            return None
        nodes = informer.store.values()
        return pending_because_of_taints(pods, nodes, settings, facts.labels_of, unscheduled.platforms)

    controller = NodeController(
        nodes=informer,
        facts=facts,
        client=process.client,
        post=post,
        enqueue=writes.add,
        wake=wake,
        is_leading=is_leading,
        clock=clock,
        metrics=metrics,
    )
    informer.add_handler(controller.seen)
    safety = ClusterPreconditions(
        process,
        namespace=process.settings.namespace,
        daemon_sets=daemon_sets,
        pods=unscheduled,
        running=running,
    )
    registration = RegistrationPolicyController(
        facts=facts,
        client=process.client,
        informers=process.informers,
        released=lambda: rollout.released,
        wake=lambda: policies.add(POLICY),
        clock=clock,
        metrics=metrics,
    )
    rollout = TaintRollout(
        nodes=controller,
        facts=facts,
        safety=safety,
        pending=pending,
        pace=NodeRateLimiter(clock),
        released=lambda: policies.add(POLICY),
        clock=clock,
        metrics=metrics,
    )

    def webhook_changed() -> None:
        rollout.safety_changed()
        wake()

    def facts_changed(namespace: str | None) -> None:
        if namespace is None:
            rollout.settings_changed()
            wake()
            policies.add(POLICY)

    async def lead() -> None:
        rollout.started_leading()
        wake()
        policies.add(POLICY)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            rollout.stopped_leading()

    async def tell_architectures() -> None:
        """Without an object, every replica learns from its own watch what the status would say."""
        await informer.synced()
        informer.add_handler(lambda _: facts.take_architectures(controller.census.architectures))
        await asyncio.get_running_loop().create_future()

    facts.on_change(facts_changed)
    safety.on_change(webhook_changed)
    group = ControllerGroup(
        background={"architectures of nodes": tell_architectures} if from_file else {},
        led={"nodes": lead},
        led_controllers=(
            Controller(
                writes.name,
                controller.reconcile,
                queue=writes,
                workers=WRITERS,
                clock=clock,
                metrics=process.metrics,
                writes=informer.writes,
            ),
            *(
                Controller(queue.name, reconcile, queue=queue, workers=1, clock=clock, metrics=process.metrics)
                for queue, reconcile in ((passes, rollout.reconcile), (policies, registration.reconcile))
            ),
        ),
    )
    report = NodeStatusPart(
        facts=facts,
        nodes=controller,
        rollout=rollout,
        registration=registration,
        admission=lambda: safety.admission,
    )
    return NodeControllers(group, controller.census, report)


# -- pods without a node and, if the policy says so, pods on nodes


WORKERS: Final = 32
"""Concurrent passes; each lasts about one PATCH."""


class PodControllers(NamedTuple):
    """The group, and what others ask."""

    group: ControllerGroup
    controller: PodController
    bound: BoundPods


def pod_controllers(
    process: Process,
    services: TaintServices,
    images: ImageWaiting,
    queue: WorkQueue[ObjectKey],
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
    is_held: Callable[[Pod], bool],
) -> PodControllers:
    """``is_held``: placement keeps the pod, and brings its tolerations when it lets it go."""
    clock, metrics = process.clock, services.metrics
    unscheduled = process.informer(PODS, Pod, field_selector=UNSCHEDULED)
    changed = process.informer(PODS, Pod, label_selector=CHANGED)
    pods = WatchedPods(unscheduled, changed)

    def post(pod: Pod, event: PodEvent) -> None:
        regarding = Regarding.of(PODS, pod.metadata)
        recorder.event(regarding, type="Warning", reason=event.reason, note=event.note, action=event.action)

    writes = PodWrites(
        process.client,
        post=post,
        note_write=pods.note_write,
        wake=queue.add,
        is_connected=pods.is_connected,
        clock=clock,
        metrics=metrics,
        uniform=random.random,
    )
    finishes = ImageChangeHandler(
        process.client, images=images, writes=writes, post=post, is_leading=is_leading, metrics=metrics
    )
    controller = PodController(
        pods=pods,
        facts=services.facts,
        images=images,
        writes=writes,
        changed=finishes,
        enqueue=queue.add,
        clock=clock,
        metrics=metrics,
        is_leading=is_leading,
        is_held=is_held,
    )
    bound = BoundPods(
        process.client,
        facts=services.facts,
        images=LowPriorityLookups(services.images.registries, services.images.secrets, clock, services.images.metrics),
        clock=clock,
        metrics=metrics,
    )

    def seen(change: ObjectChange[Pod]) -> None:
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    unscheduled.add_handler(seen)
    changed.add_handler(seen)
    metrics.gated_pods.set_function(lambda: float(controller.gated if is_leading() else 0))
    passes = Controller(
        queue.name,
        controller.reconcile,
        queue=queue,
        workers=WORKERS,
        clock=clock,
        metrics=process.metrics,
        writes=pods,
    )
    group = ControllerGroup(
        controllers=(passes,),
        led={
            "take over": controller.started_leading,
            "pods on nodes": bound.run,
            "oldest gates": partial(metrics.oldest_gate.follow, controller.oldest_gates, clock),
        },
    )
    return PodControllers(group, controller, bound)


# -- templates of DaemonSets


class TemplateControllers(NamedTuple):
    """The group, and the controller that others ask."""

    group: ControllerGroup
    controller: TemplateController


class _WatchedDaemonSets:
    """The DaemonSets of an informer."""

    def __init__(self, informer: Informer[DaemonSet]) -> None:
        self._informer = informer

    def get(self, key: ObjectKey) -> DaemonSet | None:
        return self._informer.store.get(key)

    def known(self) -> list[ObjectKey]:
        return list(self._informer.store.keys())


def template_controllers(
    process: Process,
    services: TaintServices,
    images: ImageWaiting,
    queue: WorkQueue[ObjectKey],
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
) -> TemplateControllers:
    """What templates lack is added by the leader."""
    daemon_sets = process.informer(DAEMONSETS, DaemonSet)
    nodes = process.informer(NODES, Node)

    def post(daemon_set: DaemonSet, *, reason: str, note: str, action: str) -> None:
        regarding = Regarding.of(DAEMONSETS, daemon_set.metadata)
        recorder.event(regarding, type="Warning", reason=reason, note=note, action=action)

    controller = TemplateController(
        daemon_sets=_WatchedDaemonSets(daemon_sets),
        nodes=nodes.store.values,
        facts=services.facts,
        images=images,
        client=process.client,
        post=post,
        note_write=daemon_sets.writes.note_write,
        enqueue=queue.add,
        clock=process.clock,
        metrics=services.metrics,
        is_leading=is_leading,
        is_connected=lambda: not daemon_sets.broken_seconds,
    )

    def seen(change: ObjectChange[DaemonSet]) -> None:
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    daemon_sets.add_handler(seen)
    services.metrics.blocked_templates.set_function(lambda: float(controller.blocked if is_leading() else 0))
    passes = Controller(
        queue.name,
        controller.reconcile,
        queue=queue,
        clock=process.clock,
        metrics=process.metrics,
        writes=daemon_sets.writes,
    )
    return TemplateControllers(
        ControllerGroup(controllers=(passes,), led={"take templates over": controller.started_leading}), controller
    )


# -- the status of ArchitectureTaints


def status_controllers(
    process: Process, services: TaintServices, contributions: Sequence[Part], *, is_leading: Callable[[], bool]
) -> ControllerGroup:
    """The one writer; a configuration from a file is only logged."""
    clock, facts = process.clock, services.facts
    queue: WorkQueue[ObjectKey] = WorkQueue("taint-status", clock, metrics=process.metrics)
    from_file = process.settings_of(TaintRoleSettings).configuration is not None
    writer = StatusWriter(facts, process.client, contributions, clock=clock, from_file=from_file)

    def changed(namespace: str | None) -> None:
        if namespace is None:
            queue.add(OBJECT)

    async def take_over() -> None:
        queue.add(OBJECT)

    facts.on_change(changed)
    services.metrics.degraded.set_function(lambda: float(writer.is_degraded and is_leading()))
    controller = Controller(queue.name, writer.reconcile, queue=queue, workers=1, clock=clock, metrics=process.metrics)
    return ControllerGroup(led={"take over status": take_over}, led_controllers=(controller,))


# -- services


@asynccontextmanager
async def open_taint_services(process: Process) -> AsyncIterator[TaintServices]:
    """Open the services; watches start when the process runs."""
    facts = await process.share(open_taint_facts)
    yield TaintServices(process, facts, await process.share(open_images))


@asynccontextmanager
async def open_pod_admission(process: Process) -> AsyncIterator[PodAdmission]:
    """Open the admission of pods that placement does not see."""
    services = await process.share(open_taint_services)
    yield PodAdmission(
        facts=services.facts,
        lookups=await process.share(open_admission_lookups),
        clock=process.clock,
        metrics=services.metrics,
        failed=services.images.metrics.internal_errors.inc,
    )
