"""Metrics of the taint roles.

Every family is exported from the first scrape on, so that dashboards show zero instead of a gap. Label children are
bound once, so that the admission path looks nothing up by name.
"""

from collections.abc import Mapping
from typing import Final, Literal

from prometheus_client import Counter

from polyarch.kube.controller import PatchStatus
from polyarch.kube.metrics import Metrics, NamespaceGauge

Kind = Literal["node", "pod", "daemonset", "policy"]
"""What was written: ``policy`` is the one for nodes at registration."""
KINDS: Final[tuple[Kind, ...]] = ("node", "pod", "daemonset", "policy")
Result = Literal["done", "changed", "refused", "unanswered"]
"""How a write ended. ``changed``: the object had changed since it was read, and is decided again."""
RESULTS: Final[tuple[Result, ...]] = ("done", "changed", "refused", "unanswered")
COUNTED: Final[Mapping[PatchStatus, Result]] = {
    PatchStatus.DONE: "done",
    PatchStatus.MOVED_ON: "changed",
    PatchStatus.REFUSED: "refused",
    PatchStatus.UNANSWERED: "unanswered",
    PatchStatus.UNREACHED: "unanswered",
}

GATE_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
REACTION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0, 300.0)


class TaintMetrics:
    """The metric families of the taint roles; each exports all of them, also those that only another one updates."""

    def __init__(self, metrics: Metrics) -> None:
        histogram, counter, gauge = metrics.histogram, metrics.counter, metrics.gauge
        self._nodes = gauge(
            "polyarch_taints_nodes", "Nodes by architecture and state of their taint", ("architecture", "state")
        )
        self._shown: set[tuple[str, str]] = set()
        writes = counter("polyarch_taints_writes_total", "Writes to the cluster", ("kind", "result"))
        self._writes = {(kind, result): writes.labels(kind, result) for kind in KINDS for result in RESULTS}
        self._pods = counter("polyarch_taints_pods_total", "Pods by what was decided for them", ("decision",))
        self._decisions: dict[str, Counter] = {}
        self.gated_pods = gauge(
            "polyarch_taints_gated_pods", "Pods that carry polyarch's gate now; only the leader counts them"
        )
        self.oldest_gate = NamespaceGauge(
            gauge(
                "polyarch_taints_oldest_gate_seconds",
                "Age of the oldest pod that carries polyarch's gate now; only the leader knows it",
                ("namespace",),
            ),
            rest=max,
        )
        self.degraded = gauge(
            "polyarch_taints_degraded",
            "1 while condition Degraded of the ArchitectureTaints is True; only the leader knows",
        )
        self.gate_seconds = histogram(
            "polyarch_taints_gate_seconds",
            "Time from the creation of a gated pod until its gate was removed",
            buckets=GATE_BUCKETS,
        )
        self.blocked_templates = gauge(
            "polyarch_taints_blocked_templates", "DaemonSets whose templates lack a toleration that cannot be decided"
        )
        self.unknown_images = gauge("polyarch_taints_unknown_images", "Images that pods wait for and nobody knows yet")
        self.node_reaction_seconds = histogram(
            "polyarch_taints_node_reaction_seconds",
            "Time from seeing a new node until its taint was written",
            buckets=REACTION_BUCKETS,
        )

        self.internal_errors = counter(
            "polyarch_internal_errors_total", "Internal errors, each handled as a transient failure of its pod"
        )

    def wrote(self, kind: Kind, result: Result) -> None:
        """Counts one write."""
        self._writes[kind, result].inc()

    def decided(self, decision: str) -> None:
        """Counts a pod; ``decision`` is the reason of its decision, such as ``Images``."""
        bound = self._decisions.get(decision)
        if bound is None:
            bound = self._decisions[decision] = self._pods.labels(decision)
        bound.inc()

    def show_nodes(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Replaces the numbers of nodes, by architecture and state."""
        for gone in self._shown - counts.keys():
            self._nodes.remove(*gone)
        for labels, number in counts.items():
            self._nodes.labels(*labels).set(number)
        self._shown = set(counts)
