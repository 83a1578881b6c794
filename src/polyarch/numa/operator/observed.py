"""What the operator knows of a cluster when it plans for a NUMAResourcesOperator. Pure.

``reconcilers`` reads it from caches, ``polyarch run operator --plan`` from files. Objects of kinds that only some
clusters have are documents as they are.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from polyarch.kube.resources import Resource
from polyarch.operating.settings import OperatorSettings

Document = Mapping[str, Any]
Platform = Literal["kubernetes", "openshift", "hypershift"]
USUAL_API_PORTS = (6443,)
POOLS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "machineconfigpools", "MachineConfigPool", namespaced=False
)
API_SERVERS: Final = Resource("config.openshift.io", "v1", "apiservers", "APIServer", namespaced=False)


class NodeLabels(msgspec.Struct, frozen=True, gc=False):
    """All that matters of a Node."""

    name: str
    labels: Mapping[str, str] = {}


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The object, and everything beside it that a plan depends on. There is no clock in it but for what has lasted."""

    object: Document
    """The NUMAResourcesOperator."""
    settings: OperatorSettings = OperatorSettings()
    image_restricted: bool = True
    """``spec.imageSpec`` is not taken; the variable EXPORTER_IMAGE_RESTRICTION of the operator says otherwise."""
    platform: Platform = "kubernetes"
    version: tuple[int, int] = (1, 30)
    """Of the API server."""
    served: frozenset[Resource] = frozenset()
    """Optional kinds that the API server has: those of cert-manager."""
    has_own_authority: bool = True
    """The operator has a CA of its own, and writes the certificate that a plan asks for."""
    namespace_labels: Mapping[str, str] | None = None
    """Of the namespace of the exporters; None: there is no such namespace."""
    api_server_ports: tuple[int, ...] = USUAL_API_PORTS
    """Of the endpoints of the Service ``kubernetes``."""
    tls_profile: Document | None = None
    """``spec.tlsSecurityProfile`` of OpenShift's APIServer; None: none, or no OpenShift."""
    nodes: tuple[NodeLabels, ...] = ()
    pools: tuple[Document, ...] = ()
    """MachineConfigPools."""
    kubelet_configs: tuple[Document, ...] = ()
    """KubeletConfigs of OpenShift. Of HyperShift, the same object, read from the text of a ConfigMap whose metadata it
    keeps."""
    daemon_sets: Mapping[str, Document] = {}
    """DaemonSets of ours, by name."""
    waiting_pods: Mapping[str, tuple[str, ...]] = {}
    """By DaemonSet: ``pod: reason`` of pods that are not ready."""
    stalled_for: Mapping[str, float] = {}
    """By DaemonSet: seconds since its roll-out last got further."""
    findings: Mapping[str, tuple[str, ...]] = {}
    """By node with a NodeResourceTopology: what ``kubelet_findings`` finds in it (NO-091)."""
    api_problem: str = ""
    """Why the CustomResourceDefinition of NodeResourceTopology could not be brought up to date; empty: it was."""
