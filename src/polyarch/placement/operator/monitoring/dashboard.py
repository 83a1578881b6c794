"""The Grafana dashboard of placement (PL-721), from a table of panels.

``deploy/dashboard`` has it as a file to import. With the ConfigMap, Grafana's sidecar finds it by its label. Pure.
"""

from typing import Final

from polyarch.operating.monitoring.dashboards import Dashboard, Panel, Query, Row, quantiles, rate
from polyarch.placement import names

ROWS: Final = (
    Row(
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
                (Query("max(polyarch_placement_held_pods)"),),
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
    Row(
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
    Row(
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
                    Query("max(polyarch_placement_held_pods)", "held"),
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
    Row(
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
    Row(
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
    Row(
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
                (Query(f'process_resident_memory_bytes{{job=~"{names.WEBHOOK}|{names.CONTROLLER}"}}', "{{pod}}"),),
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
    Row(
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

DASHBOARD: Final = Dashboard(
    name="polyarch-placement",
    title="polyarch: pod placement",
    description="What polyarch decides about pods, how long it takes, and what keeps it from it.",
    rows=ROWS,
)
