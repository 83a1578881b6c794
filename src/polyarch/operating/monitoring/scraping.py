"""How Prometheus reads our metrics: over TLS, with its ServiceAccount's token (PL-703, PL-720).

The objects exist iff their kinds are served. Pure.
"""

from collections.abc import Iterable
from typing import Final

from polyarch.kube.resources import Resource
from polyarch.operating import names, serving
from polyarch.operating.labels import Document, metadata, part_of
from polyarch.operating.settings import OperatorSettings

SERVICE_MONITORS: Final = Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
RULES: Final = Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")


def objects(services: Iterable[str], settings: OperatorSettings, ca_bundle: bytes) -> list[Document]:
    """The ServiceMonitors of these Services, and the CA that they refer to. ``ca_bundle``: PEM."""
    several = tuple(services)
    parts = dict.fromkeys(map(part_of, several))
    authorities = (serving.ca_for_scrapers(part, settings, ca_bundle) for part in parts)
    return [
        *(each for each in authorities if each is not None),
        *(service_monitor(name, settings) for name in several),
    ]


def service_monitor(service: str, settings: OperatorSettings) -> Document:
    """Of one Service. Who scrapes needs ``get`` on the path ``/metrics``."""
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
                        "serverName": serving.names_of(service, namespace)[0],
                        "ca": serving.scrapers_ca(part_of(service), settings.certificates),
                    },
                    # Some metrics have a label ``namespace``: that of the pods they speak of, not ours.
                    "honorLabels": True,
                }
            ],
        },
    }
