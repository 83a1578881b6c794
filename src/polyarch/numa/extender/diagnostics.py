"""What people should hear of nodes whose exporter does not show a pod that runs; its zones stay reserved meanwhile.

:class:`StalenessCheck` posts an Event for each silence of a node; :class:`ResyncDebugFiles` writes a file per node
whose topology no set of pods explains, as the scheduler plugin does for ``cacheResyncDebug``.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.resources import NODES
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.reservations import StaleExporter

REASON: Final = "ExporterSilent"


class StalenessCheck:
    """Call :meth:`look` now and then; one Event for each silence of a node."""

    def __init__(
        self, silent: Callable[[float], Sequence[StaleExporter]], *, recorder: Recorder, metrics: ExtenderMetrics
    ) -> None:
        self._silent = silent
        self._recorder = recorder
        self._metrics = metrics
        self._told: frozenset[str] = frozenset()

    def look(self, now: float) -> None:
        found = {each.node: each.seconds for each in self._silent(now)}
        self._metrics.unsettled(found)
        for node in sorted(found.keys() - self._told):
            self._recorder.event(
                Regarding(NODES.api_version, NODES.kind, "", node),
                type="Warning",
                reason=REASON,
                note=f"the NodeResourceTopology has not shown a pod for {found[node]:.0f} s after its admission: "
                "see whether the exporter of this node runs; the pod's cells stay reserved meanwhile",
                action="Reserve",
            )
        self._told = frozenset(found)


# -- files -------------------------------------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

WAITING: Final = 64
"""Files that may wait to be written; beyond it the oldest are not."""


class ResyncDebugFiles:
    """Writes in the background: a slow disk delays no answer."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._news = asyncio.Event()
        self._problem = ""

    def write(self, node: str, document: dict[str, Any]) -> None:
        """The file of this node says so soon."""
        self._waiting.pop(node, None)
        self._waiting[node] = document
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._news.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                node = next(iter(self._waiting))
                document = self._waiting.pop(node)
                await asyncio.to_thread(self._replace, node, document)

    def _replace(self, node: str, document: dict[str, Any]) -> None:
        """As a whole, so that no reader sees half of it. That it cannot be written is logged once per cause."""
        path = self._directory / f"{node}.json"
        beside = path.with_name(f".{path.name}.new")
        try:
            beside.write_bytes(msgspec.json.encode(document))
            beside.replace(path)
        except OSError as error:
            if str(error) != self._problem:
                log.warning("dump cannot be written", path=str(path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
