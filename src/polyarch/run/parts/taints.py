"""Parts that the roles share which add tolerations: facts, images and metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polyarch.kube.process.components import Caches
from polyarch.kube.process.roles import Process
from polyarch.run.parts.images import ImageParts, open_admission_lookups, open_images
from polyarch.run.settings import TaintRoleSettings
from polyarch.taints.admission.pod_admission import PodAdmission
from polyarch.taints.lookups.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics


class TaintParts:
    """The shared parts of taints in one process."""

    def __init__(self, process: Process, facts: TaintFacts, images: ImageParts) -> None:
        self.process = process
        self.facts = facts
        self.images = images
        self.metrics = TaintMetrics(process.metrics)
        self.caches: list[Caches] = [facts, *images.caches]
        """To be run by each role that uses these parts."""


@asynccontextmanager
async def open_taints(process: Process) -> AsyncIterator[TaintParts]:
    """Open the parts; watches start when the process runs."""
    images = await process.share(open_images)
    facts = TaintFacts(
        process.informers,
        namespace=process.settings.namespace,
        clock=process.clock,
        given=process.settings_of(TaintRoleSettings).configuration,
    )
    images.short_names_searched.append(facts.search_short_names)
    yield TaintParts(process, facts, images)


@asynccontextmanager
async def open_pod_admission(process: Process) -> AsyncIterator[PodAdmission]:
    """Open the admission of pods: for the role ``taints``, and for those of placement, whose pods need no second
    call."""
    parts = await process.share(open_taints)
    yield PodAdmission(
        facts=parts.facts,
        lookups=await process.share(open_admission_lookups),
        clock=process.clock,
        metrics=parts.metrics,
        failed=parts.images.metrics.internal_errors.inc,
    )
