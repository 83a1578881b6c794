"""The writes of ``bootstrap`` where no controller makes them: templates, registration policy, pods (TN-061, TN-063).

Each method writes what a fresh judgement lacks, decided again for an object that has changed meanwhile. So a run that
is stopped anywhere is continued by the next one, and two runs at once do no harm. ``tainting`` writes the nodes.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.patches import add, pointer
from polyarch.kube.resources import DAEMONSETS, PODS, Ref
from polyarch.objects import DaemonSet, Key, Pod
from polyarch.oci.concurrent import map_concurrently
from polyarch.taints.decide.decision import PodDecision
from polyarch.taints.documents.registration_policy import (
    GROUP,
    bindings,
    newest_served,
    policies,
    registration_policy,
    released_by,
)
from polyarch.taints.names import REGISTRATION_POLICY, ROLLOUT_CONFIRMED_ANNOTATION
from polyarch.taints.plan.inventory import Template
from polyarch.taints.plan.judgement import Judge, Judgement
from polyarch.taints.plan.rollout_order import rollout_rank
from polyarch.taints.result.pod_patch import guarded
from polyarch.taints.result.template_patch import stored_template_patch
from polyarch.taints.steps.writing import NOTHING, Failure, Outcome, Proposal, Writer

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at a rollout."""


class Direct:
    """The steps of one judgement."""

    def __init__(self, writer: Writer, judge: Judge, judgement: Judgement) -> None:
        self._writer = writer
        self._judge = judge
        self._judgement = judgement
        self._settings = judge.settings

    # -- DaemonSets ---------------------------------------------------------------------------------------------------

    async def daemon_sets(self, rolling: Iterable[Key] = (), *, waits: bool = True) -> Outcome:
        """Adds tolerations to templates, and waits for the rollouts, at most ``maxConcurrentRollouts`` at a time.

        ``rolling``: those that an earlier run has written and that are not rolled out; not ``waits``: they are left to
        themselves. A rollout that takes longer than ``rolloutTimeout`` is a failure, and no other is begun after it.
        """
        if self._settings.templates != "reconcile":
            return Outcome()
        templates = [each for each in self._judgement.templates if each.template.is_daemon_set and each.decision.added]
        rollouts: dict[Key, Template | None] = dict.fromkeys(rolling if waits else ())
        rollouts.update({each.template.key: each.template for each in templates})
        stopped = False

        async def one(key: Key) -> Outcome:
            nonlocal stopped
            if stopped:
                return Outcome()
            outcome = await self._rolled_out(key, rollouts[key])
            stopped = stopped or bool(outcome.failed)
            return outcome

        ordered = sorted(rollouts, key=rollout_rank)
        return Outcome.of(await map_concurrently(one, ordered, at_once=self._settings.max_concurrent_rollouts))

    async def _rolled_out(self, key: Key, template: Template | None) -> Outcome:
        written = Outcome()
        if template is not None and template.workload is not None:
            written = await self._writer.patch(
                DAEMONSETS, template.workload, lambda found: self._proposal(template, found)
            )
        if written.failed or self._writer.dry_run:
            return written
        problem = await self._waited(key)
        return Outcome.of((written, Outcome(failed=(Failure(Ref(DAEMONSETS, key), problem),)))) if problem else written

    async def confirm(self, rolling: Iterable[Key]) -> Outcome:
        """Tells the controller not to wait for these rollouts any longer (TN-051)."""
        wanted = set(rolling)
        found = [each for each in self._judge.inventory.daemon_sets if each.metadata.key in wanted]
        return await self._writer.patch_all(DAEMONSETS, found, _confirmed)

    async def _waited(self, key: Key) -> str:
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
            await clock.sleep(LOOK_EVERY)

    def _proposal(self, template: Template, found: DaemonSet) -> Proposal:
        present = msgspec.structs.replace(template, workload=found)
        _, decision = self._judge.template(present)
        return Proposal(stored_template_patch(found, decision, self._settings), _tolerates(decision))

    # -- admission ----------------------------------------------------------------------------------------------------

    async def admission(self, more: Iterable[str] = ()) -> Outcome:
        """Has the API server taint nodes when they register, if it can: those of architectures for which some node
        carries the taint, and of ``more`` (TN-027). An architecture that is in the policy stays there."""
        if self._settings.at_registration == "none":
            return Outcome()
        version = newest_served(await self._writer.api.discover(GROUP))
        if version is None:
            return Outcome()
        carried = {each.decision.architecture for each in self._judgement.nodes if each.decision.carried}
        documents = registration_policy(
            self._settings, carried.union(more, await self._released(version)), version=version
        )
        kinds = (policies(version), bindings(version))
        return Outcome.of(
            [await self._writer.apply(kind, document) for kind, document in zip(kinds, documents, strict=True)]
        )

    async def _released(self, version: str) -> frozenset[str]:
        try:
            live = await self._writer.api.get(policies(version), REGISTRATION_POLICY, type=dict)
        except NotFound:
            return frozenset()
        return released_by(live)

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def pods(self) -> Outcome:
        """Adds tolerations to unscheduled pods, and to bound ones if the configuration says so (TN-043, TN-044)."""
        judged = (*self._judgement.unscheduled, *self._judgement.bound)
        lacking = [each.pod for each in judged if each.operations]
        return await self._writer.patch_all(PODS, lacking, self._pod_proposal)

    def _pod_proposal(self, pod: Pod) -> Proposal:
        judged = self._judge.pod(pod)
        return Proposal(judged.operations, _tolerates(judged.decision))


def _confirmed(daemon_set: DaemonSet) -> Proposal:
    metadata = daemon_set.metadata
    present, generation = metadata.annotations or {}, str(metadata.generation)
    if present.get(ROLLOUT_CONFIRMED_ANNOTATION) == generation or daemon_set.is_rolled_out:
        return NOTHING
    change = (
        add("/metadata/annotations", {ROLLOUT_CONFIRMED_ANNOTATION: generation})
        if metadata.annotations is None
        else add(pointer("metadata", "annotations", ROLLOUT_CONFIRMED_ANNOTATION), generation)
    )
    return Proposal(guarded(metadata, (change,)), "is not waited for any longer")


def _tolerates(decision: PodDecision) -> str:
    return f"tolerates {', '.join(decision.added)}" if decision.added else "loses its gate"
