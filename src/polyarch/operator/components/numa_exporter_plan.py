"""The status of a NUMAResourcesOperator, without its conditions. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.kube.owners import Owner
from polyarch.kube.resources import DAEMONSETS, NAMESPACES, Resource, few
from polyarch.kube.schema import without_nulls
from polyarch.numa import names
from polyarch.numa.api.crds import operator_violations
from polyarch.numa.api.resources import OPERATORS, NUMAResourcesOperator, NUMAResourcesOperatorSpec, verbosity
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.facts import MalformedPattern, compile_pattern
from polyarch.numa.names import NODE_GROUP_LABEL
from polyarch.objects import Condition, ObjectMeta
from polyarch.operator.components import numa_exporter_objects, numa_facts, numa_node_groups
from polyarch.operator.components.numa_exporter_objects import (
    MACHINE_CONFIGS,
    ExporterContext,
    TlsPolicy,
    exporter_objects,
    of_group,
)
from polyarch.operator.components.numa_facts import (
    ExporterFacts,
    ExporterPlan,
    OperatorCondition,
    PlannedEvent,
    Platform,
    ReadDocument,
    four,
)
from polyarch.operator.components.numa_node_groups import (
    KUBELET_CONFIGS,
    Group,
    PoolKubelets,
    ResolvedNodeGroups,
    resolve,
)

POOL_PAUSED: Final = "MachineConfigPoolPaused"


def status(groups: Sequence[Group], ready: Collection[str], surroundings: ExporterContext) -> dict[str, Any]:
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


def pools_paused(platform: Platform, pools: Sequence[ReadDocument]) -> Condition:
    """``MachineConfigPoolPaused``: the nodes of a paused pool keep what they have."""
    if platform != "openshift":
        return Condition(POOL_PAUSED, "Unknown", "NoMachineConfigPools", "there are no MachineConfigPools here")
    paused = sorted(each["metadata"]["name"] for each in pools if (each.get("spec") or {}).get("paused"))
    if not paused:
        return Condition(POOL_PAUSED, "False", "AsExpected", "no MachineConfigPool of a group is paused")
    return Condition(POOL_PAUSED, "True", "Paused", f"paused MachineConfigPools: {', '.join(paused)}")


def _pool(group: Group, pool: ReadDocument) -> dict[str, Any]:
    found = (pool.get("status") or {}).get("conditions") or []
    return {"name": pool["metadata"]["name"], "conditions": list(found), "config": group.settings.document()}


def _reference(resource: Resource, name: str = "", namespace: str = "") -> dict[str, str]:
    found = {"group": resource.group, "resource": resource.plural, "name": name}
    return found | ({"namespace": namespace} if namespace else {})


# -- From a NUMAResourcesOperator and its cluster to the objects that should be there, status and conditions.


ENABLED: Final = "enabled"
PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""What a namespace needs for pods that mount directories of the host."""
DAEMON_SETS_AGAIN: Final = 5.0
POOLS_AGAIN: Final = 60.0
STUCK_AGAIN: Final = 60.0
"""A DaemonSet that gets on is seen by its watch; each look reads the pods of all exporters."""
API_FAILED: Final = "FailedAPISync"


def plan_exporters(observed: ExporterFacts) -> ExporterPlan:
    """What to do now. Never fails: whatever is wrong with the object is in the conditions."""
    metadata = observed.object.get("metadata") or {}
    if metadata.get("name") != names.OPERATOR_SINGLETON:
        named = f"the only {OPERATORS.kind} is named {names.OPERATOR_SINGLETON}: delete {metadata.get('name')!r:.80}"
        return _refused(observed, OperatorCondition("Degraded", numa_facts.OPERATOR_NAME, named))
    if (metadata.get("annotations") or {}).get(names.PAUSE) == ENABLED:
        return ExporterPlan()
    spec = without_nulls(observed.object.get("spec"))
    if isinstance(spec, dict) and spec.get("imageSpec") and observed.image_restricted:
        return _refused(
            observed,
            OperatorCondition(
                "Degraded",
                numa_facts.CUSTOM_IMAGE,
                "spec.imageSpec is set, and the operator takes no other image than its own; remove it, or set "
                "EXPORTER_IMAGE_RESTRICTION=false for the operator",
            ),
        )
    if wrong := operator_violations(observed.object):
        return _refused(observed, OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(map(str, wrong))))
    given = msgspec.convert({"metadata": metadata, "spec": spec or {}}, NUMAResourcesOperator)
    resolved = resolve(
        given.spec.node_groups or (),
        platform=observed.platform,
        nodes=observed.nodes,
        pools=observed.pools,
        several_pools=(given.metadata.annotations or {}).get(names.MULTIPLE_POOLS) == ENABLED,
    )
    if wrong_globs := (*resolved.problems, *_malformed(given.spec)):
        return _refused(
            observed, OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(wrong_globs)), resolved.groups
        )
    if observed.api_problem:
        told = f"{API_FAILED}: {observed.api_problem}"
        return _refused(observed, OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, told), resolved.groups)
    if problem := _namespace_problem(observed, resolved.groups):
        return _refused(observed, OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, problem), resolved.groups)
    return _Planned(observed, given, resolved).plan()


