"""The metrics of stock builders of machine OS images, by their names and labels (BD-290). Each build counts once."""

from collections.abc import Mapping
from typing import Any, Final

from polyarch.builds.facts.times import seconds
from polyarch.builds.machineos.recording.lifecycle import CONDITIONS, TERMINAL, stage_of
from polyarch.kube.metrics import Metrics

_JOBS: Final = {"active": ("Prepared", "Building"), "succeeded": ("Succeeded",), "failed": ("Failed", "Interrupted")}
DURATIONS: Final = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 2700.0, 3600.0, 7200.0)


class MachineMetrics:
    """The families of one process. Pools are few, so a label may hold their names, as stock builders' does."""

    def __init__(self, metrics: Metrics) -> None:
        self._state = metrics.gauge(
            "ocl_build_state",
            "The state of the newest build of a pool: 1 for the one that it is in.",
            ("pool", "state"),
        )
        self._total = metrics.counter("ocl_build_total", "Builds that ended, by how.", ("pool", "state"))
        self._seconds = metrics.histogram(
            "ocl_build_duration_seconds", "Time of a build.", ("pool", "state"), buckets=DURATIONS
        )
        self._start = metrics.gauge("ocl_build_start_timestamp_seconds", "When the newest build began.", ("pool",))
        self._end = metrics.gauge("ocl_build_end_timestamp_seconds", "When the newest build ended.", ("pool",))
        self._active = metrics.gauge("ocl_active_builds", "Builds that have not ended.", ("pool",))
        self._jobs = metrics.gauge(
            "ocl_build_job_state", "The state of the Jobs of the newest build of a pool.", ("pool", "state")
        )
        self._changes = metrics.counter("ocl_config_change_total", "Changes of the spec of a config.", ("pool",))
        self._pushes = metrics.counter("ocl_image_push_total", "Results that were published.", ("pool",))
        self._configs = metrics.gauge("mco_mosc_count", "MachineOSConfigs.")
        self._pools: set[str] = set()

    def show_configs(self, count: int) -> None:
        self._configs.set(count)

    def show_active(self, active: Mapping[str, int]) -> None:
        """Builds that have not ended, by pool; a pool that has none any more shows 0."""
        self._pools |= active.keys()
        for pool in self._pools:
            self._active.labels(pool).set(active.get(pool, 0))

    def config_changed(self, pool: str) -> None:
        self._changes.labels(pool).inc()

    def build_written(self, pool: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
        """The status of a build was written; its stage if it ended by that."""
        before, after = stage_of(stored), stage_of(wanted) or ""
        if before == after or before in TERMINAL:
            return ""
        for stage in CONDITIONS:
            self._state.labels(pool, stage.lower()).set(float(stage == after))
        for state, stages in _JOBS.items():
            self._jobs.labels(pool, state).set(float(after in stages))
        began = seconds(wanted.get("buildStart"))
        if began is not None:
            self._start.labels(pool).set(began)
        if after not in TERMINAL:
            return ""
        self._ended(pool, after, began, seconds(wanted.get("buildEnd")))
        return after

    def _ended(self, pool: str, stage: str, began: float | None, ended: float | None) -> None:
        state = stage.lower()
        self._total.labels(pool, state).inc()
        if stage == "Succeeded":
            self._pushes.labels(pool).inc()
        if ended is not None:
            self._end.labels(pool).set(ended)
            if began is not None:
                self._seconds.labels(pool, state).observe(ended - began)
