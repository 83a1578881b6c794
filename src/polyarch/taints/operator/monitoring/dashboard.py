"""The Grafana dashboard of taints, from a table of panels (TN-083). Pure."""

from typing import Final

from polyarch.operating.monitoring.dashboards import Dashboard, Panel, Query, Row, quantiles, rate
from polyarch.taints import names

ROWS: Final = (
    Row(
        "Now",
        (
            Panel(
                "Gated pods",
                "Pods that wait for their tolerations.",
                "short",
                (Query("max(polyarch_taints_gated_pods)"),),
                is_number=True,
            ),
            Panel(
                "Oldest gate",
                "Age of the pod that has waited longest.",
                "s",
                (Query("max(polyarch_taints_oldest_gate_seconds)"),),
                is_number=True,
            ),
            Panel(
                "Blocked templates",
                "DaemonSets whose templates lack a toleration that cannot be decided.",
                "short",
                (Query("max(polyarch_taints_blocked_templates)"),),
                is_number=True,
            ),
            Panel(
                "Unknown images",
                "Images that pods wait for and nobody knows yet.",
                "short",
                (Query("max(polyarch_taints_unknown_images)"),),
                is_number=True,
            ),
        ),
    ),
    Row(
        "Nodes and pods",
        (
            Panel(
                "Nodes",
                "Nodes by architecture and state of their taint.",
                "short",
                (
                    Query(
                        "max by (architecture, state) (polyarch_taints_nodes)",
                        "{{architecture}} {{state}}",
                    ),
                ),
            ),
            Panel(
                "Decisions",
                "Pods by what was decided about them.",
                "reqps",
                (Query(rate("polyarch_taints_pods_total", "decision"), "{{decision}}"),),
            ),
            Panel(
                "Writes",
                "Writes to nodes, pods, DaemonSets and the policy for new nodes, by how they ended.",
                "reqps",
                (Query(rate("polyarch_taints_writes_total", "kind, result"), "{{kind}} {{result}}"),),
            ),
            Panel(
                "Time behind the gate",
                "From the creation of a gated pod until its gate was removed.",
                "s",
                quantiles("polyarch_taints_gate_seconds"),
            ),
            Panel(
                "Time until a new node is tainted",
                "From seeing a node until its taint was written.",
                "s",
                quantiles("polyarch_taints_node_reaction_seconds"),
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
    name=names.ROLE,
    title="polyarch: taints and tolerations",
    description="Which nodes are tainted, what pods get, and what waits for what.",
    rows=ROWS,
)
