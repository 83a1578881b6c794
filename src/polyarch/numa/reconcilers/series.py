"""Metrics of the controllers of NUMA (NO-095). How long passes take and how they end every controller tells itself."""

from collections.abc import Iterable, Mapping

from polyarch.kube.metrics import Metrics
from polyarch.objects import Condition

STATES = ("desired", "ready")


class NumaSeries:
    """All of them."""

    def __init__(self, metrics: Metrics) -> None:
        self._conditions = metrics.gauge(
            "polyarch_numa_operator_condition",
            "Conditions of the custom resources of NUMA: 1 if True, 0 if False, -1 if Unknown",
            ("kind", "type"),
        )
        self._nodes = metrics.gauge(
            "polyarch_numa_operator_group_nodes",
            "Nodes of each NUMA group, and those of them whose exporter is ready",
            ("group", "state"),
        )
        self._groups: frozenset[str] = frozenset()

    def conditions(self, kind: str, several: Iterable[Condition]) -> None:
        """Those of one custom resource."""
        for each in several:
            self._conditions.labels(kind, each.type).set({"True": 1, "False": 0}.get(each.status, -1))

    def nodes(self, groups: Mapping[str, tuple[int, int]]) -> None:
        """By group: how many there should be, and how many are ready. A group that is not among them is no more."""
        for gone in self._groups - groups.keys():
            for state in STATES:
                self._nodes.remove(gone, state)
        for group, numbers in groups.items():
            for state, number in zip(STATES, numbers, strict=True):
                self._nodes.labels(group, state).set(number)
        self._groups = frozenset(groups)
