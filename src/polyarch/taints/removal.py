"""Takes taints, gates and what adds them out of a cluster, in the order in which nothing comes back.

``polyarch taint clean`` does this with the controller dead and the kind ArchitectureTaints gone; the operator's
finalizer does the same. Every step looks for what is there, so a second run writes nothing, and one object that cannot
be written holds up no other.
"""

from collections.abc import Callable
from typing import Final

from polyarch.kube.errors import Conflict, KubernetesError, NotFound, TooManyRequests
from polyarch.kube.resources import DAEMONSETS, MUTATING_WEBHOOKS, NODES, PODS, ObjectRef
from polyarch.objects import DaemonSet, Node, Pod
from polyarch.oci.concurrency import map_concurrently
from polyarch.taints import names
from polyarch.taints.inventory import foreign_taints, is_evictable, is_marked, owned_taints
from polyarch.taints.node_rules import decide_node
from polyarch.taints.patch import bare_release, node_patch, restoring_patch
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import NOTHING, AppliedChange, FailedChange, ProposedPatch, StepResult, Writer

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
POLICY_PLURALS: Final = ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies")
"""In the order of deletion."""
WITHOUT_NODE: Final = "spec.nodeName="
EVICTION_TIMEOUT: Final = 300.0
"""Seconds for which an eviction is tried again that a PodDisruptionBudget does not allow."""
EVICTION_RETRY_INTERVAL: Final = 5.0
"""Seconds between two such attempts, unless the API server says how many."""
EVICTIONS: Final = 4
"""At the same time."""


class TaintRemover:
    """The steps of a removal. ``settings`` say which taints are ours: key and ownership."""

    def __init__(self, writer: Writer, settings: TaintSettings) -> None:
        self._writer = writer
        self._settings = settings

    async def registration(self) -> StepResult:
        """Removes what adds taints and tolerations to new nodes, pods and templates: policy, binding, webhook."""
        served = await self._writer.api.discover(ADMISSION_GROUP)
        found = [next((each for each in served if each.plural == plural), None) for plural in POLICY_PLURALS]
        policies = [await self._writer.delete(each, names.REGISTRATION_POLICY) for each in found if each is not None]
        return StepResult.of((*policies, await self._writer.delete(MUTATING_WEBHOOKS, names.ROLE)))

    async def taints(self) -> StepResult:
        """Removes our taints, and the record of them, from all nodes."""
        nodes = (await self._writer.api.list(NODES, type=Node)).items
        return await self._writer.patch_all(NODES, nodes, self._without_taints)

    async def foreign(self) -> tuple[str, ...]:
        """Nodes with taints of the same key and an architecture that stay, because polyarch has no record of them."""
        nodes = (await self._writer.api.list(NODES, type=Node)).items
        kept = {node.metadata.name: foreign_taints(node, self._settings) for node in nodes}
        return tuple(f"{name} ({', '.join(map(str, taints))})" for name, taints in sorted(kept.items()) if taints)

    async def gates(self) -> StepResult:
        """Lifts our gates from all pods; their labels go, too."""
        return await self._writer.patch_all(PODS, await self._marked(), _without_gate)

    async def templates(self) -> StepResult:
        """Removes the recorded tolerations from DaemonSets, which then replace their pods."""
        daemon_sets = (await self._writer.api.list(DAEMONSETS, type=DaemonSet)).items
        return await self._writer.patch_all(DAEMONSETS, daemon_sets, _without_tolerations)

    async def left(self) -> tuple[ObjectRef, ...]:
        """The nodes and pods on which something of ours is still there, by a fresh list."""
        nodes = (await self._writer.api.list(NODES, type=Node)).items
        pods = await self._marked()
        owned = [ObjectRef(NODES, each.metadata.key) for each in nodes if self._without_taints(each).operations]
        return (*owned, *(ObjectRef(PODS, each.metadata.key) for each in pods))

    # -- evictions ----------------------------------------------------------------------------------------------------

    async def evictable(self, *, bare: bool = False) -> list[Pod]:
        """The pods that carry our tolerations: those that are replaced when evicted, or the ``bare`` ones."""
        pods = (await self._writer.api.list(PODS, type=Pod)).items
        return [pod for pod in pods if is_evictable(pod, bare=bare)]

    async def evict(self, pods: list[Pod], *, waiting: Callable[[Pod], None] = lambda _: None) -> StepResult:
        """Evicts these pods; ``waiting`` is told of one that its PodDisruptionBudget keeps for now."""

        async def one(pod: Pod) -> StepResult:
            return await self._evict(pod, waiting)

        return StepResult.of(await map_concurrently(one, pods, at_once=EVICTIONS))

    async def _evict(self, pod: Pod, waiting: Callable[[Pod], None]) -> StepResult:
        writer, metadata = self._writer, pod.metadata
        ref = ObjectRef(PODS, metadata.key)
        until = writer.clock.monotonic() + EVICTION_TIMEOUT
        while True:
            try:
                await writer.api.evict(metadata.namespace, metadata.name, uid=metadata.uid, dry_run=writer.dry_run)
                return writer.done(AppliedChange(ref, "is evicted"))
            except (NotFound, Conflict):  # it is gone, or another pod has its name
                return StepResult()
            except TooManyRequests as error:
                if writer.dry_run:
                    return writer.done(AppliedChange(ref, "is evicted as soon as its PodDisruptionBudget allows it"))
                wait = error.retry_after or EVICTION_RETRY_INTERVAL
                if writer.clock.monotonic() + wait > until:
                    return StepResult(failed=(FailedChange(ref, f"not evicted: {error.message or error}"),))
                waiting(pod)
                await writer.clock.sleep(wait)
            except KubernetesError as error:
                return StepResult(failed=(FailedChange(ref, str(error)),))

    # -- proposals ----------------------------------------------------------------------------------------------------

    async def _marked(self) -> list[Pod]:
        """The pods with our gate or our label: by label wherever they are, by gate among those that wait for a node."""
        labelled = await self._writer.api.list(PODS, type=Pod, label_selector=names.GATED_LABEL)
        waiting = await self._writer.api.list(PODS, type=Pod, field_selector=WITHOUT_NODE)
        found = {pod.metadata.uid: pod for pod in (*waiting.items, *labelled.items) if is_marked(pod)}
        return [pod for pod in found.values() if pod.metadata.deletion_timestamp is None]

    def _without_taints(self, node: Node) -> ProposedPatch:
        decision = decide_node(node, self._settings, leaving=True)
        lost = ", ".join(map(str, owned_taints(node, self._settings)))
        return ProposedPatch(
            node_patch(node, decision), f"loses {lost}" if lost else f"loses {names.MANAGED_TAINTS_ANNOTATION}"
        )


def _without_gate(pod: Pod) -> ProposedPatch:
    return ProposedPatch(bare_release(pod), f"loses {names.GATE}") if is_marked(pod) else NOTHING


def _without_tolerations(daemon_set: DaemonSet) -> ProposedPatch:
    return ProposedPatch(restoring_patch(daemon_set), "loses the tolerations that were added to its template")
