"""The metrics of the builder. No label holds a name or a digest.

What ended is counted when the write that says so has succeeded: a plan that is made twice counts once."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from polyarch.builds.facts.build_facts import ENDED, ENDED_CHILD
from polyarch.kube.metrics import Metrics, NamespaceCounter
from polyarch.oci.metrics import Metrics as RegistryTraffic
from polyarch.platforms import KNOWN_ARCHITECTURES

BUILD_SECONDS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0)
PLAN_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
OTHER: Final = "other"
"""The label of architectures that Go does not know."""
PARTS: Final = ("wait", "build", "push")
"""Parts of an architecture's time: until its pod runs, in container ``build``, in container ``push``."""


class BuildMetrics:
    """The families of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._executions = metrics.counter(
            "polyarch_build_executions_total", "Executions that ended, by how.", ("kind", "result")
        )
        self._failures = NamespaceCounter(
            metrics.counter("polyarch_build_failures_total", "Executions that failed, by namespace.", ("namespace",))
        )
        self._architectures = metrics.counter(
            "polyarch_build_architectures_total", "Architectures of executions, by how they ended.", ("arch", "result")
        )
        self._seconds = metrics.histogram(
            "polyarch_build_architecture_seconds",
            "Time of one architecture: until its pod runs (wait), and in its containers (build, push).",
            ("arch", "part"),
            buckets=BUILD_SECONDS,
        )
        self._makespan = metrics.histogram(
            "polyarch_build_makespan_seconds", "From the start of an execution to its result.", buckets=BUILD_SECONDS
        )
        self._overhead = metrics.histogram(
            "polyarch_build_overhead_seconds",
            "Makespan without the architecture that took longest.",
            buckets=BUILD_SECONDS,
        )
        self._active = metrics.gauge("polyarch_build_active", "Unfinished build Jobs.", ("arch",))
        self._waiting = metrics.gauge(
            "polyarch_build_waiting_for_node", "Build pods that no node has taken yet.", ("arch",)
        )
        self._shown: set[str] = set()
        self._requests = metrics.counter(
            "polyarch_build_registry_requests_total", "Requests of the builder to registries.", ("operation", "code")
        )
        self._deleted = metrics.counter(
            "polyarch_build_images_deleted_total", "Manifests deleted because nothing refers to them."
        )
        self._abandoned = metrics.counter(
            "polyarch_build_cleanups_abandoned_total", "Executions whose images were left in their registry."
        )
        self._plan = metrics.histogram(
            "polyarch_build_plan_seconds",
            "Time of making one plan, without the answers that it asked for.",
            buckets=PLAN_SECONDS,
        )

    def planned(self, seconds: float) -> None:
        """One plan was made."""
        self._plan.observe(seconds)

    def took(self, architecture: str, parts: Mapping[str, float]) -> None:
        """Seconds of one architecture by part."""
        for part in PARTS:
            if part in parts:
                self._seconds.labels(shown_architecture(architecture), part).observe(parts[part])

    def adopted(self, architecture: str) -> None:
        """A running Job was taken over by a new execution."""
        self._architectures.labels(shown_architecture(architecture), "adopted").inc()

    def run_written(self, namespace: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """The status of an ImageBuildRun was written: counts what has ended by it."""
        for each in newly_ended(stored, wanted):
            architecture = shown_architecture(str(each.get("architecture")))
            self._architectures.labels(architecture, str(each.get("phase")).lower()).inc()
        phase = wanted.get("phase")
        if phase in ENDED and stored.get("phase") != phase:
            self.execution_ended("ImageBuild", str(phase).lower(), namespace)
            if phase == "Succeeded" and (whole := _span(wanted)) is not None:
                self._makespan.observe(whole)
                built = [
                    span for each in _architectures(wanted) if each.get("phase") == "Built" and (span := _span(each))
                ]
                self._overhead.observe(max(0.0, whole - max(built, default=0.0)))

    def execution_ended(self, kind: str, result: str, namespace: str) -> None:
        """One execution reached a terminal phase."""
        self._executions.labels(kind, result).inc()
        if result == "failed":
            self._failures.inc(namespace)

    def ask_queue(self, oldest_seconds: Callable[[], float]) -> None:
        """Reads at each scrape how long the oldest ImageBuildRun has waited for its Jobs."""
        self._metrics.gauge(
            "polyarch_build_oldest_queued_seconds",
            "Age of the oldest ImageBuildRun that waits for a Job, 0 without any",
        ).set_function(oldest_seconds)

    def images_deleted(self, count: int) -> None:
        self._deleted.inc(count)

    def cleanup_abandoned(self) -> None:
        self._abandoned.inc()

    def show_jobs(self, active: Mapping[str, int], waiting: Mapping[str, int]) -> None:
        """Unfinished Jobs and waiting pods by architecture; an architecture that has none any more shows 0."""
        by_label = [(self._active, _shown(active)), (self._waiting, _shown(waiting))]
        self._shown |= set().union(*(counts for _, counts in by_label))
        for gauge, counts in by_label:
            for architecture in self._shown:
                gauge.labels(architecture).set(counts[architecture])

    def counting(self, inner: RegistryTraffic) -> RegistryTraffic:
        """``inner``, and the requests counted here as well."""
        return _Counting(inner, lambda operation, code: self._requests.labels(operation, code).inc())


def shown_architecture(name: str) -> str:
    """The label for an architecture. Specs may name any, and each label stays for ever, so unknown ones share one."""
    return name if name in KNOWN_ARCHITECTURES else OTHER


def _shown(counts: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for architecture, count in counts.items():
        found[shown_architecture(architecture)] += count
    return found


class _Counting:
    """The metrics of registry traffic with one more counter."""

    def __init__(self, inner: RegistryTraffic, count: Callable[[str, str], None]) -> None:
        self._count = count
        self.inspection = inner.inspection
        self.cache = inner.cache
        self.rate_limit = inner.rate_limit
        self.in_flight = inner.in_flight
        self.host_seen = inner.host_seen
        self._request = inner.request

    def request(self, host: str, operation: str, result: str, seconds: float) -> None:
        self._request(host, operation, result, seconds)
        self._count(operation, result)


def newly_ended(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The architectures of an execution whose phase is final now and was another one before."""
    before = {each.get("architecture"): each.get("phase") for each in _architectures(stored)}
    return [
        each
        for each in _architectures(wanted)
        if each.get("phase") in ENDED_CHILD and before.get(each.get("architecture")) != each.get("phase")
    ]


def _architectures(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (each for each in status.get("architectures") or () if isinstance(each, Mapping))


def _span(status: Mapping[str, Any]) -> float | None:
    """Seconds from ``startTime`` to ``completionTime``; None if one of them is not there."""
    start, end = status.get("startTime"), status.get("completionTime")
    if not start or not end:
        return None
    return (datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))).total_seconds()
