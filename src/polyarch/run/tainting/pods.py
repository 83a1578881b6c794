"""Pods without a node and, if the policy says so, pods on nodes (TN-043 to TN-049)."""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.manager import Process
from polyarch.kube.queue import Priority, WorkQueue
from polyarch.kube.resources import PODS
from polyarch.kube.store import Change
from polyarch.objects import Key, Pod
from polyarch.run.parts.taints import TaintParts
from polyarch.run.tainting.duties import Duty
from polyarch.taints.bound_pods import BoundPods
from polyarch.taints.events import PodEvent
from polyarch.taints.image_waiting import ImageWaiting
from polyarch.taints.pods import CHANGED, UNSCHEDULED, ChangedPods, PodController, PodWrites, WatchedPods

WORKERS: Final = 32
"""Concurrent passes; each lasts about one PATCH."""


class PodDuty(NamedTuple):
    """The duty, and those of its parts that others ask."""

    duty: Duty
    controller: PodController
    bound: BoundPods


def pod_duty(
    process: Process,
    parts: TaintParts,
    images: ImageWaiting,
    queue: WorkQueue[Key],
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
    is_held: Callable[[Pod], bool],
) -> PodDuty:
    """``is_held``: placement keeps the pod, and brings its tolerations when it lets it go."""
    clock, metrics = process.clock, parts.metrics
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
    finishes = ChangedPods(
        process.client, images=images, writes=writes, post=post, is_leading=is_leading, metrics=metrics
    )
    controller = PodController(
        pods=pods,
        facts=parts.facts,
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
        facts=parts.facts,
        images=LowPriorityLookups(parts.images.registries, parts.images.secrets, clock, parts.images.metrics),
        clock=clock,
        metrics=metrics,
    )

    def seen(change: Change[Pod]) -> None:
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    unscheduled.add_handler(seen)
    changed.add_handler(seen)
    metrics.gated_pods.set_function(lambda: float(controller.gated if is_leading() else 0))
    metrics.oldest_gate_seconds.set_function(lambda: controller.oldest_gate if is_leading() else 0.0)
    passes = Controller(
        queue.name,
        controller.reconcile,
        queue=queue,
        workers=WORKERS,
        clock=clock,
        metrics=process.metrics,
        writes=pods,
    )
    duty = Duty(controllers=(passes,), led={"take over": controller.started_leading, "pods on nodes": bound.run})
    return PodDuty(duty, controller, bound)
