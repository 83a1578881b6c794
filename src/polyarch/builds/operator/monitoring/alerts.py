"""Alerts of builds (BD-245), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from typing import Final

from polyarch.builds import names
from polyarch.operating.monitoring.alerting import Alert, none_available

LONG_OVERHEAD: Final = 60
"""Seconds; a bound of the histogram's buckets."""

ALERTS: Final = (
    Alert(
        name="PolyarchBuilderDown",
        expression=none_available(names.ROLE),
        lasting="5m",
        severity="warning",
        summary="No pod of polyarch-builder is available",
        description="Nothing new is built, and nothing that is built is published. Jobs that run go on.",
    ),
    Alert(
        name="PolyarchBuildFailed",
        expression='sum by (kind) (increase(polyarch_build_executions_total{result="failed"}[15m])) > 0',
        lasting="0m",
        severity="warning",
        summary="An image build failed",
        description="In the last 15 minutes {{ $value | humanize }} builds ({{ $labels.kind }}) failed. What was "
        "published before stays published.",
    ),
    Alert(
        name="PolyarchBuildWaitingForNode",
        expression="max by (arch) (polyarch_build_waiting_for_node) > 0",
        lasting="15m",
        severity="warning",
        summary="A build waits for a node of its architecture",
        description="{{ $value }} builds for {{ $labels.arch }} have had no node for 15 minutes.",
    ),
    Alert(
        name="PolyarchBuildOverhead",
        expression="sum(increase(polyarch_build_overhead_seconds_count[1h]))"
        f' - sum(increase(polyarch_build_overhead_seconds_bucket{{le="{LONG_OVERHEAD:.1f}"}}[1h])) > 0.5',
        lasting="0m",
        severity="warning",
        summary="Builds take much longer than their slowest architecture",
        description=f"In the last hour {{{{ $value | humanize }}}} builds took more than {LONG_OVERHEAD} s beyond the "
        "time of their slowest Job.",
    ),
    Alert(
        name="PolyarchBuildCleanupAbandoned",
        expression="sum(increase(polyarch_build_cleanups_abandoned_total[1h])) > 0",
        lasting="0m",
        severity="warning",
        summary="Images of deleted builds were left in a registry",
        description="In the last hour the images of {{ $value | humanize }} builds could not be deleted within 10 "
        "minutes. Events ImageCleanupAbandoned list their digests.",
    ),
)
"""In the PrometheusRule ``polyarch-builder``."""
