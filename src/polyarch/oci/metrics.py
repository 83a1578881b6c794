"""Metrics of registry traffic, without a metrics library: this package may not import one.

``Metrics`` is the interface. ``RegistryMetrics`` implements it with constructors that the process passes in, such as
those of ``prometheus_client`` bound to a registry::

    RegistryMetrics(*(partial(kind, registry=registry) for kind in (Counter, Gauge, Histogram)))

Pod authors choose hosts, so the first fifty hosts get a label of their own and all others share ``other``."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

OTHER = "other"
PREFIX = "polyarch_registry_"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class Metrics(Protocol):
    """Called on every request and answer; must neither block nor raise."""

    def request(self, host: str, operation: str, result: str, seconds: float) -> None:
        """One exchange ended: ``operation`` such as ``manifest-head``, ``result`` an HTTP status or an error code."""

    def inspection(self, status: str) -> None:
        """One inspection ended."""

    def cache(self, table: str, result: str) -> None:
        """A lookup in a table (``readings``, ``tags``, ``proofs``, ``negatives``): ``hit`` or ``miss``."""

    def rate_limit(self, host: str, remaining: float) -> None:
        """Requests left by a registry's headers; NaN if it stopped sending them."""

    def in_flight(self, host: str, change: int) -> None:
        """A request started (1) or ended (-1)."""

    def host_seen(self, host: str, paused: Callable[[], bool]) -> None:
        """First request to a host; ``paused`` returns at any later time whether the host is paused."""


class NoMetrics:
    """Records nothing."""

    __slots__ = ()

    def request(self, host: str, operation: str, result: str, seconds: float) -> None: ...

    def inspection(self, status: str) -> None: ...

    def cache(self, table: str, result: str) -> None: ...

    def rate_limit(self, host: str, remaining: float) -> None: ...

    def in_flight(self, host: str, change: int) -> None: ...

    def host_seen(self, host: str, paused: Callable[[], bool]) -> None: ...


class Instrument(Protocol):
    """A counter, gauge or histogram, with or without bound labels."""

    def labels(self, *values: str) -> Self: ...


class Counter(Instrument, Protocol):
    def inc(self, amount: float = 1) -> None: ...


class Gauge(Instrument, Protocol):
    def set(self, value: float) -> None: ...

    def inc(self, amount: float = 1) -> None: ...

    def set_function(self, f: Callable[[], float]) -> None: ...


class Histogram(Instrument, Protocol):
    def observe(self, amount: float) -> None: ...


class MakeCounter(Protocol):
    def __call__(self, name: str, documentation: str, labels: Sequence[str], /) -> Counter: ...


class MakeGauge(Protocol):
    def __call__(self, name: str, documentation: str, labels: Sequence[str], /) -> Gauge: ...


class MakeHistogram(Protocol):
    def __call__(
        self, name: str, documentation: str, labels: Sequence[str], /, *, buckets: Sequence[float]
    ) -> Histogram: ...


class RegistryMetrics:
    """Counts requests, inspections and cache lookups. Pauses of hosts beyond the first fifty are not shown: ``other``
    cannot say which host it is.
    """

    def __init__(
        self, counter: MakeCounter, gauge: MakeGauge, histogram: MakeHistogram, *, hosts_labelled: int = 50
    ) -> None:
        self._hosts: set[str] = set()
        self._hosts_labelled = hosts_labelled
        self._cache_children: dict[tuple[str, str], Counter] = {}
        self._requests = counter(f"{PREFIX}requests_total", "Requests to registries.", ("host", "operation", "result"))
        self._seconds = histogram(
            f"{PREFIX}request_seconds", "Duration of requests to registries.", ("operation",), buckets=_SECONDS
        )
        self._inspections = counter(f"{PREFIX}inspections_total", "Inspected images, by status.", ("status",))
        self._cache = counter(f"{PREFIX}cache_total", "Look-ups in the cache.", ("table", "result"))
        self._remaining = gauge(
            f"{PREFIX}rate_limit_remaining", "Requests left, as reported by the registry.", ("host",)
        )
        self._paused = gauge(f"{PREFIX}host_paused", "1 while no requests are sent to the registry.", ("host",))
        self._in_flight = gauge(f"{PREFIX}in_flight", "Requests in progress.", ("host",))

    def label(self, host: str) -> str:
        """The host itself, or ``other`` beyond the first fifty hosts."""
        if host in self._hosts:
            return host
        if len(self._hosts) >= self._hosts_labelled:
            return OTHER
        self._hosts.add(host)
        return host

    def request(self, host: str, operation: str, result: str, seconds: float) -> None:
        self._requests.labels(self.label(host), operation, result).inc()
        self._seconds.labels(operation).observe(seconds)

    def inspection(self, status: str) -> None:
        self._inspections.labels(status).inc()

    def cache(self, table: str, result: str) -> None:
        child = self._cache_children.get((table, result))
        if child is None:
            child = self._cache_children[table, result] = self._cache.labels(table, result)
        child.inc()

    def rate_limit(self, host: str, remaining: float) -> None:
        if self.label(host) == host:
            self._remaining.labels(host).set(remaining)

    def in_flight(self, host: str, change: int) -> None:
        self._in_flight.labels(self.label(host)).inc(change)

    def host_seen(self, host: str, paused: Callable[[], bool]) -> None:
        if self.label(host) == host:
            self._paused.labels(host).set_function(lambda: float(paused()))
