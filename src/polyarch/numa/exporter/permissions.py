"""The rights of an exporter, from the parts that its settings turn on.

No secrets, no delete, no ``nodes/proxy``, no wildcard. That Nodes are asked for by the own name alone, and pods by
their node, is a matter of the requests: RBAC cannot say it."""

from typing import NamedTuple

from polyarch.kube.rbac import Rule, rule, union
from polyarch.kube.resources import NODES
from polyarch.numa.exporter.cluster import NODE_PERMISSIONS, POD_PERMISSIONS, TERMINAL_PODS_PERMISSIONS
from polyarch.numa.exporter.publisher import TOPOLOGY_PERMISSIONS
from polyarch.numa.exporter.settings import ExporterSettings

CONFIGZ_PERMISSIONS = (rule(NODES, "get", subresource="configz"),)
"""The kubelet asks the API server whether the exporter may read its configuration."""


class ExporterPermissions(NamedTuple):
    """In the whole cluster, and in the exporter's own namespace."""

    cluster: tuple[Rule, ...]
    namespace: tuple[Rule, ...]


def exporter_permissions(settings: ExporterSettings) -> ExporterPermissions:
    """Exactly what an exporter with these settings uses."""
    cluster = [*TOPOLOGY_PERMISSIONS]
    if needs_node(settings):
        cluster += NODE_PERMISSIONS
    if asks_configz(settings):
        cluster += CONFIGZ_PERMISSIONS
    if settings.scan.exclude_terminal_pods:
        cluster += TERMINAL_PODS_PERMISSIONS
    return ExporterPermissions(union(*cluster), POD_PERMISSIONS if settings.publish.podreadiness else ())


def needs_node(settings: ExporterSettings) -> bool:
    """Whether the own Node is followed: as the owner, for its resources, or for the kubelet's address."""
    return settings.scan.add_nrt_owner or settings.triggers.refresh_node_resources or asks_configz(settings)


def asks_configz(settings: ExporterSettings) -> bool:
    """Whether the kubelet's ``/configz`` is a source of its settings."""
    host = settings.host
    told = host.topology_manager_policy is not None and host.topology_manager_scope is not None
    return not told and host.kubelet_config != "file"
