"""The configuration of taints, which every role watches that adds tolerations."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polyarch.kube.manager import Process
from polyarch.run.parts.images import open_images
from polyarch.run.settings import TaintRoleSettings
from polyarch.taints.facts import TaintFacts


@asynccontextmanager
async def open_taint_facts(process: Process) -> AsyncIterator[TaintFacts]:
    """Open the facts; watches start when the process runs."""
    images = await process.share(open_images)
    facts = TaintFacts(
        process.informers,
        namespace=process.settings.namespace,
        clock=process.clock,
        given=process.settings_of(TaintRoleSettings).configuration,
    )
    images.short_names_searched.append(facts.search_short_names)
    yield facts
