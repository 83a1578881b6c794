"""Alerts of NUMA (NO-095), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from typing import Final

from polyarch.numa.names import SCHEDULER
from polyarch.operating.monitoring.alerting import Alert, none_available


def rose(counter: str, window: str, *, more_than: int = 0) -> str:
    """By node: a counter that has a series from a node's first event on. Of that one there is no increase, since the
    series begins with it; so what was not there before the window counts as a whole."""
    return (
        f"max by (node) (increase({counter}[{window}]) > {more_than} "
        f"or ({counter} unless {counter} offset {window}) > {more_than})"
    )


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

SCHEDULER_ALERTS: Final = (
    Alert(
        name="PolyarchNumaSchedulerDown",
        expression=none_available(SCHEDULER),
        lasting="5m",
        severity="critical",
        summary="No pod of the NUMA scheduler is available",
        description="Pods that name this scheduler stay Pending until it and the extender beside it are ready.",
    ),
    Alert(
        name="PolyarchNumaReservationsUnsettled",
        expression="max by (node) (polyarch_numa_unsettled_seconds) > 300",
        lasting="5m",
        severity="warning",
        summary="Cells stay reserved because an exporter does not show their pods",
        description="For {{ $value }} s node {{ $labels.node }} has not shown a pod that its kubelet has admitted; "
        "what is reserved there stays reserved.",
    ),
    Alert(
        name="PolyarchNumaKubeletRejections",
        expression=rose("polyarch_numa_kubelet_rejections_total", "30m"),
        lasting="1m",
        severity="warning",
        summary="A kubelet refused a pod for its NUMA alignment",
        description="The kubelet of {{ $labels.node }} failed a pod with TopologyAffinityError: what is known of its "
        "cells was wrong or late.",
    ),
    Alert(
        name="PolyarchNumaMispredictions",
        expression=rose("polyarch_numa_mispredictions_total", "1h", more_than=2),
        lasting="1m",
        severity="warning",
        summary="Pods are not in the NUMA cells where they were expected",
        description="{{ $value }} times in an hour pods on {{ $labels.node }} were in other cells than predicted; "
        "reservations there count on every cell, which leaves room unused.",
    ),
)
"""In the PrometheusRule ``polyarch-numa-scheduler``."""
