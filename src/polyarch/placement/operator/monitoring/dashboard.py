"""The Grafana dashboard of placement (PL-721), from a table of panels.

``deploy/dashboard`` has it as a file to import. With the ConfigMap, Grafana's sidecar finds it by its label. Pure.
"""

import json
from typing import Any, Final, NamedTuple

from polyarch.placement import names
from polyarch.placement.operator.labels import Document, metadata

NAME: Final = "polyarch-placement"
FILE: Final = f"{NAME}.json"
CONFIG_MAP: Final = f"{NAME}-dashboard"
FOUND_BY: Final = {"grafana_dashboard": "1"}
"""The label that Grafana's sidecar looks for by default."""

_WIDTH: Final = 24
_SCHEMA: Final = 39
"""Version of Grafana's dashboard schema, of Grafana 10.2; newer ones convert it."""


class Query(NamedTuple):
    """One PromQL expression and how its lines are called."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One graph, or one number if ``is_number``."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    is_number: bool = False


class Row(NamedTuple):
    """Panels side by side, as many as fit."""

    title: str
    panels: tuple[Panel, ...]


def _quantiles(histogram: str, by: str = "") -> tuple[Query, ...]:
    labels = f"le, {by}" if by else "le"
    suffix = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))",
            f"p{round(quantile * 100)}{suffix}",
        )
        for quantile in (0.5, 0.99)
    )


def _rate(counter: str, by: str = "", matching: str = "") -> str:
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (rate({counter}{matching}[$__rate_interval]))"


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
                (Query(_rate("polyarch_webhook_admissions_total", "outcome"), "{{outcome}}"),),
            ),
            Panel(
                "Time of an admission",
                "How long the webhook takes to answer.",
                "s",
                _quantiles("polyarch_webhook_seconds", "outcome"),
            ),
            Panel(
                "Decisions",
                "What was decided, by webhook and controller.",
                "reqps",
                (Query(_rate("polyarch_placement_decisions_total", "reason, by"), "{{reason}} ({{by}})"),),
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
                _quantiles("polyarch_placement_gate_seconds"),
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
                (Query(_rate("polyarch_placement_attempts_total", "class"), "{{class}}"),),
            ),
            Panel(
                "Requests to registries",
                "By registry and HTTP status or error.",
                "reqps",
                (Query(_rate("polyarch_registry_requests_total", "host, result"), "{{host}} {{result}}"),),
            ),
            Panel(
                "Time of a request to a registry",
                "By what was asked.",
                "s",
                _quantiles("polyarch_registry_request_seconds", "operation"),
            ),
            Panel(
                "Known images",
                "Readings in memory, and how often one served.",
                "short",
                (
                    Query("max(mto_inspection_cache_size)", "readings"),
                    Query(
                        _rate("polyarch_registry_cache_total", "table", '{result="hit"}'),
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
        "Processes",
        (
            Panel(
                "Requests to the API server",
                "By verb and resource.",
                "reqps",
                (Query(_rate("polyarch_api_requests_total", "verb, resource"), "{{verb}} {{resource}}"),),
            ),
            Panel(
                "Refused or unanswered requests",
                "By verb, resource and HTTP status; 0 is no answer.",
                "reqps",
                (
                    Query(
                        _rate("polyarch_api_request_failures_total", "verb, resource, code"),
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
                    Query(_rate("polyarch_internal_errors_total"), "internal errors"),
                    Query(_rate("polyarch_events_dropped_total"), "events dropped"),
                    Query(_rate("polyarch_placement_patch_conflicts_total"), "patch conflicts"),
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


def dashboard() -> dict[str, Any]:
    """The dashboard, in Grafana's schema; the data source is chosen when it is shown."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append(_placed({"type": "row", "title": row.title, "collapsed": False}, len(panels), 0, top, _WIDTH, 1))
        top += 1
        height = 4 if row.panels[0].is_number else 8
        columns = 4 if row.panels[0].is_number else 3
        for index, panel in enumerate(row.panels):
            left = (index % columns) * (_WIDTH // columns)
            y = top + (index // columns) * height
            panels.append(_placed(_panel(panel), len(panels), left, y, _WIDTH // columns, height))
        top += -(-len(row.panels) // columns) * height
    return {
        "uid": NAME,
        "title": "polyarch: pod placement",
        "description": "What polyarch decides about pods, how long it takes, and what keeps it from it.",
        "tags": ["polyarch", "kubernetes"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def text() -> str:
    """The dashboard as the file that is shipped."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def config_map(namespace: str) -> Document:
    """The dashboard for Grafana's sidecar."""
    described = metadata(CONFIG_MAP, names.OPERATOR, namespace=namespace)
    described["labels"] |= FOUND_BY
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": described, "data": {FILE: text()}}


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.is_number else {},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _placed(panel: dict[str, Any], number: int, x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number + 1, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}
