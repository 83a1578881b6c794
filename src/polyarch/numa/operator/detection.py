"""Which platform a cluster is (NO-030). Pure."""

from typing import Final

from polyarch.kube.resources import Resource
from polyarch.numa.operator.observed import Document, Platform
from polyarch.operating import settings

CONFIG_GROUP: Final = "config.openshift.io"
CLUSTER_VERSIONS: Final = Resource(CONFIG_GROUP, "v1", "clusterversions", "ClusterVersion", namespaced=False)
INFRASTRUCTURES: Final = Resource(CONFIG_GROUP, "v1", "infrastructures", "Infrastructure", namespaced=False)


def platform_of(
    setting: settings.Platform, *, cluster_version: Document | None, infrastructure: Document | None
) -> Platform:
    """``setting`` wins unless it is ``auto``. The objects are those named ``version`` and ``cluster``; None: there are
    none, or no such kinds. What could not be asked for is not to be taken for absent: ask again."""
    if setting != "auto":
        return setting
    if cluster_version is None:
        return "kubernetes"
    topology = ((infrastructure or {}).get("status") or {}).get("controlPlaneTopology")
    return "hypershift" if topology == "External" else "openshift"
