"""The status of ArchitectureTaints, to which the other duties contribute (TN-014)."""

from collections.abc import Callable, Sequence

from polyarch.kube.controller import Controller
from polyarch.kube.manager import Process
from polyarch.kube.queue import WorkQueue
from polyarch.objects import Key
from polyarch.run.parts.taints import TaintParts
from polyarch.run.settings import TaintRoleSettings
from polyarch.run.tainting.duties import Duty
from polyarch.taints.status import OBJECT, Part, StatusWriter


def status_duty(
    process: Process, parts: TaintParts, contributions: Sequence[Part], *, is_leading: Callable[[], bool]
) -> Duty:
    """The one writer; a configuration from a file is only logged."""
    clock, facts = process.clock, parts.facts
    queue: WorkQueue[Key] = WorkQueue("taint-status", clock, metrics=process.metrics)
    from_file = process.settings_of(TaintRoleSettings).configuration is not None
    writer = StatusWriter(facts, process.client, contributions, clock=clock, from_file=from_file)

    def changed(namespace: str | None) -> None:
        if namespace is None:
            queue.add(OBJECT)

    async def take_over() -> None:
        queue.add(OBJECT)

    facts.on_change(changed)
    parts.metrics.degraded.set_function(lambda: float(writer.is_degraded and is_leading()))
    controller = Controller(queue.name, writer.reconcile, queue=queue, workers=1, clock=clock, metrics=process.metrics)
    return Duty(led={"take over status": take_over}, led_controllers=(controller,))
