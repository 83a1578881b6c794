"""Exporters that do not show a pod which runs: its cells stay reserved, and people hear of it (NS-107)."""

from collections.abc import Callable, Sequence
from typing import Final

from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.resources import NODES
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.scheduling.ledger.ledger import Silent

REASON: Final = "ExporterSilent"


class Silence:
    """Call :meth:`look` now and then; one Event for each silence of a node."""

    def __init__(
        self, silent: Callable[[float], Sequence[Silent]], *, recorder: Recorder, metrics: ExtenderMetrics
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
