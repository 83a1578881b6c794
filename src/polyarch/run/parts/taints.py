"""Parts that the roles share which add tolerations: images and metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polyarch.kube.process.components import Caches
from polyarch.kube.process.roles import Process
from polyarch.run.parts.images import ImageParts, open_images
from polyarch.taints.metrics import TaintMetrics


class TaintParts:
    """The shared parts of taints in one process."""

    def __init__(self, process: Process, images: ImageParts) -> None:
        self.process = process
        self.images = images
        self.metrics = TaintMetrics(process.metrics)
        self.caches: list[Caches] = [*images.caches]
        """To be run by each role that uses these parts."""


@asynccontextmanager
async def open_taints(process: Process) -> AsyncIterator[TaintParts]:
    """Open the parts; watches start when the process runs."""
    yield TaintParts(process, await process.share(open_images))
