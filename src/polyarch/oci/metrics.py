"""What is counted about registry traffic (RG-160), without a metrics library: this package imports none (RG-001).

``Metrics`` is the seam. ``RegistryMetrics`` fills it from constructors that a process hands in: those of
``prometheus_client`` bound to a registry, or whatever makes families with the same parameters::

    RegistryMetrics(*(partial(kind, registry=registry) for kind in (Counter, Gauge, Histogram)))

Pod authors choose hosts, so the first fifty get a label of their own and all others share ``other``.
"""

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
        """One look-up ended."""

    def cache(self, table: str, result: str) -> None:
        """A table (``readings``, ``tags``, ``proofs``, ``negatives``) was asked: ``hit`` or ``miss``."""

    def rate_limit(self, host: str, remaining: float) -> None:
        """A registry told how many requests are left to whoever asked; NaN if it does not say so any more."""

    def in_flight(self, host: str, change: int) -> None:
        """A request began (1) or ended (-1)."""

    def host_seen(self, host: str, paused: Callable[[], bool]) -> None:
        """A host is asked for the first time; ``paused`` tells at any later time whether it is being left alone."""


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
    """A counter, gauge or histogram with or without its labels bound."""

    def labels(self, *values: str) -> Self: ...


class Counting(Instrument, Protocol):
    def inc(self, amount: float = 1) -> None: ...


class Level(Instrument, Protocol):
    def set(self, value: float) -> None: ...

    def inc(self, amount: float = 1) -> None: ...

    def set_function(self, f: Callable[[], float]) -> None: ...


class Distribution(Instrument, Protocol):
    def observe(self, amount: float) -> None: ...


class MakeCounter(Protocol):
    def __call__(self, name: str, documentation: str, labels: Sequence[str], /) -> Counting: ...


class MakeLevel(Protocol):
    def __call__(self, name: str, documentation: str, labels: Sequence[str], /) -> Level: ...


class MakeDistribution(Protocol):
    def __call__(
        self, name: str, documentation: str, labels: Sequence[str], /, *, buckets: Sequence[float]
    ) -> Distribution: ...


class RegistryMetrics:
    """The metrics of RG-160. A pause of a host beyond the fifty is not shown: ``other`` cannot say which."""

    def __init__(
        self, counter: MakeCounter, gauge: MakeLevel, histogram: MakeDistribution, *, hosts_labelled: int = 50
    ) -> None:
        self._hosts: set[str] = set()
        self._hosts_labelled = hosts_labelled
        self._cache_children: dict[tuple[str, str], Counting] = {}
        self._requests = counter(f"{PREFIX}requests_total", "Requests to registries.", ("host", "operation", "result"))
        self._seconds = histogram(
            f"{PREFIX}request_seconds", "Duration of requests to registries.", ("operation",), buckets=_SECONDS
        )
        self._inspections = counter(
            f"{PREFIX}inspections_total", "Images looked up, by the answer's status.", ("status",)
        )
        self._cache = counter(f"{PREFIX}cache_total", "Look-ups in the cache.", ("table", "result"))
        self._remaining = gauge(
            f"{PREFIX}rate_limit_remaining", "Requests left by the registry's own account.", ("host",)
        )
        self._paused = gauge(f"{PREFIX}host_paused", "1 while the registry is not asked.", ("host",))
        self._in_flight = gauge(f"{PREFIX}in_flight", "Requests on their way.", ("host",))

    def label(self, host: str) -> str:
        """The host itself, or ``other`` once fifty different ones have been seen."""
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
