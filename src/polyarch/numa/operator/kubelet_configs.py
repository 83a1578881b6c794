"""KubeletConfigs of OpenShift and HyperShift as settings of the topology manager by group (NO-052, NO-110 – NO-112).

Every pool that a KubeletConfig selects gets its settings. Of several for one pool the machine-config operator renders
files in the order of their names, of which the last one wins; the names end with a number that it writes into an
annotation of the KubeletConfig. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import msgspec

from polyarch.kube.resources import Resource
from polyarch.numa import names
from polyarch.numa.decide.facts import TopologyPolicy, TopologyScope
from polyarch.numa.operator.groups import Group
from polyarch.numa.operator.observed import Document, Platform
from polyarch.selectors import InvalidSelector, Selector

KUBELET_CONFIGS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "kubeletconfigs", "KubeletConfig", namespaced=False
)
HOSTED_NAMESPACE: Final = "openshift-config-managed"
HOSTED_LABEL: Final = "hypershift.openshift.io/kubeletconfig-config"
HOSTED_KEY: Final = "config"
"""Of a ConfigMap with :data:`HOSTED_LABEL`: the KubeletConfig of a NodePool as text."""
SUFFIX: Final = "machineconfiguration.openshift.io/mc-name-suffix"
POLICY: Final = "topologyManagerPolicy"
SCOPE: Final = "topologyManagerScope"
KNOWN: Final = {POLICY: get_args(TopologyPolicy), SCOPE: get_args(TopologyScope)}


class PoolKubelets(msgspec.Struct, frozen=True):
    """What the kubelets of a group's pool are told."""

    policy: TopologyPolicy = msgspec.field(default="none", name=POLICY)
    scope: TopologyScope = msgspec.field(default="container", name=SCOPE)
    note: str = ""
    """For people; empty: nothing to say."""

    def document(self) -> dict[str, str]:
        """The block ``kubelet`` of an exporter's file."""
        return {POLICY: self.policy, SCOPE: self.scope}


def by_group(
    groups: Iterable[Group], configurations: Sequence[Document], platform: Platform
) -> dict[str, PoolKubelets]:
    """By name of the group; a pool without KubeletConfig has the kubelet's defaults. On plain Kubernetes there is
    nothing, as exporters ask the kubelets."""
    if platform == "kubernetes":
        return {}
    ordered = sorted((each for each in configurations if _payload(each)), key=_order)
    return {group.name: _settings(group, [each for each in ordered if _is_for(each, group)]) for group in groups}


def _settings(group: Group, several: Sequence[Document]) -> PoolKubelets:
    if not several:
        return PoolKubelets()
    winner = several[-1]
    name, payload = winner["metadata"]["name"], _payload(winner)
    notes = []
    if len(several) > 1:
        all_of_them = ", ".join(each["metadata"]["name"] for each in several)
        notes.append(f"KubeletConfigs {all_of_them} are for pool {group.name}, and {name} applies")
    policy, scope = payload.get(POLICY) or "none", payload.get(SCOPE) or "container"
    for field, value in ((POLICY, policy), (SCOPE, scope)):
        if value not in KNOWN[field]:
            notes.append(f"KubeletConfig {name} has {field} {value!r:.40}, which no kubelet knows; taken as not set")
    known = {field: value for field, value in ((POLICY, policy), (SCOPE, scope)) if value in KNOWN[field]}
    return msgspec.convert({**known, "note": "; ".join(notes)}, PoolKubelets)


def _payload(configuration: Document) -> dict[str, Any]:
    payload = (configuration.get("spec") or {}).get("kubeletConfig")
    return payload if isinstance(payload, dict) else {}


def _order(configuration: Document) -> tuple[int, str, str]:
    metadata = configuration["metadata"]
    suffix = str((metadata.get("annotations") or {}).get(SUFFIX) or "")
    number = int(suffix) if suffix.isascii() and suffix.isdecimal() else 0
    return number, metadata.get("creationTimestamp") or "", metadata["name"]


def _is_for(configuration: Document, group: Group) -> bool:
    metadata = configuration["metadata"]
    if group.pool is None:
        return (metadata.get("labels") or {}).get(names.NODE_POOL_LABEL) == group.name
    selector = (configuration.get("spec") or {}).get("machineConfigPoolSelector")
    if selector is None:
        return False
    try:
        return Selector.parse(selector).matches(group.pool["metadata"].get("labels"))
    except InvalidSelector:
        return False
