"""``polyarch run exec-monitor``: reports programs that a node cannot execute.

``--side node`` runs on every node and sees them, ``--side handler`` tells the pods. Each side imports its own modules
only: the node side's memory is bounded, and there is one on every node.
"""

from pathlib import Path
from typing import Final

from polyarch.kube.manager import Components, Leadership, Process, Role, leader_check
from polyarch.placement import names
from polyarch.run.logs import Verbosity
from polyarch.run.settings import MonitorSettings


async def setup(process: Process) -> Components:
    """The components of the side that the settings name."""
    settings = process.settings_of(MonitorSettings)
    return node_side(process, settings) if settings.side == "node" else handler_side(process)


def node_side(process: Process, settings: MonitorSettings) -> Components:
    """Watches nothing in the API server, and reads nothing there."""
    from polyarch.placement import exec_monitor_node
    from polyarch.placement.exec_monitor_node import TRACEFS_ROOTS, PodAttribution, Reporter

    metrics = exec_monitor_node.NodeAgentMetrics(process.metrics)
    proc, clock = Path(settings.proc), process.clock
    roots = (Path(settings.tracefs),) if settings.tracefs else TRACEFS_ROOTS
    reporter = Reporter(
        process.client,
        namespace=process.settings.namespace,
        node=settings.node_name,
        clock=clock,
        count=lambda result: metrics.results[result].inc(),
    )
    side = exec_monitor_node.NodeAgent(
        PodAttribution(proc=proc, logs=Path(settings.pod_logs), now=clock.monotonic),
        reporter,
        instance=lambda: exec_monitor_node.open_node_trace(proc, roots),
        metrics=metrics,
        clock=clock,
    )
    return Components(background={"trace": side.run, "reports": reporter.run}, readiness={"trace": side.unready})


def handler_side(process: Process) -> Components:
    """The leader handles the events; standbys have them cached."""
    from polyarch.kube.controller import Controller
    from polyarch.kube.events import Regarding
    from polyarch.kube.queue import Priority, WorkQueue
    from polyarch.kube.store import ObjectChange
    from polyarch.objects import ObjectKey
    from polyarch.placement.api import ENOEXECEVENTS, ENoExecEvent
    from polyarch.placement.events import EventReason
    from polyarch.placement.exec_monitor_handler import Handler

    clock = process.clock
    recorder = process.recorder("polyarch.dev/exec-monitor")
    informer = process.informer(ENOEXECEVENTS, ENoExecEvent)
    queue: WorkQueue[ObjectKey] = WorkQueue("enoexecevents", clock, metrics=process.metrics)

    def post(pod: Regarding, note: str) -> None:
        recorder.event(pod, type="Warning", reason=EventReason.EXEC_FORMAT_ERROR, note=note, action="Execute")

    election = process.election(names.ENOEXEC_LEASE)
    leads = leader_check(election)

    def seen(change: ObjectChange[ENoExecEvent]) -> None:
        if change.new is None and not leads():
            queue.discard(change.key)  # every event has a name of its own, and the leader deletes it
            return
        queue.add(change.key, Priority.LOW if change.initial else Priority.NORMAL)

    handler = Handler(
        process.client,
        informer.store,
        home=process.settings.namespace,
        post=post,
        clock=clock,
        metrics=process.metrics,
    )
    informer.add_handler(seen)
    passes = Controller("enoexecevents", handler.reconcile, queue=queue, clock=clock, metrics=process.metrics)
    return Components(
        leaderships=(Leadership(election=election, controllers=(passes,)),),
        recorders=(recorder,),
    )


ROLE: Final = Role(name="exec-monitor", setup=setup, settings=(MonitorSettings, Verbosity))
