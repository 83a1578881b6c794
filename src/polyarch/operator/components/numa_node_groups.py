"""From ``nodeGroups`` to groups of nodes, and what the kubelets of each group are told. Pure.

On OpenShift an entry means MachineConfigPools, each of which is a group of its own; on HyperShift a NodePool; elsewhere
nodes by role or by labels. All that is wrong is told together, with index and name of the entry.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from polyarch.kube.resources import Resource, few
from polyarch.numa import names
from polyarch.numa.api.resources import GroupSettings, NodeGroup
from polyarch.numa.facts import TopologyPolicy, TopologyScope
from polyarch.operator.components.numa_facts import NodeLabels, Platform, ReadDocument
from polyarch.selectors import InvalidSelector, Requirement, Selector

DNS_LABEL_LENGTH: Final = 63
UNNAMED_PREFIX: Final = "ng-"
WORKERS, CONTROL_PLANE = "worker", "master"
"""MachineConfigPools that every OpenShift has; all others are custom."""
_OPPOSITES: Final = {"In": "NotIn", "Exists": "DoesNotExist", "NotIn": "In", "DoesNotExist": "Exists"}
KNOWN_ANNOTATIONS: Final = frozenset(
    (
        names.SELINUX_POLICY,
        names.KUBELET_ROOT,
        names.KUBELET_STATE,
        names.REFERENCE,
        names.PLACEMENT_VECTORS,
        names.HEARTBEAT,
    )
)
"""Annotations of groups that have an effect."""


class ResolvedNodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes whose exporters work alike: one DaemonSet, one ConfigMap."""

    name: str
    index: int
    """Index of its entry in ``nodeGroups``."""
    selector: Selector
    """Selects the nodes by their labels."""
    settings: GroupSettings = GroupSettings()
    annotations: Mapping[str, str] = {}
    pool: ReadDocument | None = None
    """The MachineConfigPool."""
    nodes: tuple[str, ...] = ()
    """Names, in order."""

    @property
    def place(self) -> str:
        """The group as messages name it."""
        return f"nodeGroups[{self.index}] ({self.name})"


class ResolvedNodeGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that ``nodeGroups`` means, and what is wrong with it."""

    groups: tuple[ResolvedNodeGroup, ...] = ()
    problems: tuple[str, ...] = ()
    """Violations; nothing is changed while there are any."""
    warnings: tuple[str, ...] = ()
    """What is odd although it is done."""
    unknown_annotations: tuple[tuple[str, str], ...] = ()
    """Group and key."""


class _Entry(msgspec.Struct, frozen=True):
    """One entry of ``nodeGroups``, not yet validated."""

    index: int
    group: NodeGroup

    @property
    def place(self) -> str:
        name = self.group.pool_name
        return f"nodeGroups[{self.index}]" + (f" ({name[:DNS_LABEL_LENGTH]})" if name else "")

    def group_of(self, name: str, selector: Selector, pool: ReadDocument | None = None) -> ResolvedNodeGroup:
        return ResolvedNodeGroup(
            name=name,
            index=self.index,
            selector=selector,
            settings=GroupSettings.of(self.group),
            annotations=self.group.annotations or {},
            pool=pool,
        )


class _InvalidEntryError(ValueError):
    """The entry means nothing."""


def resolve(
    entries: Sequence[NodeGroup],
    *,
    platform: Platform,
    nodes: Sequence[NodeLabels],
    pools: Sequence[ReadDocument] = (),
    several_pools: bool = False,
) -> ResolvedNodeGroups:
    """The groups, in the order of their entries. ``several_pools``: an entry may mean several pools."""
    groups: list[ResolvedNodeGroup] = []
    problems: list[str] = []
    warnings: list[str] = []
    for index, given in enumerate(entries):
        entry = _Entry(index, given)
        try:
            found = _meaning(entry, platform, pools)
        except (_InvalidEntryError, InvalidSelector) as error:
            problems.append(f"{entry.place}: {error}")
            continue
        if len(found) > 1 and not several_pools:
            warnings.append(
                f"{entry.place}: selects {len(found)} MachineConfigPools ({few(group.name for group in found)}); "
                f"give each its own entry, or set the annotation {names.MULTIPLE_POOLS}: enabled"
            )
        groups += found
    problems += _repeated(entries, groups)
    groups = _with_nodes(_without_custom_pools(groups), nodes)
    if not problems:
        problems += _overlaps(groups)
    unknown = {
        (group.name, key): None for group in groups for key in sorted(set(group.annotations) - KNOWN_ANNOTATIONS)
    }
    return ResolvedNodeGroups(
        groups=tuple(groups),
        problems=tuple(problems),
        warnings=tuple(warnings),
        unknown_annotations=tuple(unknown),
    )


def _meaning(entry: _Entry, platform: Platform, pools: Sequence[ReadDocument]) -> list[ResolvedNodeGroup]:
    """The groups of an entry. Raises :class:`_InvalidEntryError` or ``InvalidSelector``."""
    group = entry.group
    if group.pool_name is not None:
        _check_name(group.pool_name)
    match platform:
        case "openshift":
            return _groups_of_pools(entry, pools)
        case "hypershift":
            if group.machine_config_pool_selector is not None:
                raise _InvalidEntryError(
                    "machineConfigPoolSelector: there are no MachineConfigPools on HyperShift: use poolName"
                )
            _refuse_node_selector(group)
            if group.pool_name is None:
                raise _InvalidEntryError("needs poolName, the name of a NodePool")
            selected = Selector((Requirement(names.NODE_POOL_LABEL, "In", (group.pool_name,)),))
            return [entry.group_of(group.pool_name, selected)]
        case _:
            return [_group_of_labels(entry)]


def _groups_of_pools(entry: _Entry, pools: Sequence[ReadDocument]) -> list[ResolvedNodeGroup]:
    group = entry.group
    _refuse_node_selector(group)
    if (group.machine_config_pool_selector is None) == (group.pool_name is None):
        raise _InvalidEntryError("needs exactly one of machineConfigPoolSelector and poolName")
    if group.pool_name is not None:
        found = [pool for pool in pools if pool["metadata"]["name"] == group.pool_name]
        if not found:
            known = few(sorted(pool["metadata"]["name"] for pool in pools)) or "none"
            raise _InvalidEntryError(f"there is no MachineConfigPool {group.pool_name}; there are {known}")
    else:
        selector = _parsed("machineConfigPoolSelector", group.machine_config_pool_selector)
        found = [pool for pool in pools if selector.matches(pool["metadata"].get("labels"))]
        if not found:
            raise _InvalidEntryError("machineConfigPoolSelector matches no MachineConfigPool")
    return [
        entry.group_of(pool["metadata"]["name"], _nodes_of(pool), pool)
        for pool in sorted(found, key=lambda pool: str(pool["metadata"]["name"]))
    ]


def _nodes_of(pool: ReadDocument) -> Selector:
    given = (pool.get("spec") or {}).get("nodeSelector")
    if given is None:
        raise _InvalidEntryError(
            f"MachineConfigPool {pool['metadata']['name']} has no spec.nodeSelector, so it has no nodes"
        )
    return _parsed(f"MachineConfigPool {pool['metadata']['name']}: spec.nodeSelector", given)


def _group_of_labels(entry: _Entry) -> ResolvedNodeGroup:
    """The group of an entry on plain Kubernetes."""
    group = entry.group
    if group.node_selector is not None:
        if group.machine_config_pool_selector is not None:
            raise _InvalidEntryError("has machineConfigPoolSelector and nodeSelector; keep nodeSelector")
        selector = _parsed("nodeSelector", group.node_selector)
        return entry.group_of(group.pool_name or unnamed(group.node_selector), selector)
    if group.machine_config_pool_selector is not None:
        if group.pool_name is not None:
            raise _InvalidEntryError("has machineConfigPoolSelector and poolName; keep one of them")
        return _group_of_role(entry, _role(group.machine_config_pool_selector))
    if group.pool_name is None:
        raise _InvalidEntryError("needs poolName, nodeSelector or machineConfigPoolSelector")
    return _group_of_role(entry, group.pool_name)


def _group_of_role(entry: _Entry, role: str) -> ResolvedNodeGroup:
    return entry.group_of(role, Selector((Requirement(f"{names.NODE_ROLE_PREFIX}{role}", "Exists"),)))


def _role(pools: Mapping[str, Any]) -> str:
    """The role that a selector of MachineConfigPools stands for."""
    labels = pools.get("matchLabels") or {}
    (key, *others) = labels or [""]
    role = str(key).removeprefix(names.POOL_LABEL_PREFIX)
    if others or role == key or not role or pools.get("matchExpressions"):
        raise _InvalidEntryError("no MachineConfigPools here: use nodeSelector")
    _check_name(role)
    return role


def unnamed(selector: Mapping[str, Any]) -> str:
    """The name of a group that gives none: by its selector, whatever the order of its members."""
    canonical = msgspec.json.encode(_canonical(selector), order="deterministic")
    return f"{UNNAMED_PREFIX}{hashlib.sha256(canonical).hexdigest()[:8]}"


def _canonical(selector: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty members, and with lists, which are sets, in order."""
    expressions = [
        {"key": expression.get("key"), "operator": expression.get("operator")}
        | ({"values": sorted(expression["values"])} if expression.get("values") else {})
        for expression in selector.get("matchExpressions") or ()
    ]
    members = {
        "matchExpressions": sorted(
            expressions, key=lambda expression: msgspec.json.encode(expression, order="deterministic")
        ),
        "matchLabels": dict(selector.get("matchLabels") or {}),
    }
    return {name: value for name, value in members.items() if value}


