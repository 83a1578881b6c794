"""The Grafana dashboard of builds, from a table of panels (BD-245). Pure."""

from typing import Final

from polyarch.builds import names
from polyarch.operating.monitoring.dashboards import Dashboard, Panel, Query, Row, quantiles, rate

ROWS: Final = (
    Row(
        "Now",
        (
            Panel(
                "Building",
                "Architectures that are being built.",
                "short",
                (Query("sum(polyarch_build_active)"),),
                is_number=True,
            ),
            Panel(
                "Waiting for a node",
                "Architectures whose pod has no node.",
                "short",
                (Query("sum(polyarch_build_waiting_for_node)"),),
                is_number=True,
            ),
            Panel(
                "Failed in a day",
                "Builds that failed in the last 24 hours.",
                "short",
                (Query('sum(increase(polyarch_build_executions_total{result="failed"}[24h]))'),),
                is_number=True,
            ),
            Panel(
                "Reused",
                "Share of architectures in the last 24 hours that did not have to be built.",
                "percentunit",
                (
                    Query(
                        'sum(increase(polyarch_build_architectures_total{result="reused"}[24h]))'
                        " / sum(increase(polyarch_build_architectures_total[24h]))"
                    ),
                ),
                is_number=True,
            ),
        ),
    ),
    Row(
        "Builds",
        (
            Panel(
                "Builds",
                "Builds that ended, by how.",
                "reqps",
                (Query(rate("polyarch_build_executions_total", "kind, result"), "{{kind}} {{result}}"),),
            ),
            Panel(
                "Architectures",
                "Architectures that ended, by how.",
                "reqps",
                (Query(rate("polyarch_build_architectures_total", "arch, result"), "{{arch}} {{result}}"),),
            ),
            Panel(
                "Time of a build",
                "From the first Job to the published tag.",
                "s",
                quantiles("polyarch_build_makespan_seconds"),
            ),
            Panel(
                "Time of an architecture",
                "Waiting, building and pushing; median.",
                "s",
                (
                    Query(
                        "histogram_quantile(0.5, sum by (le, arch, part) "
                        "(rate(polyarch_build_architecture_seconds_bucket[$__rate_interval])))",
                        "{{arch}} {{part}}",
                    ),
                ),
            ),
            Panel(
                "Overhead",
                "What a build takes beyond its slowest architecture.",
                "s",
                quantiles("polyarch_build_overhead_seconds"),
            ),
            Panel(
                "Running and waiting",
                "Architectures that build, and those that wait for a node.",
                "short",
                (
                    Query("sum by (arch) (polyarch_build_active)", "{{arch}} building"),
                    Query("sum by (arch) (polyarch_build_waiting_for_node)", "{{arch}} waiting"),
                ),
            ),
        ),
    ),
    Row(
        "The builder",
        (
            Panel(
                "Requests to registries",
                "By operation and answer.",
                "reqps",
                (Query(rate("polyarch_build_registry_requests_total", "operation, code"), "{{operation}} {{code}}"),),
            ),
            Panel(
                "Time to plan",
                "From the facts of one build to its plan.",
                "s",
                quantiles("polyarch_build_plan_seconds"),
            ),
            Panel(
                "Images deleted",
                "Images that nothing refers to any longer.",
                "short",
                (Query("sum(increase(polyarch_build_images_deleted_total[1h]))", "in an hour"),),
            ),
            Panel(
                "Memory",
                "Resident memory of each process.",
                "bytes",
                (Query(f'process_resident_memory_bytes{{job="{names.ROLE}"}}', "{{pod}}"),),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    name="polyarch-builds",
    title="polyarch: image builds",
    description="What is being built, what was reused, what failed, and how long it took.",
    rows=ROWS,
)
