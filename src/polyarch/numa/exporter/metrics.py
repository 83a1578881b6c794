"""The metrics of an exporter (NE-125, NE-126).

Those that begin with ``rte_`` keep the names of the exporter before us, since dashboards and alerts use them. Children
are looked up when a value changes, not with every scan; series of zones and resources that vanish disappear.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import Gauge

from polyarch.kube.metrics import Metrics
from polyarch.numa.api.attributes import zone_name
from polyarch.numa.decide.zones import Zones
from polyarch.numa.exporter.cluster.topology_write import Operation
from polyarch.numa.host.podresources.client import Function

SCAN: Final = "podresources_scan"
UPDATE: Final = "node_resource_object_update"

Series = tuple[str, str]
"""Zone and resource."""


class ExporterMetrics:
    """Of one node."""

    def __init__(self, metrics: Metrics, node: str) -> None:
        self._node = node
        self._call_failures = metrics.counter(
            "rte_podresource_api_call_failures_total", "Calls of the kubelet that failed", ("node", "function_name")
        )
        self._writes = metrics.counter(
            "rte_noderesourcetopology_writes_total",
            "Writes of the NodeResourceTopology",
            ("node", "operation", "trigger"),
        )
        self._delay = metrics.gauge(
            "rte_operation_delay_milliseconds",
            "How long the last scan took, and how long its result took to be written",
            ("node", "operation_name", "trigger"),
        )
        self._wakeup = metrics.gauge(
            "rte_wakeup_delay_milliseconds", "From the event to the scan that it started", ("node", "trigger")
        )
        self._patch_failures = metrics.counter(
            "rte_noderesourcetopology_patch_failures_total", "Patches that failed", ("node", "trigger")
        )
        self._size_ratio = metrics.gauge(
            "rte_noderesourcetopology_patch_size_ratio", "Size of the last patch by that of the whole object", ("node",)
        ).labels(node)
        own = ("node", "zone", "resource")
        self._capacity = _Table(metrics.gauge("polyarch_numa_zone_capacity", "What the zone has", own), node)
        self._allocatable = _Table(
            metrics.gauge("polyarch_numa_zone_allocatable", "What pods may get of the zone", own), node
        )
        self._available = _Table(
            metrics.gauge("polyarch_numa_zone_available", "What no container has exclusively", own), node
        )
        self._hidden = _Table(
            metrics.gauge(
                "polyarch_numa_hidden_usage",
                "Usage that the kubelet keeps for pods but does not list",
                ("zone", "resource"),
            )
        )
        self._scan_seconds = metrics.histogram("polyarch_numa_scan_seconds", "How long scans take")
        self._scans = metrics.counter("polyarch_numa_scans_total", "Scans", ("trigger", "result"))
        self._skipped = metrics.counter(
            "polyarch_numa_publish_skipped_total", "Scans whose result the API server had already"
        )
        self._last_publish = metrics.gauge(
            "polyarch_numa_last_publish_timestamp_seconds",
            "When the API server was last known to have the result of a scan",
        )
        self._pods = metrics.gauge("polyarch_numa_pods", "Pods of the last scan", ("kind",))
        self._facts_errors = metrics.counter(
            "polyarch_numa_facts_errors_total", "Files, and parts of answers, that could not be used", ("file",)
        )

    # -- of calls and files -------------------------------------------------------------------------------------------

    def call_failed(self, function: Function) -> None:
        self._call_failures.labels(self._node, function).inc()

    def pods_unnamed(self, count: int) -> None:
        self.fact_failed("pods_unnamed", count)

    def fact_failed(self, file: str, count: int = 1) -> None:
        self._facts_errors.labels(file).inc(count)

    # -- of scans -----------------------------------------------------------------------------------------------------

    def woken(self, trigger: str, *, seconds: float) -> None:
        self._wakeup.labels(self._node, trigger).set(seconds * 1000.0)

    def scanned(self, trigger: str, *, seconds: float, success: bool) -> None:
        self._scans.labels(trigger, "success" if success else "failure").inc()
        self._scan_seconds.observe(seconds)
        if success:
            self._delay.labels(self._node, SCAN, trigger).set(seconds * 1000.0)

    def found(self, zones: Zones) -> None:
        """The zones and pods of the last scan."""
        amounts = {(zone_name(zone.cell.id), each.resource): each for zone in zones.zones for each in zone.resources}
        self._capacity.show({series: float(each.capacity) for series, each in amounts.items()})
        self._allocatable.show({series: float(each.allocatable) for series, each in amounts.items()})
        self._available.show({series: float(each.available) for series, each in amounts.items()})
        self._hidden.show({series: float(each.hidden) for series, each in amounts.items() if each.hidden})
        counts = zones.counts
        for kind, count in (("listed", counts.listed), ("exclusive", counts.exclusive), ("excluded", counts.excluded)):
            self._pods.labels(kind).set(count)

    # -- of publishing ------------------------------------------------------------------------------------------------

    def written(self, operation: Operation, trigger: str, *, seconds: float, size_ratio: float) -> None:
        self._writes.labels(self._node, operation, trigger).inc()
        self._delay.labels(self._node, UPDATE, trigger).set(seconds * 1000.0)
        if operation == "patch":
            self._size_ratio.set(size_ratio)

    def patch_failed(self, trigger: str) -> None:
        self._patch_failures.labels(self._node, trigger).inc()

    def skipped(self) -> None:
        self._skipped.inc()

    def published(self) -> None:
        self._last_publish.set_to_current_time()


class _Table:
    """A gauge with a series per zone and resource."""

    def __init__(self, gauge: Gauge, *labels: str) -> None:
        self._gauge = gauge
        self._labels = labels
        self._shown: dict[Series, float] = {}

    def show(self, values: Mapping[Series, float]) -> None:
        for series in self._shown.keys() - values.keys():
            self._gauge.remove(*self._labels, *series)
        for series, value in values.items():
            if self._shown.get(series) != value:
                self._gauge.labels(*self._labels, *series).set(value)
        self._shown = dict(values)
