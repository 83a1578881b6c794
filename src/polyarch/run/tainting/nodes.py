"""Nodes: their taints, the policy for those that register, and what the status says of them (TN-020 to TN-027)."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from polyarch.kube.controller import Controller
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.manager import Process
from polyarch.kube.queue import WorkQueue
from polyarch.kube.resources import NODES
from polyarch.objects import Key, Node
from polyarch.run.parts.taints import TaintParts
from polyarch.run.settings import TaintRoleSettings
from polyarch.run.tainting.duties import Duty
from polyarch.taints.events import ACTION, NodeEvent
from polyarch.taints.names import REGISTRATION_POLICY
from polyarch.taints.node_rules import KnowsUnscheduled, Pending, pending_because_of_taints
from polyarch.taints.nodes import Census, NodeController, Pace
from polyarch.taints.registration import RegistrationKeeper
from polyarch.taints.rollout import ClusterSafety, KnowsRunning, KnowsUncovered, KnowsUndecided, TaintRollout
from polyarch.taints.settings import TaintSettings
from polyarch.taints.status import NodeReport

WRITERS: Final = 8
"""Nodes that are written at a time: as many as a slow API server needs for 600 a minute."""
ROLLOUT: Final = Key("", "rollout")
POLICY: Final = Key("", REGISTRATION_POLICY)


class Unscheduled(KnowsUndecided, KnowsUnscheduled, Protocol):
    """What is asked of the room ``unscheduled``."""


class NodeDuty(NamedTuple):
    """The duty, the numbers of nodes, and what the status says of them."""

    duty: Duty
    census: Census
    report: NodeReport


def node_duty(
    process: Process,
    parts: TaintParts,
    recorder: Recorder,
    *,
    is_leading: Callable[[], bool],
    daemon_sets: KnowsUncovered,
    unscheduled: Unscheduled,
    running: KnowsRunning,
) -> NodeDuty:
    """The parts, put together."""
    clock, facts, metrics = process.clock, parts.facts, parts.metrics
    from_file = process.settings_of(TaintRoleSettings).configuration is not None
    informer = process.informer(NODES, Node)
    writes: WorkQueue[Key] = WorkQueue("taint-nodes", clock, metrics=process.metrics)
    passes: WorkQueue[Key] = WorkQueue("taint-rollout", clock, metrics=process.metrics)
    policies: WorkQueue[Key] = WorkQueue("registration-policy", clock, metrics=process.metrics)

    def wake() -> None:
        passes.add(ROLLOUT)

    def post(node: Node, event: NodeEvent) -> None:
        regarding = Regarding.of(NODES, node.metadata)
        recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=ACTION)

    def pending(settings: TaintSettings) -> Pending | None:
        pods = unscheduled.pods()
        if pods is None:
            return None
        return pending_because_of_taints(pods, informer.store.values(), settings, facts.labels_of)

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
    safety = ClusterSafety(
        process,
        namespace=process.settings.namespace,
        daemon_sets=daemon_sets,
        pods=unscheduled,
        running=running,
    )
    registration = RegistrationKeeper(
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
        pace=Pace(clock),
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
        """Without an object, every replica learns from its own watch what the status would say (TN-031)."""
        await informer.synced()
        informer.add_handler(lambda _: facts.take_architectures(controller.census.architectures))
        await asyncio.get_running_loop().create_future()

    facts.on_change(facts_changed)
    safety.on_change(webhook_changed)
    duty = Duty(
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
    report = NodeReport(
        facts=facts,
        nodes=controller,
        rollout=rollout,
        registration=registration,
        admission=lambda: safety.admission,
    )
    return NodeDuty(duty, controller.census, report)
