"""The steps of ``polyarch taint bootstrap`` and ``apply``, with a controller that does the work or without one.

:class:`ControllerBootstrap` sets the controller's object and watches its status. Without a controller
:class:`DirectBootstrap` writes templates, the registration policy and pods, and :class:`NodeTainter` the nodes: each
writes what a fresh plan lacks, decided again for an object that has changed meanwhile. So a run that is stopped
anywhere is continued by the next one, and two runs at once do no harm.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.clock import Clock
from polyarch.kube.declared_settings import without_defaults
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, add, pointer, replace, test
from polyarch.kube.resources import DAEMONSETS, NAMESPACES, NODES, PODS, ObjectRef
from polyarch.objects import DaemonSet, Node, ObjectKey, PartialObjectMetadata, Pod
from polyarch.oci.concurrency import map_concurrently
from polyarch.taints.api import (
    ARCHITECTURE_TAINTS,
    DEGRADED,
    NODES_TAINTED,
    READY,
    ArchitectureTaints,
)
from polyarch.taints.daemonset_rollouts import rollout_rank
from polyarch.taints.decision import PodDecision
from polyarch.taints.documents import GROUP, bindings, newest_served, policies, registration_policy, released_by
from polyarch.taints.inventory import Template
from polyarch.taints.names import REGISTRATION_POLICY, ROLLOUT_CONFIRMED_ANNOTATION, SINGLETON
from polyarch.taints.node_rules import (
    SETTLED,
    WINDOW,
    Kind,
    NodeDecision,
    Pending,
    PendingPodMonitor,
    PlatformsOf,
    RolloutPauseReason,
    any_platform,
    decide_node,
    in_order,
    pending_because_of_taints,
)
from polyarch.taints.nodes import NodeRateLimiter
from polyarch.taints.patch import guarded, node_patch, stored_template_patch
from polyarch.taints.plan import ClusterEvaluation, PlanBuilder, held, is_held, node_selector, released
from polyarch.taints.removal import WITHOUT_NODE
from polyarch.taints.settings import TAINT_SETTINGS, TaintSettings
from polyarch.taints.writes import (
    NOTHING,
    AppliedChange,
    FailedChange,
    KubernetesApi,
    ProposedPatch,
    StepResult,
    Tell,
    Writer,
)

# -- by the controller: its object is set, and its status watched ------------------------------------------------------
# The object is created if there is none. ``bootstrap`` creates it with its nodes held back, so that everything else
# gets ready; ``apply`` lets them go. Of an object that is there nothing but the hold is changed, and, to go on in spite
# of blockers, how nodes are rolled out.

POLL_INTERVAL: Final = 1.0
OBJECT: Final = ObjectRef(ARCHITECTURE_TAINTS, ObjectKey("", SINGLETON))


class BootstrapProgress(msgspec.Struct, frozen=True):
    """What the status says now."""

    done: bool = False
    tainted: int = 0
    waiting: int = 0
    waits_for: str = ""
    """What is not done yet, in the controller's words."""
    stopped: str = ""
    """Why the controller stopped tainting; empty: it did not."""


class NotInTime(Exception):  # noqa: N818 - what is the case
    """The controller has not finished; the text is what it waits for."""