def _refused(observed: ExporterFacts, verdict: OperatorCondition, groups: Sequence[Group] = ()) -> ExporterPlan:
    """Nothing is changed."""
    return ExporterPlan(
        conditions=_conditions(observed, verdict, groups), group_nodes={group.name: group.nodes for group in groups}
    )


def _conditions(observed: ExporterFacts, verdict: OperatorCondition, groups: Sequence[Group]) -> tuple[Condition, ...]:
    pools = [group.pool for group in groups if group.pool is not None]
    nodes = [node for group in groups for node in group.nodes]
    return (
        *four(verdict),
        pools_paused(observed.platform, pools),
        numa_facts.checked(nodes, observed.findings),
    )


def _malformed(spec: NUMAResourcesOperatorSpec) -> Iterator[str]:
    """Globs that the exporters would refuse to start with."""
    for index, excluded in enumerate(spec.pod_excludes or ()):
        for field, glob in (("namespace", excluded.namespace), ("name", excluded.name)):
            try:
                compile_pattern(glob)
            except MalformedPattern as error:
                yield f"spec.podExcludes[{index}].{field}: {error}"


def _namespace_problem(observed: ExporterFacts, groups: Sequence[Group]) -> str:
    """Why exporters could not run in their namespace; empty: they can, or the operator sees to it."""
    name, found = observed.settings.numa_home, observed.namespace_labels
    if not groups or observed.platform != "kubernetes" or observed.settings.manage_namespace:
        return ""
    (label, level), *_ = PRIVILEGED.items()
    if found is None:
        return (
            f"there is no namespace {name}; create it with the label {label}: {level}, or run with --manage-namespace"
        )
    if found.get(label) == level:
        return ""
    return (
        f"namespace {name} needs the label {label}: {level}, because exporters mount directories of their node; run "
        f"kubectl label --overwrite namespace {name} {label}={level}, or run the operator with --manage-namespace"
    )


