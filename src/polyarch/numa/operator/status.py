"""The status of a NUMAResourcesOperator, without its conditions (NO-003, NO-094). Pure."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from polyarch.kube.resources import DAEMONSETS, NAMESPACES, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.operator.exporters.openshift import MACHINE_CONFIGS
from polyarch.numa.operator.exporters.surroundings import Surroundings, of_group
from polyarch.numa.operator.groups import Group
from polyarch.numa.operator.kubelet_configs import KUBELET_CONFIGS
from polyarch.numa.operator.observed import Document, Platform
from polyarch.objects import Condition

POOL_PAUSED: Final = "MachineConfigPoolPaused"


def status(groups: Sequence[Group], ready: Collection[str], surroundings: Surroundings) -> dict[str, Any]:
    """``ready``: names of the groups whose DaemonSet is. Pools are told of where there are any."""
    namespace = surroundings.namespace
    daemon_sets = {
        group.name: {"namespace": namespace, "name": of_group(group.name, namespace=namespace)["name"]}
        for group in groups
    }
    document: dict[str, Any] = {
        "daemonsets": [daemon_sets[group.name] for group in groups if group.name in ready],
        "nodeGroups": [
            {"daemonsets": daemon_sets[group.name], "config": group.settings.document(), "selector": group.name}
            for group in groups
            if group.name in ready
        ],
        "relatedObjects": [
            _reference(NAMESPACES, namespace),
            *([_reference(KUBELET_CONFIGS), _reference(MACHINE_CONFIGS)] if surroundings.on_openshift else ()),
            _reference(TOPOLOGIES),
            *(_reference(DAEMONSETS, each["name"], namespace) for each in daemon_sets.values()),
        ],
    }
    pools = [_pool(group, group.pool) for group in groups if group.pool is not None]
    return document | ({"machineconfigpools": pools} if surroundings.on_openshift else {})


def pools_paused(platform: Platform, pools: Sequence[Document]) -> Condition:
    """``MachineConfigPoolPaused`` (NO-091): the nodes of a paused pool keep what they have."""
    if platform != "openshift":
        return Condition(POOL_PAUSED, "Unknown", "NoMachineConfigPools", "there are no MachineConfigPools here")
    paused = sorted(each["metadata"]["name"] for each in pools if (each.get("spec") or {}).get("paused"))
    if not paused:
        return Condition(POOL_PAUSED, "False", "AsExpected", "no MachineConfigPool of a group is paused")
    return Condition(POOL_PAUSED, "True", "Paused", f"paused MachineConfigPools: {', '.join(paused)}")


def _pool(group: Group, pool: Document) -> dict[str, Any]:
    found = (pool.get("status") or {}).get("conditions") or []
    return {"name": pool["metadata"]["name"], "conditions": list(found), "config": group.settings.document()}


def _reference(resource: Resource, name: str = "", namespace: str = "") -> dict[str, str]:
    found = {"group": resource.group, "resource": resource.plural, "name": name}
    return found | ({"namespace": namespace} if namespace else {})
