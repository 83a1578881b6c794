"""What the placement roles of one process share: cluster facts, images, metrics, the signing key, and the tolerations
that taints adds to pods.

Most clusters with placement have no configuration of taints, and should not pay for it: rules, patches and metrics of
taints are 1 MiB of modules in each process. They are loaded when the configuration appears, not by the first pod that
needs them."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from polyarch.images.pod_mutation import NO_MUTATION, MutationContext, PodMutation, PodMutator
from polyarch.kube.admission import AdmissionRequest
from polyarch.kube.manager import Caches, Process
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import RecordSigner
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.shared_readings import SharedReadings
from polyarch.run.logs import Verbosity
from polyarch.run.record_key import SigningKeyFile
from polyarch.run.services import ImageServices, open_admission_lookups, open_images, open_taint_facts


class PlacementServices:
    """The shared services of the placement roles in one process."""

    def __init__(
        self,
        process: Process,
        facts: ClusterFacts,
        images: ImageServices,
        *,
        additions: PodMutator | None = None,
        caches: Iterable[Caches] = (),
    ) -> None:
        """``additions``: what another feature adds to pods; ``caches``: what that needs."""
        self.process = process
        self.facts = facts
        self.images = images
        self.additions = additions
        self.metrics = PlacementMetrics(process.metrics, images.metrics)
        self.metrics.watch_facts(lambda: facts.left_out)
        self.shared_readings = SharedReadings(
            informers=process.informers,
            client=process.client,
            facts=facts,
            secrets=images.secrets,
            cache=images.registries.cache,
            clock=process.clock,
            namespace=process.settings.namespace,
        )
        self.caches: list[Caches] = [
            facts,
            SigningKeyFile(process.settings.cert_dir, self._take_keys, process.clock),
            self.shared_readings,
            *images.caches,
            *caches,
        ]
        """To be run by each role that uses these services."""
        images.global_secret_changed.append(self.shared_readings.global_secret_changed)
        images.short_names_searched.append(facts.search_short_names)
        facts.on_change(self._take_verbosity)

    def _take_keys(self, signer: RecordSigner) -> None:
        self.facts.take(signer)
        self.process.review_tokens.take(signer.keys)

    def _take_verbosity(self, namespace: str | None) -> None:
        cppc = self.facts.cppc
        if namespace is None and cppc is not None:
            self.process.settings_of(Verbosity).set(cppc.spec.log_verbosity)


@asynccontextmanager
async def open_placement_services(process: Process) -> AsyncIterator[PlacementServices]:
    """Open the services; watches start when the process runs."""
    images = await process.share(open_images)
    facts = ClusterFacts(
        process.informers,
        operator_namespace=process.settings.namespace,
        clock=process.clock,
        client=process.client,
    )
    taints = await process.share(open_taint_facts)
    yield PlacementServices(process, facts, images, additions=await process.share(open_additions), caches=(taints,))


# -- what taints add to the pods of placement


class LazyPodMutator:
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
async def open_additions(process: Process) -> AsyncIterator[LazyPodMutator]:
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

    additions = LazyPodMutator(load)

    def changed(namespace: str | None) -> None:
        if facts.settings is not None:
            additions.want()

    facts.on_change(changed)
    yield additions
