"""How exporters are reached, and what they reach: Service and NetworkPolicies (NO-050). Pure."""

from collections.abc import Mapping
from typing import Final

from polyarch.kube.resources import NETWORK_POLICIES, SERVICES
from polyarch.numa import names
from polyarch.numa.operator.exporters.surroundings import METRICS_PORT, Surroundings, described
from polyarch.operating.labels import Document

SERVING_CERTIFICATE: Final = "service.beta.openshift.io/serving-cert-secret-name"
DENY_ALL: Final = "rte-default-deny-all"
EGRESS: Final = "rte-egress-to-api-server"
INGRESS: Final = "ingress-to-rte-metrics"
NAMES: Final = (DENY_ALL, EGRESS, INGRESS)
"""Of the NetworkPolicies."""
KUBELET_PORT: Final = 10250
DNS_PORTS: Final = (53, 5353)
"""DNS servers of OpenShift listen on 5353 behind their Service."""


def service(surroundings: Surroundings) -> Document:
    """Headless: each exporter is scraped by itself. On OpenShift an annotation makes the certificate."""
    metadata = described(names.EXPORTER_SERVICE, namespace=surroundings.namespace)
    if surroundings.certificates == "service-ca":
        metadata["annotations"] = {SERVING_CERTIFICATE: names.EXPORTER_CERTIFICATE}
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": dict(names.EXPORTER_POD_LABELS),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP"}],
        },
    }


def network_policies(surroundings: Surroundings) -> list[Document]:
    """Nothing but scrapes in; out to the API server, to DNS, and where the kubelet is asked, to its port."""
    if not surroundings.settings.network_policies:
        return []
    ports = [*surroundings.api_server_ports, *([KUBELET_PORT] if surroundings.asks_kubelets else ())]
    dns = [{"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return [
        _policy(DENY_ALL, {"policyTypes": ["Ingress", "Egress"]}, surroundings),
        _policy(
            EGRESS,
            {"policyTypes": ["Egress"], "egress": [{"ports": _tcp(*ports)}, {"ports": dns}]},
            surroundings,
        ),
        _policy(
            INGRESS,
            {"policyTypes": ["Ingress"], "ingress": [{"ports": _tcp(METRICS_PORT)}]},
            surroundings,
        ),
    ]


def _tcp(*ports: int) -> list[Document]:
    return [{"protocol": "TCP", "port": port} for port in sorted(set(ports))]


def _policy(name: str, spec: Mapping[str, object], surroundings: Surroundings) -> Document:
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": described(name, namespace=surroundings.namespace),
        "spec": {"podSelector": {"matchLabels": dict(names.EXPORTER_POD_LABELS)}, **spec},
    }
