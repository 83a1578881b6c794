"""The Grafana dashboards of all components, as tables of panels."""

from typing import Final

from polyarch.builds import names as builds_names
from polyarch.operator.monitoring import Dashboard, DashboardRow, Panel, Query, quantiles, rate
from polyarch.placement import names as placement_names
from polyarch.taints import names as taints_names

# -- placement ---------------------------------------------------------------------------------------------------------


PLACEMENT_ROWS: Final = (
    DashboardRow(
        "Now",
        (
            Panel(
                "Gated pods",
                "Pods that wait behind the scheduling gate.",
                "short",
                (Query("max(mto_ppo_pods_gated)"),),
                is_number=True,
            ),
            Panel(
                "Held pods",
                "Gated pods whose images cannot be read and that the policy holds.",
                "short",
                (Query("sum(polyarch_placement_held_pods)"),),
                is_number=True,
            ),
            Panel(
                "Unplaced pods",
                "Pending pods that the webhook missed.",
                "short",
                (Query("sum(polyarch_placement_unplaced_pods)"),),
                is_number=True,
            ),
            Panel(
                "Placed at admission",
                "Share of the pods that needed a constraint and got it without a gate.",
                "percentunit",
                (
                    Query(
                        'sum(rate(polyarch_webhook_admissions_total{outcome="inline"}[1h])) / '
                        'sum(rate(polyarch_webhook_admissions_total{outcome=~"inline|gated"}[1h]))'
                    ),
                ),
                is_number=True,
            ),
        ),
    ),
    DashboardRow(
        "Admission",
        (
            Panel(
                "Admissions",
                "Pods that the webhook answered for, by outcome.",
                "reqps",
                (Query(rate("polyarch_webhook_admissions_total", "outcome"), "{{outcome}}"),),
            ),
            Panel(
                "Time of an admission",
                "How long the webhook takes to answer.",
                "s",
                quantiles("polyarch_webhook_seconds", "outcome"),
            ),
            Panel(
                "Decisions",
                "What was decided, by webhook and controller.",
                "reqps",
                (Query(rate("polyarch_placement_decisions_total", "reason, by"), "{{reason}} ({{by}})"),),
            ),
        ),
    ),
    DashboardRow(
        "Gated pods",
        (
            Panel(
                "Time behind the gate",
                "From first seeing a gated pod until its gate was removed.",
                "s",
                quantiles("polyarch_placement_gate_seconds"),
            ),
            Panel(
                "Gated and held",
                "Pods that carry our gate, and those of them that the policy holds.",
                "short",
                (
                    Query("max(mto_ppo_pods_gated)", "gated"),
                    Query("sum(polyarch_placement_held_pods)", "held"),
                ),
            ),
            Panel(
                "Missed by the webhook",
                "Pending pods without a decision, by namespace.",
                "short",
                (Query("sum by (namespace) (polyarch_placement_unplaced_pods)", "{{namespace}}"),),
            ),
            Panel(
                "Found by the sweep",
                "Pods on nodes that their images do not support, and pods that were evicted to be placed.",
                "short",
                (
                    Query("sum(polyarch_placement_misplaced_pods)", "misplaced"),
                    Query("sum(increase(polyarch_placement_evictions_total[$__rate_interval]))", "evicted"),
                ),
            ),
        ),
    ),
    DashboardRow(
        "Images",
        (
            Panel(
                "Attempts to read an image",
                "By class of failure.",
                "reqps",
                (Query(rate("polyarch_placement_attempts_total", "class"), "{{class}}"),),
            ),
            Panel(
                "Requests to registries",
                "By registry and HTTP status or error.",
                "reqps",
                (Query(rate("polyarch_registry_requests_total", "host, result"), "{{host}} {{result}}"),),
            ),
            Panel(
                "Time of a request to a registry",
                "By what was asked.",
                "s",
                quantiles("polyarch_registry_request_seconds", "operation"),
            ),
            Panel(
                "Known images",
                "Readings in memory, and how often one served.",
                "short",
                (
                    Query("max(mto_inspection_cache_size)", "readings"),
                    Query(
                        rate("polyarch_registry_cache_total", "table", '{result="hit"}'),
                        "{{table}} found per second",
                    ),
                ),
            ),
            Panel(
                "Rate limits",
                "Requests that registries still allow.",
                "short",
                (Query("min by (host) (polyarch_registry_rate_limit_remaining)", "{{host}}"),),
            ),
            Panel(
                "Paused registries",
                "1 while a registry is not asked, after failures or by its own wish.",
                "short",
                (Query("max by (host) (polyarch_registry_host_paused)", "{{host}}"),),
            ),
        ),
    ),
    DashboardRow(
        "Report",
        (
            Panel(
                "Could run there",
                "Requested CPU of the workloads that run on each target, or could today; with report.enabled.",
                "short",
                (
                    Query(
                        "sum by (target) (max by (target, verdict) "
                        '(polyarch_report_weight_cores{verdict=~"runs|ready"}))',
                        "{{target}}",
                    ),
                ),
            ),
            Panel(
                "In the way",
                "Requested CPU of the workloads that an image, a constraint or a missing answer keeps back.",
                "short",
                (
                    Query(
                        'max by (target, verdict) (polyarch_report_weight_cores{verdict=~"constrained|image|unknown"})',
                        "{{target}} {{verdict}}",
                    ),
                ),
            ),
            Panel(
                "Workloads",
                "By what is to be said of each target.",
                "short",
                (Query("max by (target, verdict) (polyarch_report_workloads)", "{{target}} {{verdict}}"),),
            ),
        ),
    ),
    DashboardRow(
        "Processes",
        (
            Panel(
                "Requests to the API server",
                "By verb and resource.",
                "reqps",
                (Query(rate("polyarch_api_requests_total", "verb, resource"), "{{verb}} {{resource}}"),),
            ),
            Panel(
                "Refused or unanswered requests",
                "By verb, resource and HTTP status; 0 is no answer.",
                "reqps",
                (
                    Query(
                        rate("polyarch_api_request_failures_total", "verb, resource, code"),
                        "{{verb}} {{resource}} {{code}}",
                    ),
                ),
            ),
            Panel(
                "Broken watches",
                "How long something could not be watched.",
                "s",
                (Query("max by (pod, resource) (polyarch_watch_broken_seconds)", "{{pod}} {{resource}}"),),
            ),
            Panel(
                "Memory",
                "Resident memory of each process.",
                "bytes",
                (
                    Query(
                        f'process_resident_memory_bytes{{job=~"{placement_names.WEBHOOK}|{placement_names.CONTROLLER}"}}',
                        "{{pod}}",
                    ),
                ),
            ),
            Panel(
                "Certificates",
                "Until the serving certificate in use ends.",
                "s",
                (Query("min by (pod) (polyarch_certificate_expiry_seconds)", "{{pod}}"),),
            ),
            Panel(
                "Problems",
                "Internal errors, events that could not be posted, patches that met a changed pod.",
                "reqps",
                (
                    Query(rate("polyarch_internal_errors_total"), "internal errors"),
                    Query(rate("polyarch_events_dropped_total"), "events dropped"),
                    Query(rate("polyarch_placement_patch_conflicts_total"), "patch conflicts"),
                ),
            ),
        ),
    ),
    DashboardRow(
        "exec format error",
        (
            Panel(
                "Reports",
                "Executables in a foreign format that nodes reported.",
                "short",
                (
                    Query("sum(increase(mto_enoexecevents_total[1h]))", "reports"),
                    Query("sum(increase(mto_enoexecevents_invalid_total[1h]))", "of unknown pods"),
                ),
            ),
        ),
    ),
)

