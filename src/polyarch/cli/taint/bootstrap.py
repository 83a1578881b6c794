"""The work of ``polyarch taint bootstrap`` and ``apply``: the seven steps, one after another.

With a controller in the cluster its object is set and its status watched; without one the writes are made from here.
Before each step the cluster is read again, so a run that was stopped is continued by the same command."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.images.pod_images import PodImages
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.options.values import check_seconds
from polyarch.cli.output.messages import Messages, Progress, confirm
from polyarch.cli.taint.configuration import TaintConfiguration, configured, given
from polyarch.cli.taint.options import ConfigurationFlags
from polyarch.cli.taint.output import BootstrapResult, blocker_text, rendered
from polyarch.cli.taint.plan import judge_of, opened
from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.resources import few
from polyarch.placement.names import OPERATOR_LEASE
from polyarch.taints.bootstrap import (
    BootstrapProgress,
    ControllerBootstrap,
    DirectBootstrap,
    NodeTainter,
    NotInTime,
    ready,
    tainted,
)
from polyarch.taints.cluster import is_renewed, read_inventory, read_live
from polyarch.taints.names import LEASE
from polyarch.taints.plan import Blocker, Plan, PlanBuilder, StepState, is_held, plan
from polyarch.taints.writes import AppliedChange, StepResult, Writer

LOOK_EVERY: Final = 5.0
"""Seconds between two looks at a cluster in which a controller works."""


@dataclass(frozen=True, kw_only=True)
class BootstrapRunOptions:
    """How it is done."""

    taints: bool
    """All seven steps; False: the first five."""
    dry_run: bool = False
    batch: int = 5
    watch: float = 60.0
    yes: bool = False
    accept_blocked: bool = False
    adopt: bool = False
    """Taints that polyarch has not recorded, and that its configuration makes its own, may be changed."""
    goes_on: bool = False
    """DaemonSets that roll out slowly are not waited for any longer."""
    timeout: float = 3600.0

    @property
    def command(self) -> str:
        return "taint apply" if self.taints else "taint bootstrap"


def taken_over(made: Plan) -> list[str]:
    """Nodes that would lose, or have replaced, a taint without a record."""
    return [
        f"node {each.node.metadata.name} has {', '.join(map(str, each.decision.adopted))}"
        for each in made.judgement.nodes
        if each.decision.adopted
    ]


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as it is, judged."""

    judge: PlanBuilder
    plan: Plan


