"""Alerts of taints (TN-083), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from typing import Final

from polyarch.operating.monitoring.alerting import Alert, none_available
from polyarch.taints import names

ALERTS: Final = (
    Alert(
        name="PolyarchTaintsDown",
        expression=none_available(names.ROLE),
        lasting="5m",
        severity="warning",
        summary="No pod of polyarch-taints is available",
        description="New pods get no tolerations and stay on untainted nodes; new nodes are not tainted.",
    ),
    Alert(
        name="PolyarchTaintsDegraded",
        expression="max(polyarch_taints_degraded) > 0",
        lasting="5m",
        severity="warning",
        summary="ArchitectureTaints is degraded",
        description="Condition Degraded of the ArchitectureTaints says what is wrong, and what to do about it.",
    ),
    Alert(
        name="PolyarchTaintsPodsGatedTooLong",
        expression="max(polyarch_taints_oldest_gate_seconds) > 600",
        lasting="1m",
        severity="warning",
        summary="A pod waits long for its tolerations",
        description="The oldest pod with the gate polyarch.dev/tolerations is {{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="PolyarchNodesUntainted",
        expression='max by (architecture) (polyarch_taints_nodes{state="waiting"}) > 0',
        lasting="5m",
        severity="warning",
        summary="Managed nodes are not tainted",
        description="{{ $value }} nodes of architecture {{ $labels.architecture }} should carry the taint and do not.",
    ),
)
"""In the PrometheusRule ``polyarch-taints``."""
