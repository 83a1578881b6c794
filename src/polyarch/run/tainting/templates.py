"""Templates of DaemonSets (TN-050 to TN-052)."""

from collections.abc import Callable
from typing import NamedTuple

from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.informer import Informer
from polyarch.kube.manager import Process
from polyarch.kube.queue import Priority, WorkQueue
from polyarch.kube.resources import DAEMONSETS, NODES
from polyarch.kube.store import Change
from polyarch.objects import DaemonSet, Key, Node
from polyarch.run.parts.taints import TaintParts
from polyarch.run.tainting.duties import Duty
from polyarch.taints.daemonsets import TemplateController
from polyarch.taints.image_waiting import ImageWaiting


class TemplateDuty(NamedTuple):
    """The duty, and the controller that others ask."""

    duty: Duty
    controller: TemplateController


class _Watched:
    """The DaemonSets of an informer."""

    def __init__(self, informer: Informer[DaemonSet]) -> None:
        self._informer = informer

    def get(self, key: Key) -> DaemonSet | None:
        return self._informer.store.get(key)

    def known(self) -> list[Key]:
        return list(self._informer.store.keys())


def template_duty(
    process: Process,
    parts: TaintParts,
    images: ImageWaiting,
    queue: WorkQueue[Key],
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
) -> TemplateDuty:
    """What templates lack is added by the leader."""
    daemon_sets = process.informer(DAEMONSETS, DaemonSet)
    nodes = process.informer(NODES, Node)

    def post(daemon_set: DaemonSet, *, reason: str, note: str, action: str) -> None:
        regarding = Regarding.of(DAEMONSETS, daemon_set.metadata)
        recorder.event(regarding, type="Warning", reason=reason, note=note, action=action)

    controller = TemplateController(
        daemon_sets=_Watched(daemon_sets),
        nodes=nodes.store.values,
        facts=parts.facts,
        images=images,
        client=process.client,
        post=post,
        note_write=daemon_sets.writes.note_write,
        enqueue=queue.add,
        clock=process.clock,
        metrics=parts.metrics,
        is_leading=is_leading,
        is_connected=lambda: not daemon_sets.broken_seconds,
    )

    def seen(change: Change[DaemonSet]) -> None:
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    daemon_sets.add_handler(seen)
    parts.metrics.blocked_templates.set_function(lambda: float(controller.blocked if is_leading() else 0))
    passes = Controller(
        queue.name,
        controller.reconcile,
        queue=queue,
        clock=process.clock,
        metrics=process.metrics,
        writes=daemon_sets.writes,
    )
    return TemplateDuty(
        Duty(controllers=(passes,), led={"take templates over": controller.started_leading}), controller
    )