class ControllerBootstrap:
    """One object, and the controller that reads it."""

    def __init__(self, api: KubernetesApi, *, clock: Clock, dry_run: bool = False, tell: Tell = lambda _: None) -> None:
        self._api = api
        self._clock = clock
        self._dry_run = dry_run
        self._tell = tell

    async def prepare(self, document: Mapping[str, Any], live: ArchitectureTaints | None) -> None:
        """Has everything made ready and no node tainted; an object that is there stays as it is."""
        if live is None:
            await self._create({**document, "spec": held(document["spec"])}, "is created, nodes held back")

    async def configure(self, document: Mapping[str, Any], live: ArchitectureTaints) -> None:
        """Gives an object that is there another spec."""
        wanted, there = (without_defaults(TAINT_SETTINGS, spec) for spec in (document["spec"], released(live.spec)))
        if wanted == there:
            return
        version = live.metadata.resource_version
        operations = (test("/metadata/resourceVersion", version), replace("/spec", document["spec"]))
        await self._api.patch(ARCHITECTURE_TAINTS, SINGLETON, JsonPatch(operations), dry_run=self._dry_run)
        self._tell(AppliedChange(OBJECT, "gets another spec"))

    async def release(self, document: Mapping[str, Any], live: ArchitectureTaints | None) -> None:
        """Lets nodes be tainted."""
        if live is None:
            await self._create(document, "is created")
        elif is_held(live.spec):
            selector = node_selector(released(live.spec))
            await self._set(_expressions(selector) if selector else {"nodes": {"selector": None}}, "lets nodes go")

    async def roll_out(self, how: str) -> None:
        """Sets ``spec.nodes.rollout``."""
        await self._set({"nodes": {"rollout": how}}, f"has spec.nodes.rollout: {how}")

    async def remove(self) -> None:
        """Sets ``spec.state`` to ``removing``."""
        await self._set({"state": "removing"}, "has spec.state: removing")

    async def found(self) -> ArchitectureTaints | None:
        """The object as it is."""
        try:
            live: ArchitectureTaints = await self._api.get(ARCHITECTURE_TAINTS, SINGLETON, type=ArchitectureTaints)
        except NotFound:
            return None
        return live

    async def wait(
        self,
        progressed: Callable[[ArchitectureTaints], BootstrapProgress],
        *,
        seconds: float,
        seen: Callable[[BootstrapProgress], None] = lambda _: None,
    ) -> BootstrapProgress:
        """Returns when the status says that it is done or stopped; ``seen`` is told whenever it says something new.

        Raises :class:`NotInTime`.
        """
        until = self._clock.monotonic() + seconds
        last = BootstrapProgress(waits_for="the status of the object")
        while True:
            live = await self.found()
            now = progressed(live) if live is not None else BootstrapProgress(waits_for="the object, which is gone")
            if now != last:
                seen(now)
            if now.done or now.stopped:
                return now
            if self._clock.monotonic() >= until:
                raise NotInTime(now.waits_for)
            last = now
            await self._clock.sleep(POLL_INTERVAL)

    async def _create(self, document: Mapping[str, Any], what: str) -> None:
        await self._api.create(ARCHITECTURE_TAINTS, document, dry_run=self._dry_run)
        self._tell(AppliedChange(OBJECT, what))

    async def _set(self, spec: Mapping[str, Any], what: str) -> None:
        await self._api.patch(ARCHITECTURE_TAINTS, SINGLETON, MergePatch({"spec": spec}), dry_run=self._dry_run)
        self._tell(AppliedChange(OBJECT, what))


def ready(live: ArchitectureTaints) -> BootstrapProgress:
    """The webhook is there, and the controller works."""
    return _of(live, (READY,))


def tainted(live: ArchitectureTaints) -> BootstrapProgress:
    """All nodes carry their taints."""
    return _of(live, (READY, NODES_TAINTED))


def observed(live: ArchitectureTaints) -> BootstrapProgress:
    """The controller has seen the object as it is now."""
    return _of(live, ())


def _of(live: ArchitectureTaints, wanted: tuple[str, ...]) -> BootstrapProgress:
    status = live.status
    waiting = sum(each.waiting for each in status.architectures or ())
    nodes = BootstrapProgress(tainted=status.nodes.tainted, waiting=waiting)
    if status.observed_generation < live.metadata.generation:
        return msgspec.structs.replace(nodes, waits_for="the controller, which has not seen the object yet")
    conditions = {each.type: each for each in status.conditions or ()}
    degraded = conditions.get(DEGRADED)
    if degraded is not None and degraded.status == "True" and degraded.reason == RolloutPauseReason.PODS_BECAME_PENDING:
        return msgspec.structs.replace(nodes, stopped=degraded.message)
    for name in wanted:
        condition = conditions.get(name)
        if condition is None or condition.status != "True":
            said = f": {condition.message or condition.reason}" if condition is not None else ""
            return msgspec.structs.replace(nodes, waits_for=f"{name}{said}")
    return msgspec.structs.replace(nodes, done=True)


