"""The permissions of an exporter, from the parts that its settings turn on.

No secrets, no delete, no ``nodes/proxy``, no wildcard. RBAC cannot say that an exporter requests only its own Node, and
only the pods of its node: that is a matter of the requests. Pure.
"""

from typing import Final, NamedTuple

from polyarch.kube.rbac import Rule, rule, union
from polyarch.kube.resources import NODES, PODS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.exporter.settings import ExporterSettings

TOPOLOGY: Final = rule(TOPOLOGIES, "get", "list", "watch", "create", "update", "patch")
"""``create`` cannot be narrowed to a name; an admission policy narrows the other verbs."""
NODE: Final = rule(NODES, "get", "list", "watch")
CONFIGZ: Final = rule(NODES, "get", subresource="configz")
"""The kubelet asks the API server whether the exporter may read its configuration."""
TERMINAL_PODS: Final = rule(PODS, "list", "watch")
"""In all namespaces, but always with ``spec.nodeName``."""
OWN_POD: Final = (rule(PODS, "get"), rule(PODS, "patch", subresource="status"))


class ExporterPermissions(NamedTuple):
    """Permissions in the whole cluster, and in the exporter's own namespace."""

    cluster: tuple[Rule, ...]
    namespace: tuple[Rule, ...]


def exporter_permissions(settings: ExporterSettings) -> ExporterPermissions:
    """Exactly what an exporter with these settings uses."""
    cluster = [TOPOLOGY]
    if needs_node(settings):
        cluster.append(NODE)
    if asks_configz(settings):
        cluster.append(CONFIGZ)
    if settings.scan.exclude_terminal_pods:
        cluster.append(TERMINAL_PODS)
    return ExporterPermissions(union(*cluster), OWN_POD if settings.publish.podreadiness else ())


def needs_node(settings: ExporterSettings) -> bool:
    """True if the own Node is watched: as the owner, for its resources, or for the kubelet's address."""
    return settings.scan.add_nrt_owner or settings.triggers.refresh_node_resources or asks_configz(settings)


def asks_configz(settings: ExporterSettings) -> bool:
    """True if the kubelet's ``/configz`` is a source of its settings."""
    host = settings.host
    given = host.topology_manager_policy is not None and host.topology_manager_scope is not None
    return not given and host.kubelet_config != "file"
