"""The metrics of the extender. No label names a pod or a container."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from polyarch.kube.metrics import Metrics

FILTER_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
NODES: Final = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
STATES: Final = ("held", "bound", "spread")


class ExtenderMetrics:
    """Counters are for the parts to call; gauges ask those who know when they are read."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seconds = metrics.histogram(
            "polyarch_numa_filter_seconds",
            "How long an answer to the scheduler took, with its wait for its turn",
            ("verb",),
            buckets=FILTER_SECONDS,
        )
        self._nodes = metrics.histogram("polyarch_numa_filter_nodes", "Nodes that would do, by question", buckets=NODES)
        self._rejections = metrics.counter(
            "polyarch_numa_rejections_total", "Nodes that would not do, by kind of the reason", ("kind",)
        )
        self._strangers = metrics.counter(
            "polyarch_numa_foreign_questions_total",
            "Questions about pods that name another scheduler: nothing is reserved for them",
        )
        self._releases = metrics.counter(
            "polyarch_numa_reservation_releases_total", "Reservations that ended, by reason", ("reason",)
        )
        self._explanations = metrics.counter(
            "polyarch_numa_explanations_total",
            "Versions of NodeResourceTopologies, by whether a set of pods has their fingerprint",
            ("result",),
        )
        self._mispredictions = metrics.counter(
            "polyarch_numa_mispredictions_total", "Pods that were not in the cells where they were expected", ("node",)
        )
        self._kubelet = metrics.counter(
            "polyarch_numa_kubelet_rejections_total", "Pods that a kubelet refused for their alignment", ("node",)
        )
        self._unsettled = metrics.gauge(
            "polyarch_numa_unsettled_seconds", "For how long an exporter has not shown a pod that runs", ("node",)
        )
        self._silent: frozenset[str] = frozenset()
        self._mispredicted: set[str] = set()
        self._refusing: set[str] = set()
        self._kicks = metrics.counter("polyarch_numa_kicks_total", "Times that rejected pods were woken")
        self._preemptions = metrics.counter(
            "polyarch_numa_preemptions_total", "Attempts to make room for a pod by evicting others", ("result",)
        )

    # -- told by the parts --------------------------------------------------------------------------------------------

    def answered(self, verb: str, *, seconds: float) -> None:
        self._seconds.labels(verb).observe(seconds)

    def filtered(self, fitting: int, rejected: Mapping[str, int]) -> None:
        """One answer to a filter."""
        self._nodes.observe(fitting)
        for kind, nodes in rejected.items():
            self._rejections.labels(kind).inc(nodes)

    def other_scheduler(self) -> None:
        self._strangers.inc()

    def released(self, reason: str) -> None:
        self._releases.labels(reason).inc()

    def explained(self, result: str) -> None:
        self._explanations.labels(result).inc()

    def mispredicted(self, node: str) -> None:
        self._mispredicted.add(node)
        self._mispredictions.labels(node).inc()

    def refused_by_kubelet(self, node: str) -> None:
        self._refusing.add(node)
        self._kubelet.labels(node).inc()

    def node_gone(self, node: str) -> None:
        """Its series end, or the machines of an autoscaler would add up for as long as the process lives."""
        for nodes, counter in ((self._mispredicted, self._mispredictions), (self._refusing, self._kubelet)):
            if node in nodes:
                nodes.discard(node)
                counter.remove(node)

    def unsettled(self, seconds: Mapping[str, float]) -> None:
        """Nodes whose exporters are silent; others have no series."""
        for node in self._silent - seconds.keys():
            self._unsettled.remove(node)
        for node, value in seconds.items():
            self._unsettled.labels(node).set(value)
        self._silent = frozenset(seconds)

    def kicked(self) -> None:
        self._kicks.inc()

    def preempted(self, result: str) -> None:
        self._preemptions.labels(result).inc()

    # -- asked when they are read -------------------------------------------------------------------------------------

    def ask_ready(self, is_ready: Callable[[], bool]) -> None:
        self._metrics.gauge("polyarch_numa_ready", "1 while questions are answered").set_function(
            lambda: float(is_ready())
        )

    def ask_zones_ignored(self, zones: Callable[[], int]) -> None:
        self._metrics.gauge(
            "polyarch_numa_zones_ignored_total", "Zones of NodeResourceTopologies that are no cells"
        ).set_function(lambda: float(zones()))

    def ask_reservations(self, count: Callable[[str], int]) -> None:
        gauge = self._metrics.gauge("polyarch_numa_reservations", "Reservations at present", ("state",))
        for state in STATES:
            gauge.labels(state).set_function(partial(count, state))

    def ask_cache(self, cache: str, size: Callable[[], int], lag: Callable[[], float]) -> None:
        """One watch."""
        self._metrics.gauge("polyarch_numa_cache_objects", "Objects that are known", ("cache",)).labels(
            cache
        ).set_function(lambda: float(size()))
        self._metrics.gauge(
            "polyarch_numa_cache_lag_seconds", "Since when something may have happened that is not known", ("cache",)
        ).labels(cache).set_function(lag)