def _check_name(name: str) -> None:
    allowed = name.replace("-", "").isalnum() and name.isascii() and name == name.lower()
    if not name or not allowed or len(name) > DNS_LABEL_LENGTH or name[0] == "-" or name[-1] == "-":
        raise _InvalidEntryError(
            f"{name[:80]!r} cannot be the name of a group: write up to 63 lower-case letters, digits and '-', starting "
            "and ending with a letter or digit"
        )


def _refuse_node_selector(group: NodeGroup) -> None:
    if group.node_selector is not None:
        raise _InvalidEntryError("nodeSelector is for plain Kubernetes; here the nodes are those of a pool")


def _parsed(field: str, selector: Any) -> Selector:
    try:
        return Selector.parse(selector)
    except InvalidSelector as error:
        raise _InvalidEntryError(f"{field}{'.' if error.field else ''}{error}") from None


def _repeated(entries: Sequence[NodeGroup], groups: Sequence[ResolvedNodeGroup]) -> Iterator[str]:
    """The same name or the same selector twice, and pools of two entries."""
    by_name, by_selector = (
        defaultdict[str, list[ResolvedNodeGroup]](list),
        defaultdict[str, list[ResolvedNodeGroup]](list),
    )
    for group in groups:
        by_name[group.name].append(group)
        if group.pool is None:
            by_selector[_written(group.selector)].append(group)
    for name, several in by_name.items():
        if len(several) > 1:
            places = " and ".join(f"nodeGroups[{group.index}]" for group in several)
            what = "select the same MachineConfigPool" if several[0].pool is not None else "have the same name"
            yield f"{places} ({name}): {what}"
    for several in by_selector.values():
        if len(several) > 1 and len({group.name for group in several}) > 1:
            yield f"{' and '.join(group.place for group in several)}: have the same selector"


def _written(selector: Selector) -> str:
    parts = sorted(
        (requirement.key, requirement.operator, sorted(requirement.values)) for requirement in selector.requirements
    )
    return msgspec.json.encode(parts).decode()


def _without_custom_pools(groups: Sequence[ResolvedNodeGroup]) -> list[ResolvedNodeGroup]:
    """Nodes of a custom pool have the labels of workers, too. They are the custom pool's, says the machine-config
    operator, so with a group for each pool they are in that of the custom pool alone.

    A pool that is selected by several labels cannot be excepted in a selector: its nodes are told as an overlap.
    """
    custom = [
        Requirement(one.key, _OPPOSITES[one.operator], one.values)
        for group in groups
        if group.pool is not None and group.name not in (WORKERS, CONTROL_PLANE)
        if len(group.selector.requirements) == 1
        for one in group.selector.requirements
        if one.operator in _OPPOSITES
    ]
    return [
        msgspec.structs.replace(group, selector=Selector((*group.selector.requirements, *custom)))
        if group.pool is not None and group.name == WORKERS
        else group
        for group in groups
    ]


def _with_nodes(groups: Iterable[ResolvedNodeGroup], nodes: Sequence[NodeLabels]) -> list[ResolvedNodeGroup]:
    return [
        msgspec.structs.replace(
            group, nodes=tuple(sorted(node.name for node in nodes if group.selector.matches(node.labels)))
        )
        for group in groups
    ]


