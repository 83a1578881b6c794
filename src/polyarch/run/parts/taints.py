"""Parts of the role ``taints``: facts, images, metrics and the admission of pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polyarch.kube.manager import Caches, Process
from polyarch.run.parts.images import ImageParts, open_admission_lookups, open_images
from polyarch.run.parts.taint_facts import open_taint_facts
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.webhook import PodAdmission


class TaintParts:
    """What the duties of the role share."""

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
    facts = await process.share(open_taint_facts)
    yield TaintParts(process, facts, await process.share(open_images))


@asynccontextmanager
async def open_pod_admission(process: Process) -> AsyncIterator[PodAdmission]:
    """Open the admission of pods that placement does not see."""
    parts = await process.share(open_taints)
    yield PodAdmission(
        facts=parts.facts,
        lookups=await process.share(open_admission_lookups),
        clock=process.clock,
        metrics=parts.metrics,
        failed=parts.images.metrics.internal_errors.inc,
    )
