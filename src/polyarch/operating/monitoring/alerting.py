"""Alerting rules (PL-720), each with a page in ``docs/guide/runbooks`` that is called like it. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from polyarch.operating.labels import Document, metadata
from polyarch.operating.monitoring.scraping import RULES

RUNBOOKS: Final = "https://github.com/polyarch/polyarch/blob/main/docs/guide/runbooks"

Severity = Literal["warning", "critical"]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alerting rule. ``$NAMESPACE`` in the expression is the operator's namespace."""

    name: str
    expression: str
    lasting: str
    """How long the expression must hold (``for``)."""
    severity: Severity
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


def none_available(deployment: str) -> str:
    """An expression: no pod of the Deployment is available."""
    return f'kube_deployment_status_replicas_available{{namespace="$NAMESPACE",deployment="{deployment}"}} == 0'


def prometheus_rule(name: str, controller: str, alerts: Sequence[Alert], namespace: str) -> Document:
    """The PrometheusRule of these alerts; it belongs to the Deployment ``controller``."""
    return {
        "apiVersion": RULES.api_version,
        "kind": RULES.kind,
        "metadata": metadata(name, controller, namespace=namespace),
        "spec": {"groups": [{"name": f"{name}.rules", "rules": [alert.document(namespace) for alert in alerts]}]},
    }
