"""How Prometheus reads the scheduler's pods, and what it warns of (NO-095, NS-166). Pure.

The objects exist iff their kinds are served. Both containers make their serving certificates themselves, as the stock
kube-scheduler does, so there is no CA to check them by.
"""

from typing import Final

from polyarch.kube.resources import SERVICES
from polyarch.numa.names import SCHEDULER, STATUS_PORT
from polyarch.numa.operator.monitoring.alerts import SCHEDULER_ALERTS
from polyarch.operating import names
from polyarch.operating.labels import Document, metadata
from polyarch.operating.monitoring.alerting import prometheus_rule
from polyarch.operating.monitoring.scraping import SERVICE_MONITORS

SERVICE: Final = "secondary-scheduler-metrics"
_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def scraped(namespace: str, scheduler_port: int) -> list[Document]:
    """A headless Service, so that each pod is read by itself; its ServiceMonitor; the alerts."""
    home = metadata(SERVICE, names.NUMA_SCHEDULER, namespace=namespace)
    ports = {"metrics": STATUS_PORT, "scheduler": scheduler_port}
    return [
        {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": home,
            "spec": {
                "clusterIP": "None",
                "selector": {"app": SCHEDULER},
                "ports": [
                    {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()
                ],
            },
        },
        {
            "apiVersion": SERVICE_MONITORS.api_version,
            "kind": SERVICE_MONITORS.kind,
            "metadata": home,
            "spec": {
                "selector": {"matchLabels": {names.CONTROLLER_LABEL: names.NUMA_SCHEDULER}},
                "namespaceSelector": {"matchNames": [namespace]},
                "endpoints": [
                    {
                        "port": name,
                        "path": "/metrics",
                        "scheme": "https",
                        "bearerTokenFile": _TOKEN,
                        "tlsConfig": {"insecureSkipVerify": True},
                        "honorLabels": True,
                    }
                    for name in ports
                ],
            },
        },
        prometheus_rule(names.NUMA_SCHEDULER, names.NUMA_SCHEDULER, SCHEDULER_ALERTS, namespace),
    ]