class _Planned:
    """An object that nothing is wrong with."""

    def __init__(self, observed: ExporterFacts, given: NUMAResourcesOperator, resolved: ResolvedNodeGroups) -> None:
        settings = observed.settings
        if given.spec.image_spec:
            settings = msgspec.structs.replace(settings, image=given.spec.image_spec)
        self._observed = observed
        self._given = given
        self._resolved = resolved
        self._groups = resolved.groups
        self._kubelets = numa_node_groups.by_group(resolved.groups, observed.kubelet_configs, observed.platform)
        self._surroundings = ExporterContext(
            settings=settings,
            platform=observed.platform,
            version=observed.version,
            verbosity=verbosity(given.spec),
            pod_excludes=tuple(given.spec.pod_excludes or ()),
            certificates=numa_exporter_objects.source_of(
                observed.platform, observed.served, has_own_authority=observed.has_own_authority
            ),
            tls=TlsPolicy.of(observed.tls_profile),
            api_server_ports=observed.api_server_ports,
        )

    def plan(self) -> ExporterPlan:
        groups, observed = self._groups, self._observed
        waiting = self._waiting_for_machines()
        made = exporter_objects(
            groups,
            self._surroundings,
            kubelets={name: each.document() for name, each in self._kubelets.items()},
            without_pods={group.name for group in waiting if self._name(group) not in observed.daemon_sets},
            owner=self._owner(),
        )
        progress = self._progress(made)
        verdict, again = self._verdict(waiting, progress)
        ready = {name for name, each in progress.items() if each.ready}
        return ExporterPlan(
            documents=made,
            namespace=self._namespace(),
            certificate=numa_exporter_objects.to_be_signed(self._surroundings) if groups else None,
            status=status(groups, ready, self._surroundings),
            conditions=_conditions(observed, verdict, groups),
            announcements=tuple(
                PlannedEvent(
                    "Warning",
                    "UnknownAnnotation",
                    f"node group {group} has annotation {key[:100]}, which means nothing here",
                )
                for group, key in self._resolved.unknown_annotations
            ),
            look_again=again,
            group_nodes={group.name: group.nodes for group in groups},
        )

    def _owner(self) -> Owner | None:
        """None offline: an object from a file has no uid."""
        metadata = self._given.metadata
        return Owner.of(OPERATORS, metadata) if metadata.uid else None

    def _namespace(self) -> dict[str, Any] | None:
        if not self._groups or not self._observed.settings.manage_namespace:
            return None
        metadata = {"name": self._surroundings.namespace, "labels": dict(PRIVILEGED)}
        return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}

    def _waiting_for_machines(self) -> list[Group]:
        """Groups whose pool does not yet have their MachineConfig, or still has it."""
        return [
            group
            for group in self._groups
            if group.pool is not None
            and not numa_exporter_objects.is_settled(
                group.pool,
                numa_exporter_objects.machine_config_name(group),
                wanted=numa_exporter_objects.is_legacy(group),
            )
        ]

    def _progress(self, made: Sequence[ReadDocument]) -> dict[str, numa_facts.RolloutStatus]:
        """By group."""
        by_name = {each["metadata"]["name"]: each for each in made if each["kind"] == "DaemonSet"}
        live = self._observed.daemon_sets
        return {
            group.name: numa_facts.progress(by_name[name], live.get(name))
            for group in self._groups
            if (name := self._name(group)) in by_name
        }

    def _verdict(
        self, waiting: Sequence[Group], progress: Mapping[str, numa_facts.RolloutStatus]
    ) -> tuple[OperatorCondition, float | None]:
        """How it is, and when to look again."""
        if self._resolved.complaints:
            return OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(self._resolved.complaints)), None
        updating = {name: each for name, each in progress.items() if not each.ready}
        if stuck := [*self._stuck(updating)]:
            return OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, "; ".join(stuck)), STUCK_AGAIN
        if waiting:
            pools = few(sorted(group.name for group in waiting))
            return OperatorCondition(
                "Progressing", numa_facts.POOL_UPDATING, f"MachineConfigPools {pools}"
            ), POOLS_AGAIN
        if updating:
            told = few(each.message for each in updating.values())
            return OperatorCondition("Progressing", numa_facts.DAEMON_SET_UPDATING, told), DAEMON_SETS_AGAIN
        return OperatorCondition("Available", numa_facts.AS_EXPECTED, self._summary()), None

    def _stuck(self, updating: Mapping[str, numa_facts.RolloutStatus]) -> Iterator[str]:
        for group in self._groups:
            name = self._name(group)
            seconds = self._observed.stalled_for.get(name, 0.0)
            if group.name in updating and seconds >= numa_facts.ROLLOUT_TIMEOUT:
                pods = self._observed.waiting_pods.get(name, ())
                yield numa_facts.stuck(pods, updating[group.name].message)

    def _summary(self) -> str:
        if not self._groups:
            return "there are no node groups, so nothing is deployed"
        parts = [few(f"{group.name}: {_nodes(group)}" for group in self._groups)]
        if paused := [group.name for group in self._groups if group.settings.paused]:
            parts.append(f"nothing is published for {few(paused)}, as infoRefreshPause says")
        if not self._surroundings.with_tls:
            parts.append(numa_exporter_objects.WITHOUT_TLS)
        return "; ".join([*parts, *_notes(self._kubelets)])

    def _name(self, group: Group) -> str:
        return str(of_group(group.name, namespace="")["name"])


def _nodes(group: Group) -> str:
    count = len(group.nodes)
    return f"{count} node" if count == 1 else f"{count} nodes"


def _notes(kubelets: Mapping[str, PoolKubelets]) -> Iterator[Any]:
    return (each.note for each in kubelets.values() if each.note)


# -- Which NodeResourceTopologies nobody keeps any more. Pure.


def stale_topologies(
    topologies: Iterable[ObjectMeta], *, group_nodes: Mapping[str, Collection[str]], exporters_on: Collection[str]
) -> tuple[str, ...]:
    """Names of objects of ours whose node is in no group and has no exporter any more. ``exporters_on``: nodes with an
    exporter's pod, which may still be ending. Objects without our label belong to others."""
    kept = {node for nodes in group_nodes.values() for node in nodes} | set(exporters_on)
    ours = (each for each in topologies if NODE_GROUP_LABEL in (each.labels or {}) and each.deletion_timestamp is None)
    return tuple(sorted(each.name for each in ours if each.name not in kept))
