"""Grafana dashboards from tables of panels (PL-721).

``deploy/dashboard`` has each as a file to import. With the ConfigMap, Grafana's sidecar finds it by its label. Pure.
"""

import json
from typing import Any, Final, NamedTuple

from polyarch.operating import names
from polyarch.operating.labels import Document, metadata

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


class Row(NamedTuple):
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
    rows: tuple[Row, ...]

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
