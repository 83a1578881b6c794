"""The Grafana dashboard of NUMA, from a table of panels (NO-095). Pure."""

from typing import Final

from polyarch.operating.monitoring.dashboards import Dashboard, Panel, Query, Row, quantiles, rate

ROWS: Final = (
    Row(
        "Operator",
        (
            Panel(
                "Conditions",
                "1: the condition is True; 0: it is False; -1: it is Unknown.",
                "short",
                (Query("max by (kind, type) (polyarch_numa_operator_condition)", "{{kind}} {{type}}"),),
            ),
            Panel(
                "Nodes",
                "Nodes of each group, and those of them with an exporter that is ready.",
                "short",
                (Query("max by (group, state) (polyarch_numa_operator_group_nodes)", "{{group}} {{state}}"),),
            ),
            Panel(
                "Passes",
                "How long the controllers take.",
                "s",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_work_duration_seconds_bucket"
                        '{name=~"numaresources.+|kubeletconfig"}[$__rate_interval])))',
                        "p99 {{name}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Scheduler",
        (
            Panel(
                "Answers",
                "How long the scheduler waits for the extender.",
                "s",
                quantiles("polyarch_numa_filter_seconds", "verb"),
            ),
            Panel(
                "Rejected nodes",
                "Nodes that would not do for a pod, by the kind of reason.",
                "short",
                (Query(rate("polyarch_numa_rejections_total", "kind"), "{{kind}}"),),
            ),
            Panel(
                "Reservations",
                "held: chosen, the pod is not bound yet; bound: the node's object does not show the pod yet; spread: "
                "nobody knows which cell.",
                "short",
                (Query("sum by (state) (polyarch_numa_reservations)", "{{state}}"),),
            ),
            Panel(
                "Ends of reservations",
                "settled is the usual end; ttl: the pod was not bound in time; unexplained: the exporter shows other "
                "pods than there are.",
                "short",
                (Query(rate("polyarch_numa_reservation_releases_total", "reason"), "{{reason}}"),),
            ),
            Panel(
                "Surprises",
                "Pods that a kubelet refused, and pods in other cells than expected. Both should stay at 0.",
                "short",
                (
                    Query(rate("polyarch_numa_kubelet_rejections_total"), "refused by a kubelet"),
                    Query(rate("polyarch_numa_mispredictions_total"), "mispredicted"),
                ),
            ),
            Panel(
                "Wakes and preemption",
                "Times that rejected pods were woken, and attempts to evict others for a pod.",
                "short",
                (
                    Query(rate("polyarch_numa_kicks_total"), "woken"),
                    Query(rate("polyarch_numa_preemptions_total", "result"), "preemption: {{result}}"),
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="polyarch-numa",
    title="polyarch: NUMA",
    description="Which nodes publish their NUMA zones, how pods are scheduled by them, and how the operator gets on.",
    rows=ROWS,
)
