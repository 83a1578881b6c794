"""The Grafana dashboard of NUMA, from a table of panels (NO-095). Pure."""

from typing import Final

from polyarch.operating.monitoring.dashboards import Dashboard, Panel, Query, Row

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
)

DASHBOARD: Final = Dashboard(
    name="polyarch-numa",
    title="polyarch: NUMA",
    description="Which nodes publish their NUMA zones, and how the operator gets on with it.",
    rows=ROWS,
)
