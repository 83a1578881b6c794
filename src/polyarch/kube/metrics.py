"""The metrics of one process: its own registry, and what the runtime exports into it.

There is no global registry: two roles in one process (``polyarch run all``), or two tests, share nothing by accident.
Label children are looked up once, when a queue or a route is created, not for every pod. Families are created on first
use and found by name afterwards, so that several queues or routes share a family with different labels.

Names: controller-runtime's ``workqueue_*`` metrics keep their names and meaning, because dashboards for them exist; all
other names begin with ``polyarch_``."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase

from polyarch.clock import Clock

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Histogram buckets for durations, from a cached look-up to a slow registry."""

ADMISSION_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

NAMESPACES: Final = 100
"""Namespaces that have a label of their own in one family."""
OTHER_NAMESPACES: Final = "other"
FOLLOW_INTERVAL: Final = 15.0
"""Seconds between two readings of what is not read at each scrape; Prometheus scrapes about as often."""

M = TypeVar("M", bound=MetricWrapperBase)


class Metrics:
    """The metric families of one process by name; asking for a name again returns the same family."""

    def __init__(self, registry: CollectorRegistry | None = None, *, process: bool = False) -> None:
        self.registry = registry if registry is not None else CollectorRegistry(auto_describe=False)
        self._families: dict[str, MetricWrapperBase] = {}
        if process:
            ProcessCollector(registry=self.registry)
            self.gauge("polyarch_tasks", "Tasks of the event loop that are not done").set_function(_tasks)

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        return self._family(Counter, name, lambda: Counter(name, documentation, labels, registry=self.registry))

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        return self._family(Gauge, name, lambda: Gauge(name, documentation, labels, registry=self.registry))

    def histogram(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        def make() -> Histogram:
            return Histogram(name, documentation, labels, registry=self.registry, buckets=buckets)

        return self._family(Histogram, name, make)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition in the format that the scraper accepts, and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type

    def _family(self, kind: type[M], name: str, make: Callable[[], M]) -> M:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = make()
        if not isinstance(family, kind):
            raise TypeError(f"metric {name} is a {type(family).__name__} already and cannot be a {kind.__name__}")
        return family


def _tasks() -> float:
    """Number of tasks; 0 outside an event loop (metrics are rendered by a handler, which runs in the loop)."""
    try:
        return float(len(asyncio.all_tasks()))
    except RuntimeError:
        return 0.0


class QueueMetrics:
    """The metrics of one work queue, with the label of its name."""

    def __init__(
        self, metrics: Metrics, name: str, *, depth: Callable[[], float], oldest_age: Callable[[], float]
    ) -> None:
        label = ("name",)
        self.adds = metrics.counter("workqueue_adds_total", "Keys added to the queue", label).labels(name)
        self.retries = metrics.counter("workqueue_retries_total", "Keys put back after a failure", label).labels(name)
        self.latency = metrics.histogram(
            "workqueue_queue_duration_seconds", "How long a key waited before a worker took it", label
        ).labels(name)
        self.work = metrics.histogram(
            "workqueue_work_duration_seconds", "How long a worker was busy with a key", label
        ).labels(name)
        metrics.gauge("workqueue_depth", "Keys ready to be taken", label).labels(name).set_function(depth)
        metrics.gauge(
            "workqueue_oldest_age_seconds", "How long the oldest ready key has waited; 0 without workers", label
        ).labels(name).set_function(oldest_age)


class RequestMetrics:
    """Counts a client's requests (``polyarch_api_requests_total``); pass it as the client's ``metrics``."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "polyarch_api_requests_total", "Requests sent to the API server", ("verb", "resource")
        )
        self._failures = metrics.counter(
            "polyarch_api_request_failures_total",
            "Requests that the API server refused or did not answer (code 0)",
            ("verb", "resource", "code"),
        )
        self._bound: dict[tuple[str, str], Counter] = {}

    def request(self, verb: str, resource: str, code: int) -> None:
        child = self._bound.get((verb, resource))
        if child is None:
            child = self._bound[verb, resource] = self._requests.labels(verb, resource)
        child.inc()
        if not 100 <= code < 400:
            self._failures.labels(verb, resource, str(code)).inc()


class NamespaceGauge:
    """A gauge by namespace: the largest values, and ``other`` for the rest, which is always there.

    ``rest`` makes one value of those of the rest: the sum of counts, the maximum of ages.
    """

    def __init__(self, gauge: Gauge, *, rest: Callable[[Iterable[float]], float] = sum) -> None:
        self._gauge = gauge
        self._rest = rest
        self._shown: set[str] = set()
        self.show({})

    async def follow(self, read: Callable[[], Mapping[str, float]], clock: Clock) -> None:
        """Shows what ``read`` says until cancelled, and nothing afterwards: what only a leader knows."""
        try:
            while True:
                self.show(read())
                await clock.sleep(FOLLOW_INTERVAL)
        finally:
            self.show({})

    def show(self, values: Mapping[str, float]) -> None:
        """Replaces all values."""
        ordered = sorted(values.keys() - {OTHER_NAMESPACES}, key=lambda namespace: (-values[namespace], namespace))
        named = set(ordered[:NAMESPACES])
        rest = [values[namespace] for namespace in ordered[NAMESPACES:]]
        for namespace in self._shown - named:
            self._gauge.remove(namespace)
        for namespace in named:
            self._gauge.labels(namespace).set(values[namespace])
        self._gauge.labels(OTHER_NAMESPACES).set(self._rest([*rest, values.get(OTHER_NAMESPACES, 0.0)]))
        self._shown = named


class NamespaceCounter:
    """A counter by namespace: the first hundred have a label of their own, all others share ``other``."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._named: set[str] = set()
        counter.labels(OTHER_NAMESPACES)

    def inc(self, namespace: str) -> None:
        if namespace not in self._named and len(self._named) < NAMESPACES:
            self._named.add(namespace)
        self._counter.labels(namespace if namespace in self._named else OTHER_NAMESPACES).inc()
