"""Who makes the serving certificate of the exporters, and the objects that ask for it (NO-064). Pure."""

from collections.abc import Collection
from typing import Final

from polyarch.kube.resources import Resource
from polyarch.numa import names
from polyarch.numa.operator.exporters.surroundings import CertificateSource, Surroundings, described
from polyarch.numa.operator.observed import Platform
from polyarch.numa.operator.outcome import ServingCertificate
from polyarch.operating import serving
from polyarch.operating.labels import Document

WITHOUT_TLS: Final = (
    "metrics are served without TLS: there is no cert-manager, and the operator has no CA of its own; install "
    "cert-manager, or set certificates: self-managed"
)


def source_of(platform: Platform, served: Collection[Resource], *, has_own_authority: bool) -> CertificateSource:
    """OpenShift's serving certificates; elsewhere cert-manager if it is there, else the operator's own CA."""
    if platform != "kubernetes":
        return "service-ca"
    if {serving.ISSUERS, serving.CERTIFICATES} <= set(served):
        return "cert-manager"
    return "self-managed" if has_own_authority else "none"


def issued(surroundings: Surroundings) -> list[Document]:
    """Issuer and Certificate of cert-manager."""
    if surroundings.certificates != "cert-manager":
        return []
    home = described(names.EXPORTER_CERTIFICATE, namespace=surroundings.namespace)
    issuer, certificate = serving.ISSUERS, serving.CERTIFICATES
    return [
        {"apiVersion": issuer.api_version, "kind": issuer.kind, "metadata": home, "spec": {"selfSigned": {}}},
        {
            "apiVersion": certificate.api_version,
            "kind": certificate.kind,
            "metadata": home,
            "spec": {
                "secretName": names.EXPORTER_CERTIFICATE,
                "duration": "2160h0m0s",
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "dnsNames": list(_dns_names(surroundings.namespace)),
                "issuerRef": {"kind": issuer.kind, "name": names.EXPORTER_CERTIFICATE},
            },
        },
    ]


def to_be_signed(surroundings: Surroundings) -> ServingCertificate | None:
    """What the operator signs itself."""
    if surroundings.certificates != "self-managed":
        return None
    namespace = surroundings.namespace
    return ServingCertificate(namespace, names.EXPORTER_CERTIFICATE, _dns_names(namespace))


def _dns_names(namespace: str) -> tuple[str, ...]:
    return serving.names_of(names.EXPORTER_SERVICE, namespace)
