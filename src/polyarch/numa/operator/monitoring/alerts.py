"""Alerts of NUMA (NO-095), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from typing import Final

from polyarch.operating.monitoring.alerting import Alert

ALERTS: Final = (
    Alert(
        name="PolyarchNumaDegraded",
        expression='max by (kind) (polyarch_numa_operator_condition{type="Degraded"}) > 0',
        lasting="5m",
        severity="warning",
        summary="A custom resource of NUMA is degraded",
        description="Condition Degraded of the {{ $labels.kind }} tells what is wrong; what ran before keeps running.",
    ),
    Alert(
        name="PolyarchNumaNodesSilent",
        expression='max by (group) (polyarch_numa_operator_group_nodes{state="desired"})'
        ' - max by (group) (polyarch_numa_operator_group_nodes{state="ready"}) > 0',
        lasting="15m",
        severity="warning",
        summary="Nodes do not publish their NUMA zones",
        description="{{ $value }} nodes of group {{ $labels.group }} have no exporter that is ready: what is known of "
        "their zones grows old.",
    ),
)
"""In the PrometheusRule ``polyarch-numa-exporter``."""
