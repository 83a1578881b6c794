"""``polyarch run placement-controller``: finishes gated pods (PL-300). One replica leads, the others help (PL-530)."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from polyarch.kube.resources import PODS
from polyarch.kube.runtime.controller import Controller
from polyarch.kube.runtime.events import Recorder, Regarding
from polyarch.kube.runtime.lease import LeaderElection
from polyarch.kube.runtime.queue import Priority, WorkQueue
from polyarch.kube.runtime.store import Change
from polyarch.model.meta import Key
from polyarch.model.pod import Pod
from polyarch.placement import names
from polyarch.placement.controller.pod_controller import PodController
from polyarch.placement.controller.pods import GATED_SELECTOR, STRAY_SELECTOR, UNSCHEDULED, GatedPods, StrayGates
from polyarch.placement.lookups.attempts import Attempts
from polyarch.placement.lookups.waiting import ImageKey, Waiting
from polyarch.placement.result.events import Event
from polyarch.run.placement import Parts, open_parts
from polyarch.run.process import open_process
from polyarch.run.settings import RunSettings

WORKERS: Final = 32
"""Passes at a time: each is a PATCH long."""


class ControllerRole(NamedTuple):
    """What the manager has to run for the controller."""

    controller: Controller[Key]
    election: LeaderElection | None
    recorder: Recorder
    background: dict[str, Callable[[], Awaitable[None]]]


def controller_role(parts: Parts, is_leading: Callable[[], bool]) -> ControllerRole:
    """The controller on the shared parts of its process."""
    process, metrics, clock = parts.process, parts.metrics, parts.process.clock
    informer = process.informer(PODS, Pod, label_selector=GATED_SELECTOR)
    pods = GatedPods(informer.store)
    queue: WorkQueue[Key] = WorkQueue("pods", clock, metrics=process.metrics)
    images: WorkQueue[ImageKey] = WorkQueue("images", clock, metrics=process.metrics)
    waiting = Waiting(clock, schedule=images.add_after, wake=queue.add, insists=is_leading)
    attempts = Attempts(waiting, images, parts.registries, parts.secrets, clock, metrics)
    recorder = process.recorder("polyarch.dev/placement-controller")

    def post(pod: Pod, event: Event) -> None:
        metadata = pod.metadata
        regarding = Regarding("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    controller = PodController(
        pods=pods,
        facts=parts.facts,
        secrets=parts.secrets,
        inspector=parts.registries,
        waiting=waiting,
        client=process.client,
        post=post,
        enqueue=queue.add,
        clock=clock,
        metrics=metrics,
        is_leading=is_leading,
    )

    def seen(change: Change[Pod]) -> None:
        pods.outdated(change.key)  # what the watch says counts from now on
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    async def list_unlabelled() -> Iterable[Pod]:
        found = await process.client.list(
            PODS, type=Pod, label_selector=STRAY_SELECTOR, field_selector=UNSCHEDULED, resource_version="0"
        )
        return found.items

    informer.add_handler(seen)
    parts.credentials_changed.append(controller.credentials_changed)
    parts.registries.on_change(controller.registries_changed)
    metrics.pods_gated.set_function(lambda: float(pods.count() if is_leading() else 0))
    metrics.held_pods.set_function(lambda: float(controller.held if is_leading() else 0))
    background: dict[str, Callable[[], Awaitable[None]]] = {"attempts": attempts.run}
    election = process.election(names.CONTROLLER_LEASE)
    if election is not None:
        election.subscribe(_calls(controller.started_leading), None)
    else:  # it leads in any case, and webhooks gate for as long as somebody's Lease moves (PL-107)
        background["lease"] = process.candidate(names.CONTROLLER_LEASE).run
    strays = StrayGates(pods, list_unlabelled, enqueue=queue.add, is_leading=is_leading, clock=clock, metrics=metrics)
    return ControllerRole(
        Controller(
            "pods",
            controller.reconcile,
            queue=queue,
            workers=WORKERS,
            clock=clock,
            metrics=process.metrics,
            safe_on_standby=True,
        ),
        election,
        recorder,
        background | {"stray gates": strays.run},
    )


def _calls(function: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        function()

    return call


async def run(settings: RunSettings) -> None:
    """Until SIGTERM."""
    async with open_process("placement-controller", settings) as process, open_parts(process) as parts:
        role = controller_role(parts, lambda: process.is_leading)
        await process.run(
            caches=[parts.facts],
            election=role.election,
            controllers=[role.controller],
            recorder=role.recorder,
            background=role.background,
        )