def _expressions(selector: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of the selector: a list is replaced as a whole, and labels stay."""
    return {"nodes": {"selector": {"matchExpressions": selector.get("matchExpressions")}}}


# -- templates, registration policy and pods, where no controller writes them ------------------------------------------

ROLLOUT_LOOK_EVERY: Final = 2.0
"""Seconds between two looks at a rollout."""


class DirectBootstrap:
    """The steps of one judgement."""

    def __init__(self, writer: Writer, judge: PlanBuilder, judgement: ClusterEvaluation) -> None:
        self._writer = writer
        self._judge = judge
        self._judgement = judgement
        self._settings = judge.settings

    # -- DaemonSets ---------------------------------------------------------------------------------------------------

    async def daemon_sets(self, rolling: Iterable[ObjectKey] = (), *, waits: bool = True) -> StepResult:
        """Adds tolerations to templates, and waits for the rollouts, at most ``maxConcurrentRollouts`` at a time.

        ``rolling``: those that an earlier run has written and that are not rolled out; not ``waits``: they are left to
        themselves. A rollout that takes longer than ``rolloutTimeout`` is a failure, and no other is begun after it.
        """
        if self._settings.templates != "reconcile":
            return StepResult()
        templates = [each for each in self._judgement.templates if each.template.is_daemon_set and each.decision.added]
        rollouts: dict[ObjectKey, Template | None] = dict.fromkeys(rolling if waits else ())
        rollouts.update({each.template.key: each.template for each in templates})
        stopped = False

        async def one(key: ObjectKey) -> StepResult:
            nonlocal stopped
            if stopped:
                return StepResult()
            outcome = await self._rolled_out(key, rollouts[key])
            stopped = stopped or bool(outcome.failed)
            return outcome

        ordered = sorted(rollouts, key=rollout_rank)
        return StepResult.of(await map_concurrently(one, ordered, at_once=self._settings.max_concurrent_rollouts))

    async def _rolled_out(self, key: ObjectKey, template: Template | None) -> StepResult:
        written = StepResult()
        if template is not None and template.workload is not None:
            written = await self._writer.patch(
                DAEMONSETS, template.workload, lambda found: self._proposal(template, found)
            )
        if written.failed or self._writer.dry_run:
            return written
        problem = await self._waited(key)
        return (
            StepResult.of((written, StepResult(failed=(FailedChange(ObjectRef(DAEMONSETS, key), problem),))))
            if problem
            else written
        )

    async def confirm(self, rolling: Iterable[ObjectKey]) -> StepResult:
        """Tells the controller not to wait for these rollouts any longer."""
        wanted = set(rolling)
        found = [each for each in self._judge.inventory.daemon_sets if each.metadata.key in wanted]
        return await self._writer.patch_all(DAEMONSETS, found, _confirmed)

    async def _waited(self, key: ObjectKey) -> str:
        """Returns when the DaemonSet is rolled out; otherwise what is the matter."""
        clock, limit = self._writer.clock, self._settings.rollout_timeout
        until = clock.monotonic() + limit
        while True:
            try:
                found: DaemonSet = await self._writer.api.get(
                    DAEMONSETS, key.name, namespace=key.namespace, type=DaemonSet
                )
            except NotFound:
                return ""
            except KubernetesError as error:
                return str(error)
            if found.is_rolled_out:
                return ""
            if clock.monotonic() >= until:
                return f"not rolled out within {limit:.0f} s; correct what keeps its pods, or go on with --continue"
            await clock.sleep(ROLLOUT_LOOK_EVERY)

    def _proposal(self, template: Template, found: DaemonSet) -> ProposedPatch:
        present = msgspec.structs.replace(template, workload=found)
        _, decision = self._judge.template(present)
        return ProposedPatch(stored_template_patch(found, decision, self._settings), _tolerates(decision))

    # -- admission ----------------------------------------------------------------------------------------------------

    async def admission(self, more: Iterable[str] = ()) -> StepResult:
        """Has the API server taint nodes when they register, if it can: those of architectures for which some node
        carries the taint, and of ``more``. An architecture that is in the policy stays there."""
        if self._settings.at_registration == "none":
            return StepResult()
        version = newest_served(await self._writer.api.discover(GROUP))
        if version is None:
            return StepResult()
        carried = {each.decision.architecture for each in self._judgement.nodes if each.decision.carried}
        documents = registration_policy(
            self._settings, carried.union(more, await self._released(version)), version=version
        )
        kinds = (policies(version), bindings(version))
        return StepResult.of(
            [await self._writer.apply(kind, document) for kind, document in zip(kinds, documents, strict=True)]
        )

    async def _released(self, version: str) -> frozenset[str]:
        try:
            live = await self._writer.api.get(policies(version), REGISTRATION_POLICY, type=dict)
        except NotFound:
            return frozenset()
        return released_by(live)

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def pods(self) -> StepResult:
        """Adds tolerations to unscheduled pods, and to bound ones if the configuration says so."""
        judged = (*self._judgement.unscheduled, *self._judgement.bound)
        lacking = [each.pod for each in judged if each.operations]
        return await self._writer.patch_all(PODS, lacking, self._pod_proposal)

    def _pod_proposal(self, pod: Pod) -> ProposedPatch:
        judged = self._judge.pod(pod)
        return ProposedPatch(judged.operations, _tolerates(judged.decision))


def _confirmed(daemon_set: DaemonSet) -> ProposedPatch:
    metadata = daemon_set.metadata
    present, generation = metadata.annotations or {}, str(metadata.generation)
    if present.get(ROLLOUT_CONFIRMED_ANNOTATION) == generation or daemon_set.is_rolled_out:
        return NOTHING
    change = (
        add("/metadata/annotations", {ROLLOUT_CONFIRMED_ANNOTATION: generation})
        if metadata.annotations is None
        else add(pointer("metadata", "annotations", ROLLOUT_CONFIRMED_ANNOTATION), generation)
    )
    return ProposedPatch(guarded(metadata, (change,)), "is not waited for any longer")


def _tolerates(decision: PodDecision) -> str:
    return f"tolerates {', '.join(decision.added)}" if decision.added else "loses its gate"


# -- nodes, where no controller taints them ----------------------------------------------------------------------------
# The order, the pace and what stops it are those of the controller. Between two batches, and for a while after the last
# node of an architecture, pods are listed: if some appear that only the new taint keeps pending, nothing else is
# tainted.

Register = Callable[[frozenset[str]], Awaitable[StepResult]]

BATCH: Final = 5


class NodeTainterResult(msgspec.Struct, frozen=True):
    """How it ended."""

    outcome: StepResult = StepResult()
    stopped_at: str = ""
    """The architecture whose taint made pods pending; empty: none did."""
    pods: tuple[str, ...] = ()
    """Those pods."""


class NodeTainter:
    """One run over all nodes."""

    def __init__(
        self,
        writer: Writer,
        settings: TaintSettings,
        *,
        batch: int = BATCH,
        watch: float = WINDOW,
        register: Register | None = None,
        started: Callable[[str, int], None] = lambda architecture, nodes: None,
        platforms_of: PlatformsOf = any_platform,
    ) -> None:
        """``watch``: seconds in which pods are looked for after the last node of an architecture. ``register`` has new
        nodes of these architectures tainted when they join. ``started`` is told of an architecture whose nodes are
        tainted now, and how many these are. ``platforms_of``: what the images of a pod run on."""
        self._writer = writer
        self._settings = settings
        self._batch = batch
        self._window = watch
        self._register = register
        self._started = started
        self._platforms_of = platforms_of
        self._pace = NodeRateLimiter(writer.clock, settings.per_minute)
        self._labels: Mapping[str, Mapping[str, str]] = {}

    async def taint(self) -> NodeTainterResult:
        """Taints every node that lacks its taint, and corrects and removes what is ours and wrong."""
        nodes = (await self._writer.api.list(NODES, type=Node)).items
        by_architecture: dict[str, list[Node]] = {}
        losing: list[Node] = []
        for node in nodes:
            decision = self._decision(node)
            if decision.kind is Kind.REMOVE:
                losing.append(node)
            elif decision.kind is not Kind.NONE:
                by_architecture.setdefault(decision.architecture, []).append(node)
        numbers = {each: sum(self._decision(node).architecture == each for node in nodes) for each in by_architecture}
        # Were others tainted first, pods that are to find their nodes among these would have none for a while.
        outcomes = [await self._write(node) for node in losing]
        released = {self._decision(node).architecture for node in nodes if self._decision(node).carried}
        for architecture in in_order(numbers, self._settings.primary):
            found = sorted(by_architecture[architecture], key=lambda node: node.metadata.name)
            self._started(architecture, len(found))
            released.add(architecture)
            if self._register is not None:
                outcomes.append(await self._register(frozenset(released)))
            outcome, pods = await self._architecture(architecture, found)
            outcomes.append(outcome)
            if pods:
                return NodeTainterResult(StepResult.of(outcomes), architecture, pods)
        return NodeTainterResult(StepResult.of(outcomes))

    async def _architecture(self, architecture: str, nodes: list[Node]) -> tuple[StepResult, tuple[str, ...]]:
        """The outcome, and the pods that became pending."""
        clock, outcomes = self._writer.clock, []
        watch = await self._looked(PendingPodMonitor(), architecture)
        for at in range(0, len(nodes), self._batch):
            outcomes += [await self._write(node) for node in nodes[at : at + self._batch]]
            watch = watch.tainted(clock.monotonic())
            watch = await self._settled(await self._looked(watch, architecture), architecture)
            if watch.stopped:
                return StepResult.of(outcomes), watch.names
        until = clock.monotonic() + self._window
        while not self._writer.dry_run and clock.monotonic() < until:
            await clock.sleep(POLL_INTERVAL)
            watch = await self._settled(await self._looked(watch, architecture), architecture)
            if watch.stopped:
                return StepResult.of(outcomes), watch.names
        return StepResult.of(outcomes), ()

    async def _write(self, node: Node) -> StepResult:
        if not self._writer.dry_run:
            await self._writer.clock.sleep(self._pace.rest())
            self._pace.take()
        return await self._writer.patch(NODES, node, self._proposal)

    async def _settled(self, watch: PendingPodMonitor, architecture: str) -> PendingPodMonitor:
        """Looks until the pods that are pending count, or are pending no more."""
        until = self._writer.clock.monotonic() + SETTLED + POLL_INTERVAL
        while watch.since and not watch.stopped and self._writer.clock.monotonic() < until:
            await self._writer.clock.sleep(POLL_INTERVAL)
            watch = await self._looked(watch, architecture)
        return watch

    async def _looked(self, watch: PendingPodMonitor, architecture: str) -> PendingPodMonitor:
        pending = await self._pending()
        return watch.looked(self._writer.clock.monotonic(), pending.get(architecture, {}))

    async def _pending(self) -> Pending:
        """Costs one small list while no pod waits for a node."""
        api = self._writer.api
        pods = (await api.list(PODS, type=Pod, field_selector=WITHOUT_NODE)).items
        if not pods:
            return {}
        nodes = (await api.list(NODES, type=Node)).items
        namespaces = (await api.list(NAMESPACES, type=PartialObjectMetadata)).items
        labels = {each.metadata.name: each.metadata.labels or {} for each in namespaces}
        return pending_because_of_taints(pods, nodes, self._settings, labels.get, self._platforms_of)

    def _decision(self, node: Node) -> NodeDecision:
        return decide_node(node, self._settings)

    def _proposal(self, node: Node) -> ProposedPatch:
        decision = self._decision(node)
        return ProposedPatch(node_patch(node, decision), change_of(node, decision))


def change_of(node: Node, decision: NodeDecision) -> str:
    """What a node gets or loses, and that polyarch has no record of a taint which it changes."""
    present = node.spec.taints or []
    lost = [present[at] for at in decision.removed]
    if decision.replaced is not None:
        lost.append(present[decision.replaced.index])
    parts = [f"gets {decision.desired}"] if decision.desired is not None and not decision.carried else []
    if lost:
        parts.append(f"loses {', '.join(map(str, lost))}")
    foreign = f", although polyarch did not record {', '.join(map(str, decision.adopted))}" if decision.adopted else ""
    return (" and ".join(parts) or "loses the record of former taints") + foreign
