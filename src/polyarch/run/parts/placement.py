"""Parts that webhook and controller share: cluster facts, images and metrics.

Both read the same cluster and ask the same registries; roles in one process share one instance of each part. What
taints add to a pod comes in here, too: neither feature imports the other one.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from polyarch.images.pod_mutation import PodMutator
from polyarch.kube.manager import Caches, Process
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.metrics import PlacementMetrics
from polyarch.placement.shared_readings import SharedReadings
from polyarch.run.logs import Verbosity
from polyarch.run.parts.additions import open_additions
from polyarch.run.parts.images import ImageParts, open_images
from polyarch.run.parts.record_key import RecordKey
from polyarch.run.parts.taint_facts import open_taint_facts


class Parts:
    """The shared parts of the placement roles in one process."""

    def __init__(
        self,
        process: Process,
        facts: ClusterFacts,
        images: ImageParts,
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
            RecordKey(process.settings.cert_dir, facts.take, process.clock),
            self.shared_readings,
            *images.caches,
            *caches,
        ]
        """To be run by each role that uses these parts."""
        images.global_secret_changed.append(self.shared_readings.global_secret_changed)
        images.short_names_searched.append(facts.search_short_names)
        facts.on_change(self._take_verbosity)

    def _take_verbosity(self, namespace: str | None) -> None:
        cppc = self.facts.cppc
        if namespace is None and cppc is not None:
            self.process.settings_of(Verbosity).set(cppc.spec.log_verbosity)


@asynccontextmanager
async def open_parts(process: Process) -> AsyncIterator[Parts]:
    """Open the parts; watches start when the process runs."""
    images = await process.share(open_images)
    facts = ClusterFacts(process.informers, operator_namespace=process.settings.namespace, clock=process.clock)
    taints = await process.share(open_taint_facts)
    yield Parts(process, facts, images, additions=await process.share(open_additions), caches=(taints,))