PLACEMENT_DASHBOARD: Final = Dashboard(
    name="polyarch-placement",
    title="polyarch: pod placement",
    description="What polyarch decides about pods, how long it takes, and what keeps it from it.",
    rows=PLACEMENT_ROWS,
)


# -- taints ------------------------------------------------------------------------------------------------------------


TAINTS_ROWS: Final = (
    DashboardRow(
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
    DashboardRow(
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
                (Query(f'process_resident_memory_bytes{{job="{taints_names.ROLE}"}}', "{{pod}}"),),
            ),
        ),
    ),
)

TAINTS_DASHBOARD: Final = Dashboard(
    name=taints_names.ROLE,
    title="polyarch: taints and tolerations",
    description="Which nodes are tainted, what pods get, and what waits for what.",
    rows=TAINTS_ROWS,
)


# -- builds ------------------------------------------------------------------------------------------------------------


BUILDS_ROWS: Final = (
    DashboardRow(
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
    DashboardRow(
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
    DashboardRow(
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
                (Query(f'process_resident_memory_bytes{{job="{builds_names.ROLE}"}}', "{{pod}}"),),
            ),
        ),
    ),
)

BUILDS_DASHBOARD: Final = Dashboard(
    name="polyarch-builds",
    title="polyarch: image builds",
    description="What is being built, what was reused, what failed, and how long it took.",
    rows=BUILDS_ROWS,
)


# -- NUMA --------------------------------------------------------------------------------------------------------------


NUMA_ROWS: Final = (
    DashboardRow(
        "Operator",
        (
            Panel(
                "Conditions",
                "1: the condition is True; 0: it is False; -1: it is Unknown.",
                "short",
                (Query('max by (kind, type) (polyarch_operator_condition{kind=~"NUMA.*"})', "{{kind}} {{type}}"),),
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
    DashboardRow(
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

NUMA_DASHBOARD: Final = Dashboard(
    name="polyarch-numa",
    title="polyarch: NUMA",
    description="Which nodes publish their NUMA zones, how pods are scheduled by them, and how the operator gets on.",
    rows=NUMA_ROWS,
)
