"""``polyarch run placement-controller``: decides gated pods. One replica leads, the others help."""

from collections.abc import Iterable
from functools import partial
from typing import Final

from polyarch.images.lookup_runner import LookupRunner
from polyarch.images.pull_secrets import PullSecretReader
from polyarch.images.resolver import LowPriorityLookups
from polyarch.images.waiting import ImageLookupKey, WaitingPods
from polyarch.kube.controller import Controller
from polyarch.kube.events import Regarding
from polyarch.kube.manager import Components, Leadership, Process, Role, Task, leader_check
from polyarch.kube.queue import Priority, Tenants, WorkQueue
from polyarch.kube.resources import PODS
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, Pod
from polyarch.placement import names
from polyarch.placement.api import LeaderNotes
from polyarch.placement.controller import (
    GATED_SELECTOR,
    STRAY_SELECTOR,
    UNSCHEDULED,
    GatedPods,
    PodController,
    StrayGates,
)
from polyarch.placement.events import Event
from polyarch.placement.sweep import Sweeper
from polyarch.placement.warmup import WarmUp
from polyarch.run.logs import Verbosity
from polyarch.run.placement_services import PlacementServices, open_placement_services
from polyarch.run.report_controller import ReportController, ReportGenerator
from polyarch.run.settings import RegistrySettings, TaintRoleSettings

WORKERS: Final = 32
"""Concurrent reconciles; each lasts about one PATCH."""


async def setup(process: Process) -> Components:
    """The controller, built from the shared services of its process."""
    return components(process, await process.share(open_placement_services))


def components(process: Process, services: PlacementServices) -> Components:
    """All replicas reconcile; only the leader releases unresolved pods, holds them and posts events."""
    metrics, clock = services.metrics, process.clock

    def notes() -> dict[str, str]:
        return LeaderNotes(controller.held, sweeper.unplaced, services.facts.left_out).annotations()

    election = process.election(names.CONTROLLER_LEASE, notes=notes)
    is_leading = leader_check(election)
    informer = process.informer(PODS, Pod, label_selector=GATED_SELECTOR)
    pods = GatedPods(informer.store)
    queue: WorkQueue[ObjectKey] = WorkQueue(
        "pods", clock, metrics=process.metrics, tenants=Tenants(lambda key: key.namespace)
    )
    images: WorkQueue[ImageLookupKey] = WorkQueue("images", clock, metrics=process.metrics)
    waiting = WaitingPods(clock, schedule=images.add_after, wake=queue.add, insists=is_leading)
    attempts = LookupRunner(
        waiting, images, services.images.registries, services.images.secrets, clock, services.images.metrics
    )
    reads = PullSecretReader(services.images.secrets, queue.add_after)
    recorder = process.recorder("polyarch.dev/placement-controller")

    def post(pod: Pod, event: Event) -> None:
        metadata = pod.metadata
        regarding = Regarding("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    controller = PodController(
        pods=pods,
        facts=services.facts,
        secrets=services.images.secrets,
        reads=reads,
        inspector=services.images.registries,
        waiting=waiting,
        client=process.client,
        post=post,
        enqueue=queue.add,
        clock=clock,
        metrics=metrics,
        is_leading=is_leading,
        is_connected=lambda: not informer.broken_seconds,
        mutator=services.additions,
    )

    def seen(change: ObjectChange[Pod]) -> None:
        pods.outdated(change.key)  # the watched state is newer than what a list of stray gates found
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    async def list_unlabelled() -> Iterable[Pod]:
        found = await process.client.list(
            PODS, type=Pod, label_selector=STRAY_SELECTOR, field_selector=UNSCHEDULED, resource_version="0"
        )
        return found.items

    informer.add_handler(seen)
    services.images.credentials_changed.append(controller.credentials_changed)
    services.images.registries.on_change(controller.registries_changed)
    metrics.pods_gated.set_function(lambda: float(pods.count() if is_leading() else 0))

    async def take_over() -> None:
        controller.started_leading()

    strays = StrayGates(pods, list_unlabelled, enqueue=queue.add, is_leading=is_leading, clock=clock, metrics=metrics)
    sweeper = Sweeper(
        client=process.client,
        list_pending=strays.look,
        informers=process.informers,
        facts=services.facts,
        images=LowPriorityLookups(services.images.registries, services.images.secrets, clock, services.images.metrics),
        post=post,
        namespace=process.settings.namespace,
        is_leading=is_leading,
        clock=clock,
        metrics=metrics,
    )
    warm_up = WarmUp(
        informers=process.informers,
        facts=services.facts,
        inspector=services.images.registries,
        secrets=services.images.secrets,
        images=LowPriorityLookups(services.images.registries, services.images.secrets, clock, services.images.metrics),
        clock=clock,
    )
    report = ReportController(
        lambda: _rounds(process, services), facts=services.facts, metrics=process.metrics, clock=clock
    )
    led: dict[str, Task] = {
        "take over": take_over,
        "held pods": partial(metrics.held_pods.follow, controller.held_by_namespace, clock),
        "oldest gates": partial(metrics.oldest_gate.follow, controller.oldest_gates, clock),
        "sweep": sweeper.run,
        "shared readings": services.shared_readings.export,
        "warm-up": warm_up.run,
        "report": report.run,
    }
    background: dict[str, Task] = {"attempts": attempts.run, "pull secrets": reads.run}
    if election is None:  # without election it always leads, but webhooks gate only while the Lease is renewed
        background["lease"] = process.candidate(names.CONTROLLER_LEASE, notes=notes).run
    background["stray gates"] = strays.run
    passes = Controller(
        "pods", controller.reconcile, queue=queue, workers=WORKERS, clock=clock, metrics=process.metrics
    )
    return Components(
        caches=tuple(services.caches),
        controllers=(passes,),
        leaderships=(Leadership(election=election, background=led),),
        background=background,
        recorders=(recorder,),
    )


def _rounds(process: Process, services: PlacementServices) -> ReportGenerator:
    """Loaded for the first report: most clusters keep none."""
    from polyarch.run.report_generator import ClusterReportGenerator

    images = services.images
    return ClusterReportGenerator(
        client=process.client,
        facts=services.facts,
        inspector=images.registries,
        secrets=images.secrets,
        images=LowPriorityLookups(images.registries, images.secrets, process.clock, images.metrics),
        namespace=process.settings.namespace,
        clock=process.clock,
    )


ROLE: Final = Role(name="placement-controller", setup=setup, settings=(RegistrySettings, TaintRoleSettings, Verbosity))
