"""Where serving certificates come from, for each setting of ``certificates``.

``self-managed``: the operator writes the Secret and every ``caBundle``. ``cert-manager``: an Issuer and a Certificate
make the Secret, and an annotation has the CA injected. ``service-ca`` (OpenShift): annotations do both; it writes one
Secret per Service, which is mounted together with the key of decision annotations. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from polyarch import names
from polyarch.kube.resources import Resource
from polyarch.operator.owned_objects import Document, metadata
from polyarch.operator.settings import Certificates, OperatorSettings

DIRECTORY: Final = "/etc/polyarch/certificates"
"""Where pods find ``tls.crt``, ``tls.key`` and ``record.key``."""
CA_CONFIGMAPS: Final = {
    names.PLACEMENT: "polyarch-serving-ca",
    names.TAINTS: "polyarch-taints-serving-ca",
    names.BUILDER: "polyarch-builder-serving-ca",
}
"""ConfigMap with the CA of the serving certificates, for Prometheus, by part: features come and go by themselves."""
RECORD_KEY: Final = "record.key"
SERVICES: Final = (
    names.OPERATOR,
    names.PLACEMENT_WEBHOOK,
    names.PLACEMENT_CONTROLLER,
    names.ENOEXEC_HANDLER,
    names.TAINTS,
    names.BUILDER,
)
"""Every Service with a certificate; one certificate has all their names but in mode ``service-ca``."""
ISSUERS: Final = Resource("cert-manager.io", "v1", "issuers", "Issuer")
CERTIFICATES: Final = Resource("cert-manager.io", "v1", "certificates", "Certificate")

_SERVICE_CA: Final = "service.beta.openshift.io"
_CERT_MANAGER_INJECTS: Final = "cert-manager.io/inject-ca-from"
_SERVICE_CA_INJECTS: Final = f"{_SERVICE_CA}/inject-cabundle"
INJECTIONS: Final = (_CERT_MANAGER_INJECTS, _SERVICE_CA_INJECTS)
"""Annotations by which others write ``caBundle``."""


def dns_names(namespace: str) -> tuple[str, ...]:
    """The names that a certificate for all our Services has."""
    return tuple(name for service in SERVICES for name in names_of(service, namespace))


def names_of(service: str, namespace: str) -> tuple[str, str]:
    """The names of one Service."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"


def secret_of(service: str, mode: Certificates) -> str:
    """The Secret with the certificate of this Service."""
    return f"{service}-certificates" if mode == "service-ca" else names.CERTIFICATES_SECRET


def volume(service: str, mode: Certificates, *, optional: bool = False) -> Document:
    """The pod volume ``certificates``. ``optional``: the pod starts without the Secret."""
    volume: Document = {"name": "certificates"}
    if mode != "service-ca":
        source: Document = {"secretName": names.CERTIFICATES_SECRET}
        return volume | {"secret": source | ({"optional": True} if optional else {})}
    serving: Document = {"name": secret_of(service, mode)} | ({"optional": True} if optional else {})
    items = [{"key": RECORD_KEY, "path": RECORD_KEY}]
    record_key: Document = {"name": names.CERTIFICATES_SECRET, "items": items, "optional": True}
    return volume | {"projected": {"sources": [{"secret": serving}, {"secret": record_key}]}}


def service_annotations(service: str, mode: Certificates) -> Mapping[str, str]:
    """Annotations of a Service."""
    return {f"{_SERVICE_CA}/serving-cert-secret-name": secret_of(service, mode)} if mode == "service-ca" else {}


def ca_annotations(settings: OperatorSettings) -> Mapping[str, str]:
    """Annotations of a webhook configuration, or of a CRD with conversion, by which others write its ``caBundle``."""
    if settings.certificates == "cert-manager":
        return {_CERT_MANAGER_INJECTS: f"{settings.namespace}/{names.CERTIFICATES_SECRET}"}
    if settings.certificates == "service-ca":
        return {_SERVICE_CA_INJECTS: "true"}
    return {}


def issued(settings: OperatorSettings) -> list[Document]:
    """Issuer and Certificate in mode ``cert-manager``; nothing in the others.

    They belong to the operator itself, which serves with the same certificate and outlives placement.
    """
    if settings.certificates != "cert-manager":
        return []
    described = metadata(names.CERTIFICATES_SECRET, names.OPERATOR, namespace=settings.namespace)
    return cert_manager_objects(described, dns_names(settings.namespace))


def cert_manager_objects(described: Document, dns_names: Sequence[str]) -> list[Document]:
    """An Issuer and a Certificate with this metadata; the Certificate's Secret is called like them."""
    name = described["name"]
    return [
        {"apiVersion": ISSUERS.api_version, "kind": ISSUERS.kind, "metadata": described, "spec": {"selfSigned": {}}},
        {
            "apiVersion": CERTIFICATES.api_version,
            "kind": CERTIFICATES.kind,
            "metadata": described,
            "spec": {
                "secretName": name,
                "duration": "2160h0m0s",
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "dnsNames": list(dns_names),
                "issuerRef": {"kind": ISSUERS.kind, "name": name},
            },
        },
    ]


def ca_for_scrapers(part: str, settings: OperatorSettings, ca_bundle: bytes) -> Document | None:
    """The ConfigMap by which Prometheus trusts our certificates; None in mode ``cert-manager``, whose Secret has it.

    ``part``: of whose Services. ``ca_bundle``: PEM; ignored in mode ``service-ca``, which has the CA injected.
    """
    if settings.certificates == "cert-manager":
        return None
    home = metadata(CA_CONFIGMAPS[part], part, namespace=settings.namespace)
    if settings.certificates == "service-ca":
        home["annotations"] = dict(ca_annotations(settings))
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": home}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": home, "data": {"ca.crt": ca_bundle.decode("ascii")}}


def scrapers_ca(part: str, mode: Certificates) -> Document:
    """Where a ServiceMonitor of this part finds the CA (``tlsConfig.ca``).

    The operator's own (an empty part) is there without any component, so it asks where the CA is by itself.
    """
    if mode == "cert-manager":
        return {"secret": {"name": names.CERTIFICATES_SECRET, "key": "ca.crt"}}
    if not part:
        if mode == "service-ca":  # OpenShift puts it into every namespace
            return {"configMap": {"name": "openshift-service-ca.crt", "key": "service-ca.crt"}}
        return {"secret": {"name": names.AUTHORITY_SECRET, "key": "tls.crt"}}
    return {"configMap": {"name": CA_CONFIGMAPS[part], "key": "service-ca.crt" if mode == "service-ca" else "ca.crt"}}
