"""Metrics of image lookups: exported by every role that asks registries.

The names are the predecessor's where it had the same. Every family is exported from the first scrape on, so
that dashboards show zero instead of a gap.
"""

from collections.abc import Callable
from typing import Final

from polyarch.kube.metrics import Metrics

BUCKETS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 4.0),
    *(8.0, 16.0, 32.0, 64.0),
)
"""The predecessor's buckets plus four larger ones: its slow pods all fell beyond the last bucket."""

ERROR_CLASSES: Final = ("absent", "auth", "limit", "transient", "content", "configuration", "unknown")


class LookupMetrics:
    """The metric families of image lookups."""

    def __init__(self, metrics: Metrics) -> None:
        histogram, counter, gauge = metrics.histogram, metrics.counter, metrics.gauge
        self.inspect_image = histogram(
            "mto_ppo_ctrl_time_to_inspect_image_seconds", "Time of one attempt to inspect an image", buckets=BUCKETS
        )
        self.failed_inspections = counter(
            "mto_ppo_ctrl_failed_image_inspection_total", "Attempts to inspect an image that failed"
        )
        self.cache_size = gauge("mto_inspection_cache_size", "Readings of images in memory")
        self.cache_hit = histogram(
            "mto_cache_hit_processing_duration_seconds", "Time to answer for an image from memory", buckets=BUCKETS
        )
        self.cache_miss = histogram(
            "mto_cache_miss_processing_duration_seconds",
            "Time to answer for an image from its registry",
            buckets=BUCKETS,
        )
        attempts = counter(
            "polyarch_placement_attempts_total", "Attempts to inspect an image, by class of failure", ("class",)
        )
        self.attempts = {name: attempts.labels(name) for name in ("success", *ERROR_CLASSES)}
        self.lookups_dropped = counter(
            "polyarch_placement_lookups_dropped_total",
            "Images that an admission did not look up because the queue was full",
        )
        self.internal_errors = counter(
            "polyarch_internal_errors_total", "Internal errors, each handled as a transient failure of its pod"
        )

    def count_readings(self, size: Callable[[], float]) -> None:
        """Reads the size of the image cache at each scrape."""
        self.cache_size.set_function(size)
