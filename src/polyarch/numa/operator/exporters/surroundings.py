"""What the exporters of all groups have in common, as far as their objects differ by it. Pure."""

import hashlib
from typing import Final, Literal

import msgspec

from polyarch.numa import names
from polyarch.numa.api.resources import NamespacedName
from polyarch.numa.operator.exporters.tls_profile import TlsPolicy
from polyarch.numa.operator.observed import USUAL_API_PORTS, Platform
from polyarch.operating import names as shared
from polyarch.operating.labels import Document, metadata
from polyarch.operating.settings import OLDEST_KUBERNETES, OperatorSettings

CertificateSource = Literal["service-ca", "cert-manager", "self-managed", "none"]
METRICS_PORT: Final = 2112
LONGEST_NAME: Final = 63


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the object, after everything was checked."""

    settings: OperatorSettings = OperatorSettings()
    """``image`` is the exporters' image."""
    platform: Platform = "kubernetes"
    version: tuple[int, int] = OLDEST_KUBERNETES
    verbosity: int = 2
    pod_excludes: tuple[NamespacedName, ...] = ()
    certificates: CertificateSource = "self-managed"
    """Who makes the serving certificate; ``none``: metrics are served without TLS (NO-064)."""
    tls: TlsPolicy = TlsPolicy()
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS

    @property
    def namespace(self) -> str:
        return self.settings.numa_home

    @property
    def on_openshift(self) -> bool:
        """There are SecurityContextConstraints and serving certificates."""
        return self.platform != "kubernetes"

    @property
    def asks_kubelets(self) -> bool:
        """Exporters read the kubelet's settings on the node itself (NO-052)."""
        return self.platform == "kubernetes"

    @property
    def with_tls(self) -> bool:
        return self.certificates != "none"


def described(name: str, *, namespace: str = "") -> Document:
    """``metadata`` of an object that all groups share."""
    return metadata(name, shared.NUMA_EXPORTER, namespace=namespace)


def of_group(group: str, *, namespace: str) -> Document:
    """``metadata`` of an object of one group, found by the labels that the predecessor gave it (NO-051)."""
    found = metadata(shortened(f"{names.OPERATOR_SINGLETON}-{group}"), shared.NUMA_EXPORTER, namespace=namespace)
    return found | {"labels": {**found["labels"], names.OPERATOR_LABEL: names.OPERATOR_SINGLETON, **group_label(group)}}


def group_label(group: str) -> dict[str, str]:
    """By which the objects and pods of a group are found."""
    return {names.GROUP_LABEL: shortened(group)}


def shortened(name: str) -> str:
    """As it is up to 63 characters, else cut, with a digest of all of it (NO-051)."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(digest) - 1].rstrip('-.')}-{digest}"