def run_steps(
    manner: BootstrapRunOptions,
    flags: ConfigurationFlags,
    cluster: ClusterFlags,
    images: ImageOptions,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code."""
    images.check()
    if manner.batch < 1:
        raise UsageError(f"--batch {manner.batch}: expected 1 or more")
    check_seconds("--watch", manner.watch, may_be_zero=True)
    check_seconds("--deadline", manner.timeout)
    configuration = given(flags)
    confirm(manner.command, yes=manner.yes or manner.dry_run)
    ended = BootstrapResult(dry_run=manner.dry_run)

    async def work(client: Client) -> None:
        found = await configured(client, configuration)
        if found.settings.state != "active":
            raise UsageError(f"{manner.command}: spec.state is {found.settings.state}; set it to active first")
        for note in found.notes:
            messages.note(note)
        async with opened(client, images, messages) as looked:
            await _BootstrapRun(client, found, looked, manner, ended, messages).walk()

    try:
        asyncio.run(on_cluster(manner.command, cluster, work))
    except KeyboardInterrupt:
        messages.note(f"stopped; `polyarch {manner.command}` goes on from where it is")
        raise
    emit(chosen, lambda form, colour: rendered(ended, form, colour=colour))
    if ended.problem:
        raise CouldNotComplete(f"{manner.command}: {ended.problem}")
    if ended.failures:
        raise CouldNotComplete(f"{manner.command}: {few(ended.failures, 3)}")
    return ended.exit_code


class _BootstrapRun:
    def __init__(
        self,
        client: Client,
        found: TaintConfiguration,
        images: PodImages,
        manner: BootstrapRunOptions,
        ended: BootstrapResult,
        messages: Messages,
    ) -> None:
        self._client = client
        self._found = found
        self._images = images
        self._manner = manner
        self._ended = ended
        self._messages = messages
        self._clock = SystemClock()
        self._shown: Progress | None = None
        self._writer = Writer(client, dry_run=manner.dry_run, clock=self._clock, tell=self._tell)

    async def walk(self) -> None:
        """The steps; ``ended`` says what came of them."""
        self._ended.controller = await self._has_controller()
        first = await self._look()
        if (
            self._manner.taints
            and (taken := taken_over(first.plan))
            and not (self._manner.adopt or self._manner.dry_run)
        ):
            self._ended.stopped = (
                f"nothing was done: polyarch did not write these taints and would change them: {few(taken)}; "
                "--adopt takes them for its own, spec.taint.ownership: recorded leaves them"
            )
            self._ended.plan = first.plan
            return
        if self._ended.controller:
            await self._delegated(first)
        else:
            await self._direct(first)
        self._ended.plan = (await self._look()).plan

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _has_controller(self) -> bool:
        """The cluster has the kind, and somebody reads the object, or would make one who does."""
        if not self._found.served:
            return False
        return any([await is_renewed(self._client, name, clock=self._clock) for name in (LEASE, OPERATOR_LEASE)])

    async def _look(self) -> ClusterState:
        inventory = await read_inventory(self._client)
        settings = self._found.settings
        judge = await judge_of(inventory, settings, self._images)
        live = await read_live(
            self._client, inventory, settings, comes=self._ended.controller, platforms_of=judge.platforms
        )
        return ClusterState(judge, plan(judge.judgement(), live))

    # -- without a controller -----------------------------------------------------------------------------------------

    async def _direct(self, first: ClusterState) -> None:
        rolling = first.plan.live.rolling
        steps = self._steps(first)
        with self._step("daemonsets", first):
            if not self._took(await steps.daemon_sets(rolling, waits=not self._manner.goes_on)):
                return
        with self._step("admission", first):
            if not self._took(await steps.admission()):
                return
        second = await self._look()
        with self._step("pods", second):
            if not self._took(await self._steps(second).pods()):
                return
        third = await self._look()
        if not self._manner.taints or not self._goes_on(third.plan.blockers):
            return
        with self._step("taint", third):
            run = NodeTainter(
                self._writer,
                self._found.settings,
                batch=self._manner.batch,
                watch=self._manner.watch,
                register=self._steps(third).admission,
                platforms_of=third.judge.platforms,
                started=lambda architecture, nodes: self._messages.remark(f"6 taint: {nodes} {architecture} nodes"),
            )
            done = await run.taint()
            if self._took(done.outcome) and not done.pods:  # architectures without a node yet, too
                self._took(await self._steps(third).admission(self._found.settings.tainted))
        if done.pods:
            self._ended.stopped = (
                f"tainting stopped at {done.stopped_at}, whose taint keeps pods pending: {few(done.pods)}; give them "
                "the toleration, or images for other nodes, and run the same command again"
            )

    def _steps(self, look: ClusterState) -> DirectBootstrap:
        return DirectBootstrap(self._writer, look.judge, look.plan.judgement)

    # -- with a controller --------------------------------------------------------------------------------------------

    async def _delegated(self, first: ClusterState) -> None:
        delegated = ControllerBootstrap(self._client, clock=self._clock, dry_run=self._manner.dry_run, tell=self._tell)
        if self._found.source == "file" and self._found.live is not None:
            await delegated.configure(self._found.document, self._found.live)
        await delegated.prepare(self._found.document, self._found.live)
        if self._manner.goes_on:
            self._took(await self._steps(first).confirm(first.plan.live.rolling))
        if self._manner.dry_run:
            if self._manner.taints and self._goes_on(first.plan.blockers):
                await self._release(delegated)
            return
        try:
            prepared = await self._prepared(delegated)
            if self._manner.taints and self._goes_on(prepared.plan.blockers):
                await self._tainted(delegated, prepared)
        except NotInTime as error:
            self._ended.problem = f"not done within {self._manner.timeout:.0f} s: the controller waits for {error}"

    async def _prepared(self, delegated: ControllerBootstrap) -> ClusterState:
        """Returns when the controller has done what it can about templates and pods."""
        until = self._clock.monotonic() + self._manner.timeout
        await delegated.wait(ready, seconds=self._manner.timeout, seen=self._said)
        while True:
            look = await self._look()
            waiting = [step for step in look.plan.steps[1:4] if step.state is StepState.TODO]
            if not waiting:
                return look
            if self._clock.monotonic() >= until:
                raise NotInTime("; ".join(f"step {step.id}: {step.writes} to write" for step in waiting))
            self._messages.detail(", ".join(f"{step.id}: {step.writes} to write" for step in waiting))
            await self._clock.sleep(LOOK_EVERY)

    async def _tainted(self, delegated: ControllerBootstrap, prepared: ClusterState) -> None:
        forced = bool(self._ended.accepted) and self._found.settings.rollout == "safe"
        if forced:  # the controller, too, would wait for what is accepted here
            await delegated.roll_out("immediate")
        try:
            await self._release(delegated)
            total = sum(row.to_write for row in prepared.plan.architectures)
            with self._messages.progress("6 taint", total) as shown:
                before = 0

                def seen(now: BootstrapProgress) -> None:
                    nonlocal before
                    for _ in range(max(0, now.tainted - before)):
                        shown.advance()
                    before = max(before, now.tainted)
                    if now.waits_for:
                        wanted = now.tainted + now.waiting
                        counted = f"{now.tainted} of {wanted} nodes; " if wanted else ""
                        shown.remark(f"6 taint: {counted}waits for {now.waits_for}")

                ended = await delegated.wait(tainted, seconds=self._manner.timeout, seen=seen)
        finally:
            if forced:
                await delegated.roll_out("safe")
        self._ended.stopped = ended.stopped

    async def _release(self, delegated: ControllerBootstrap) -> None:
        live = await delegated.found()
        if live is None or is_held(live.spec):
            await delegated.release(self._found.document, live)

    # -- telling ------------------------------------------------------------------------------------------------------

    def _goes_on(self, blockers: Sequence[Blocker]) -> bool:
        """Whether nodes may be tainted; what is in the way is named either way."""
        for each in blockers:
            said = "accepted" if self._manner.accept_blocked else "blocked"
            self._messages.remark(f"5 simulate: {said}: {blocker_text(each)}")
        if self._manner.accept_blocked:
            self._ended.accepted = tuple(blockers)
        return not blockers or self._manner.accept_blocked

    @contextmanager
    def _step(self, id: str, look: ClusterState) -> Iterator[None]:
        """Shows how far a step is."""
        number, step = next((number, step) for number, step in enumerate(look.plan.steps, 1) if step.id == id)
        if step.state is StepState.DONE:
            self._messages.remark(f"{number} {id}: nothing to do")
        with self._messages.progress(f"{number} {id}", max(step.writes, 1)) as self._shown:
            yield
        self._shown = None

    def _tell(self, change: AppliedChange) -> None:
        self._ended.changes.append(change)
        said = f"{change.ref.resource.kind} {change.ref.key} {change.what}"
        if self._manner.dry_run:
            said = f"{said} (dry run)"
        if self._shown is None:
            self._messages.remark(said)
        else:
            self._shown.remark(said)
            self._shown.advance()

    def _said(self, now: BootstrapProgress) -> None:
        if now.waits_for:
            self._messages.remark(f"3 admission: waits for {now.waits_for}")

    def _took(self, outcome: StepResult) -> bool:
        self._ended.failures += outcome.failed
        return not outcome.failed
