"""How polyarch is monitored: ServiceMonitors, alerting rules and Grafana dashboards; each component has its own. Pure.

Prometheus reads metrics over TLS, with the token of its ServiceAccount. The objects exist iff their kinds are served.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from polyarch import names
from polyarch.kube.resources import Resource
from polyarch.operator import certificates
from polyarch.operator.owned_objects import Document, metadata, part_of
from polyarch.operator.settings import OperatorSettings

SERVICE_MONITORS: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
RULES: Final = Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")


def scraping_objects(services: Iterable[str], settings: OperatorSettings, ca_bundle: bytes) -> list[Document]:
    """The ServiceMonitors of these Services, and the CA that they refer to. ``ca_bundle``: PEM."""
    scraped = tuple(services)
    parts = dict.fromkeys(map(part_of, scraped))
    authorities = (certificates.ca_for_scrapers(part, settings, ca_bundle) for part in parts)
    return [
        *(authority for authority in authorities if authority is not None),
        *(service_monitor(name, settings) for name in scraped),
    ]


def service_monitor(service: str, settings: OperatorSettings) -> Document:
    """The ServiceMonitor of one Service. Who scrapes needs ``get`` on the path ``/metrics``."""
    namespace = settings.namespace
    return {
        "apiVersion": SERVICE_MONITORS.api_version,
        "kind": SERVICE_MONITORS.kind,
        "metadata": metadata(service, service, namespace=namespace),
        "spec": {
            "selector": {"matchLabels": {names.CONTROLLER_LABEL: service}},
            "namespaceSelector": {"matchNames": [namespace]},
            "endpoints": [
                {
                    "port": "metrics",
                    "path": "/metrics",
                    "scheme": "https",
                    "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                    "tlsConfig": {
                        "serverName": certificates.names_of(service, namespace)[0],
                        "ca": certificates.scrapers_ca(part_of(service), settings.certificates),
                    },
                    # Some metrics have a label ``namespace``: that of the pods they speak of, not ours.
                    "honorLabels": True,
                }
            ],
        },
    }


# -- alerts ------------------------------------------------------------------------------------------------------------


RUNBOOKS: Final = "https://github.com/polyarch/polyarch/blob/main/docs/guide/runbooks"

Severity = Literal["warning", "critical"]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alerting rule. ``$NAMESPACE`` in the expression is the operator's namespace."""

    name: str
    expression: str
    lasting: str = "0m"
    """How long the expression must hold (``for``)."""
    severity: Severity = "warning"
    """Critical only if somebody has to get up for it."""
    summary: str
    description: str

    def document(self, namespace: str) -> Document:
        """As an entry of a PrometheusRule."""
        return {
            "alert": self.name,
            "expr": self.expression.replace("$NAMESPACE", namespace),
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}/{self.name}.md",
            },
        }


class AlertGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts of one PrometheusRule."""

    rule: str
    """Name of the PrometheusRule."""
    controller: str
    """The Deployment that it belongs to."""
    alerts: tuple[Alert, ...]

    def document(self, namespace: str) -> Document:
        """The PrometheusRule, in the namespace that its metrics are scraped in."""
        rules = [alert.document(namespace) for alert in self.alerts]
        return {
            "apiVersion": RULES.api_version,
            "kind": RULES.kind,
            "metadata": metadata(self.rule, self.controller, namespace=namespace),
            "spec": {"groups": [{"name": f"{self.rule}.rules", "rules": rules}]},
        }


# -- dashboards --------------------------------------------------------------------------------------------------------


# ``deploy/dashboard`` has each as a file to import. With the ConfigMap, Grafana's sidecar finds it by its label.

FOUND_BY: Final = {"grafana_dashboard": "1"}
"""The label that Grafana's sidecar looks for by default."""

_WIDTH: Final = 24
_SCHEMA: Final = 39
"""Version of Grafana's dashboard schema, of Grafana 10.2; newer ones convert it."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


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


class DashboardRow(NamedTuple):
    """Panels side by side, as many as fit."""

    title: str
    panels: tuple[Panel, ...]


def quantiles(histogram: str, by: str = "") -> tuple[Query, ...]:
    labels = f"le, {by}" if by else "le"
    suffix = f" {{{{{by}}}}}" if by else ""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))",
            f"p{round(quantile * 100)}{suffix}",
        )
        for quantile in (0.5, 0.99)
    )


def rate(counter: str, by: str = "", matching: str = "") -> str:
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (rate({counter}{matching}[$__rate_interval]))"


class Dashboard(NamedTuple):
    """One dashboard; ``name`` is its uid and the name of its file."""

    name: str
    title: str
    description: str
    rows: tuple[DashboardRow, ...]

    @property
    def file(self) -> str:
        return f"{self.name}.json"

    def document(self) -> dict[str, Any]:
        """In Grafana's schema; the data source is chosen when it is shown."""
        panels: list[dict[str, Any]] = []
        top = 0
        for row in self.rows:
            heading = {"type": "row", "title": row.title, "collapsed": False}
            panels.append(_placed(heading, len(panels), 0, top, _WIDTH, 1))
            top += 1
            height = 4 if row.panels[0].is_number else 8
            columns = 4 if row.panels[0].is_number else 3
            for index, panel in enumerate(row.panels):
                left = (index % columns) * (_WIDTH // columns)
                y = top + (index // columns) * height
                panels.append(_placed(_panel(panel), len(panels), left, y, _WIDTH // columns, height))
            top += -(-len(row.panels) // columns) * height
        return {
            "uid": self.name,
            "title": self.title,
            "description": self.description,
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

    def text(self) -> str:
        """The file that is shipped."""
        return json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"

    def config_map(self, namespace: str) -> Document:
        """For Grafana's sidecar."""
        described = metadata(f"{self.name}-dashboard", names.OPERATOR, namespace=namespace)
        described["labels"] |= FOUND_BY
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": described, "data": {self.file: self.text()}}


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