def _overlaps(groups: Sequence[ResolvedNodeGroup]) -> Iterator[str]:
    """Nodes of two groups: each would have two exporters that write one object."""
    first: dict[str, ResolvedNodeGroup] = {}
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for group in groups:
        for node in group.nodes:
            other = first.setdefault(node, group)
            if other is not group:
                shared[other.place, group.place].append(node)
    for (before, after), several in shared.items():
        found = f"{_counted(several)} {few(sorted(several))}"
        yield f"{before} and {after}: both select {found}; a node belongs to one group"


def _counted(several: Sequence[str]) -> str:
    return "node" if len(several) == 1 else f"{len(several)} nodes:"


# -- settings of kubelets ----------------------------------------------------------------------------------------------


# Every pool that a KubeletConfig selects gets its settings. Of several for one pool the machine-config operator renders
# files in the order of their names, of which the last one wins; the names end with a number that it writes into an
# annotation of the KubeletConfig.

KUBELET_CONFIGS: Final = Resource(
    "machineconfiguration.openshift.io", "v1", "kubeletconfigs", "KubeletConfig", namespaced=False
)
HOSTED_NAMESPACE: Final = "openshift-config-managed"
HOSTED_LABEL: Final = "hypershift.openshift.io/kubeletconfig-config"
HOSTED_KEY: Final = "config"
"""The key of a ConfigMap with :data:`HOSTED_LABEL` under which the KubeletConfig of a NodePool stands as text."""
SUFFIX: Final = "machineconfiguration.openshift.io/mc-name-suffix"
POLICY: Final = "topologyManagerPolicy"
SCOPE: Final = "topologyManagerScope"
KNOWN: Final = {POLICY: get_args(TopologyPolicy), SCOPE: get_args(TopologyScope)}


class PoolKubelets(msgspec.Struct, frozen=True):
    """The settings of the topology manager of a group's kubelets."""

    policy: TopologyPolicy = msgspec.field(default="none", name=POLICY)
    scope: TopologyScope = msgspec.field(default="container", name=SCOPE)
    note: str = ""
    """A message for people; empty: none."""

    def document(self) -> dict[str, str]:
        """The block ``kubelet`` of an exporter's file."""
        return {POLICY: self.policy, SCOPE: self.scope}


def by_group(
    groups: Iterable[ResolvedNodeGroup], configurations: Sequence[ReadDocument], platform: Platform
) -> dict[str, PoolKubelets]:
    """The settings by name of the group; a pool without KubeletConfig has the kubelet's defaults. On plain Kubernetes
    there is nothing, as exporters ask the kubelets."""
    if platform == "kubernetes":
        return {}
    ordered = sorted((configuration for configuration in configurations if _payload(configuration)), key=_order)
    return {
        group.name: _settings(group, [configuration for configuration in ordered if _is_for(configuration, group)])
        for group in groups
    }


def _settings(group: ResolvedNodeGroup, several: Sequence[ReadDocument]) -> PoolKubelets:
    if not several:
        return PoolKubelets()
    winner = several[-1]
    name, payload = winner["metadata"]["name"], _payload(winner)
    notes = []
    if len(several) > 1:
        all_of_them = ", ".join(configuration["metadata"]["name"] for configuration in several)
        notes.append(f"KubeletConfigs {all_of_them} are for pool {group.name}, and {name} applies")
    policy, scope = payload.get(POLICY) or "none", payload.get(SCOPE) or "container"
    for field, value in ((POLICY, policy), (SCOPE, scope)):
        if value not in KNOWN[field]:
            notes.append(f"KubeletConfig {name} has {field} {value!r:.40}, which no kubelet knows; taken as not set")
    known = {field: value for field, value in ((POLICY, policy), (SCOPE, scope)) if value in KNOWN[field]}
    return msgspec.convert({**known, "note": "; ".join(notes)}, PoolKubelets)


def _payload(configuration: ReadDocument) -> dict[str, Any]:
    payload = (configuration.get("spec") or {}).get("kubeletConfig")
    return payload if isinstance(payload, dict) else {}


def _order(configuration: ReadDocument) -> tuple[int, str, str]:
    metadata = configuration["metadata"]
    suffix = str((metadata.get("annotations") or {}).get(SUFFIX) or "")
    number = int(suffix) if suffix.isascii() and suffix.isdecimal() else 0
    return number, metadata.get("creationTimestamp") or "", metadata["name"]


def _is_for(configuration: ReadDocument, group: ResolvedNodeGroup) -> bool:
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
