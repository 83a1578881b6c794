"""What taints add to the pods of placement (TN-003): it is loaded when a cluster has a configuration of taints.

Most clusters with placement have none, and should not pay for it: rules, patches and metrics of taints are 1 MiB of
modules in each process (PL-810). They are loaded when the configuration appears, not by the first pod that needs them.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation, PodMutator
from polyarch.kube.admission import AdmissionRequest
from polyarch.kube.manager import Process
from polyarch.objects import Pod
from polyarch.oci.answer import Inspection
from polyarch.run.parts.images import open_admission_lookups, open_images
from polyarch.run.parts.taint_facts import open_taint_facts


class LoadedAdditions:
    """Nothing, until :meth:`want` has loaded what adds."""

    def __init__(self, load: Callable[[], PodMutator]) -> None:
        self._load = load
        self._loaded: PodMutator | None = None

    def want(self) -> None:
        """Loads it, once."""
        if self._loaded is None:
            self._loaded = self._load()

    async def at_admission(
        self,
        request: AdmissionRequest[Pod],
        answers: Mapping[str, Inspection],
        alongside: MutationContext,
        *,
        until: float,
    ) -> PodMutation:
        if self._loaded is None:
            return NO_MUTATION
        return await self._loaded.at_admission(request, answers, alongside, until=until)

    def at_release(self, pod: Pod, answers: Mapping[str, Inspection], alongside: MutationContext) -> PodMutation:
        return self._loaded.at_release(pod, answers, alongside) if self._loaded is not None else NO_MUTATION


@asynccontextmanager
async def open_additions(process: Process) -> AsyncIterator[LoadedAdditions]:
    """Open what placement adds for taints; the facts have to be run."""
    facts = await process.share(open_taint_facts)
    lookups = await process.share(open_admission_lookups)
    images = await process.share(open_images)

    def load() -> PodMutator:
        from polyarch.taints.metrics import TaintMetrics
        from polyarch.taints.webhook import PodAdmission

        return PodAdmission(
            facts=facts,
            lookups=lookups,
            clock=process.clock,
            metrics=TaintMetrics(process.metrics),
            failed=images.metrics.internal_errors.inc,
        )

    additions = LoadedAdditions(load)

    def changed(namespace: str | None) -> None:
        if facts.settings is not None:
            additions.want()

    facts.on_change(changed)
    yield additions
