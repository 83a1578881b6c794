"""Plans for a NUMAResourcesOperator: the objects that should be there, status and conditions.

Pure: the same facts make the same plan, in the cluster and offline.
"""

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
    PoolKubelets,
    ResolvedNodeGroup,
    ResolvedNodeGroups,
    resolve,
)

ENABLED: Final = "enabled"
PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""What a namespace needs for pods that mount directories of the host."""
DAEMON_SET_INTERVAL: Final = 5.0
POOL_INTERVAL: Final = 60.0
STUCK_INTERVAL: Final = 60.0
"""A DaemonSet that gets on is seen by its watch; each look reads the pods of all exporters."""
API_FAILED: Final = "FailedAPISync"
POOL_PAUSED: Final = "MachineConfigPoolPaused"


def plan_exporters(facts: ExporterFacts) -> ExporterPlan:
    """What to do now. Never fails: whatever is wrong with the object is in the conditions.

    The checks come in a fixed order, and what fails first is what is told: name, pause, image, the object itself, its
    groups, the namespace, the API of NodeResourceTopology. Whatever fails, nothing is changed, and what ran keeps
    running.
    """
    metadata = facts.object.get("metadata") or {}
    if metadata.get("name") != names.OPERATOR_SINGLETON:
        named = f"the only {OPERATORS.kind} is named {names.OPERATOR_SINGLETON}: delete {metadata.get('name')!r:.80}"
        return _refused(facts, OperatorCondition("Degraded", numa_facts.OPERATOR_NAME, named))
    if (metadata.get("annotations") or {}).get(names.PAUSE) == ENABLED:
        return ExporterPlan()
    spec = without_nulls(facts.object.get("spec"))
    if isinstance(spec, dict) and spec.get("imageSpec") and facts.image_restricted:
        return _refused(
            facts,
            OperatorCondition(
                "Degraded",
                numa_facts.CUSTOM_IMAGE,
                "spec.imageSpec is set, and the operator takes no other image than its own; remove it, or set "
                "EXPORTER_IMAGE_RESTRICTION=false for the operator",
            ),
        )
    if wrong := operator_violations(facts.object):
        return _refused(facts, OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(map(str, wrong))))
    given = msgspec.convert({"metadata": metadata, "spec": spec or {}}, NUMAResourcesOperator)
    resolved = resolve(
        given.spec.node_groups or (),
        platform=facts.platform,
        nodes=facts.nodes,
        pools=facts.pools,
        several_pools=(given.metadata.annotations or {}).get(names.MULTIPLE_POOLS) == ENABLED,
    )
    if wrong_globs := (*resolved.problems, *_malformed(given.spec)):
        return _refused(
            facts, OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(wrong_globs)), resolved.groups
        )
    if facts.api_problem:
        problem = f"{API_FAILED}: {facts.api_problem}"
        return _refused(facts, OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, problem), resolved.groups)
    if problem := _namespace_problem(facts, resolved.groups):
        return _refused(facts, OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, problem), resolved.groups)
    return _Planner(facts, given, resolved).plan()


def _refused(
    facts: ExporterFacts, condition: OperatorCondition, groups: Sequence[ResolvedNodeGroup] = ()
) -> ExporterPlan:
    """Nothing is changed."""
    return ExporterPlan(
        conditions=_conditions(facts, condition, groups), group_nodes={group.name: group.nodes for group in groups}
    )


def _conditions(
    facts: ExporterFacts, condition: OperatorCondition, groups: Sequence[ResolvedNodeGroup]
) -> tuple[Condition, ...]:
    pools = [group.pool for group in groups if group.pool is not None]
    nodes = [node for group in groups for node in group.nodes]
    return (
        *four(condition),
        pools_paused(facts.platform, pools),
        numa_facts.checked(nodes, facts.findings),
    )


def _malformed(spec: NUMAResourcesOperatorSpec) -> Iterator[str]:
    """Globs with which exporters would not start."""
    for index, excluded in enumerate(spec.pod_excludes or ()):
        for field, glob in (("namespace", excluded.namespace), ("name", excluded.name)):
            try:
                compile_pattern(glob)
            except MalformedPattern as error:
                yield f"spec.podExcludes[{index}].{field}: {error}"


def _namespace_problem(facts: ExporterFacts, groups: Sequence[ResolvedNodeGroup]) -> str:
    """Why exporters could not run in their namespace; empty: they can, or the operator sees to it."""
    name, found = facts.settings.numa_home, facts.namespace_labels
    if not groups or facts.platform != "kubernetes" or facts.settings.manage_namespace:
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


class _Planner:
    """Plans for an object that nothing is wrong with."""

    def __init__(self, facts: ExporterFacts, given: NUMAResourcesOperator, resolved: ResolvedNodeGroups) -> None:
        settings = facts.settings
        if given.spec.image_spec:
            settings = msgspec.structs.replace(settings, image=given.spec.image_spec)
        self._facts = facts
        self._given = given
        self._resolved = resolved
        self._groups = resolved.groups
        self._kubelets = numa_node_groups.by_group(resolved.groups, facts.kubelet_configs, facts.platform)
        self._context = ExporterContext(
            settings=settings,
            image_architectures=facts.image_architectures,
            platform=facts.platform,
            version=facts.version,
            verbosity=verbosity(given.spec),
            pod_excludes=tuple(given.spec.pod_excludes or ()),
            certificates=numa_exporter_objects.source_of(
                facts.platform, facts.served, has_own_authority=facts.has_own_authority
            ),
            tls=TlsPolicy.of(facts.tls_profile),
            api_server_ports=facts.api_server_ports,
            evicts=facts.evicts,
        )

    def plan(self) -> ExporterPlan:
        groups, facts = self._groups, self._facts
        waiting = self._waiting_for_machines()
        objects = exporter_objects(
            groups,
            self._context,
            kubelets={name: kubelets.document() for name, kubelets in self._kubelets.items()},
            without_pods={group.name for group in waiting if self._name(group) not in facts.daemon_sets},
            owner=self._owner(),
        )
        rollouts = self._rollouts(objects)
        condition, requeue_after = self._condition(waiting, rollouts)
        ready = {name for name, rollout in rollouts.items() if rollout.ready}
        return ExporterPlan(
            documents=objects,
            namespace=self._namespace(),
            certificate=numa_exporter_objects.to_be_signed(self._context) if groups else None,
            status=status(groups, ready, self._context),
            conditions=_conditions(facts, condition, groups),
            events=tuple(
                PlannedEvent(
                    "Warning",
                    "UnknownAnnotation",
                    f"node group {group} has annotation {key[:100]}, which means nothing here",
                )
                for group, key in self._resolved.unknown_annotations
            ),
            requeue_after=requeue_after,
            group_nodes={group.name: group.nodes for group in groups},
        )

    def _owner(self) -> Owner | None:
        """None offline: an object from a file has no uid."""
        metadata = self._given.metadata
        return Owner.of(OPERATORS, metadata) if metadata.uid else None

    def _namespace(self) -> dict[str, Any] | None:
        if not self._groups or not self._facts.settings.manage_namespace:
            return None
        metadata = {"name": self._context.namespace, "labels": dict(PRIVILEGED)}
        return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}

    def _waiting_for_machines(self) -> list[ResolvedNodeGroup]:
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

    def _rollouts(self, objects: Sequence[ReadDocument]) -> dict[str, numa_facts.DaemonSetRolloutStatus]:
        """How far the DaemonSet of each group is."""
        by_name = {document["metadata"]["name"]: document for document in objects if document["kind"] == "DaemonSet"}
        live = self._facts.daemon_sets
        return {
            group.name: numa_facts.progress(by_name[name], live.get(name))
            for group in self._groups
            if (name := self._name(group)) in by_name
        }

    def _condition(
        self, waiting: Sequence[ResolvedNodeGroup], rollouts: Mapping[str, numa_facts.DaemonSetRolloutStatus]
    ) -> tuple[OperatorCondition, float | None]:
        """The condition, and when to reconcile again."""
        if self._resolved.warnings:
            return OperatorCondition("Degraded", numa_facts.VALIDATION, "; ".join(self._resolved.warnings)), None
        updating = {name: rollout for name, rollout in rollouts.items() if not rollout.ready}
        if stuck := [*self._stuck(updating)]:
            return OperatorCondition("Degraded", numa_facts.INTERNAL_ERROR, "; ".join(stuck)), STUCK_INTERVAL
        if waiting:
            pools = few(sorted(group.name for group in waiting))
            return OperatorCondition(
                "Progressing", numa_facts.POOL_UPDATING, f"MachineConfigPools {pools}"
            ), POOL_INTERVAL
        if updating:
            messages = few(rollout.message for rollout in updating.values())
            return OperatorCondition("Progressing", numa_facts.DAEMON_SET_UPDATING, messages), DAEMON_SET_INTERVAL
        return OperatorCondition("Available", numa_facts.AS_EXPECTED, self._summary()), None

    def _stuck(self, updating: Mapping[str, numa_facts.DaemonSetRolloutStatus]) -> Iterator[str]:
        for group in self._groups:
            name = self._name(group)
            seconds = self._facts.stalled_for.get(name, 0.0)
            if group.name in updating and seconds >= numa_facts.ROLLOUT_TIMEOUT:
                pods = self._facts.waiting_pods.get(name, ())
                yield numa_facts.stuck(pods, updating[group.name].message)

    def _summary(self) -> str:
        if not self._groups:
            return "there are no node groups, so nothing is deployed"
        parts = [few(f"{group.name}: {_nodes(group)}" for group in self._groups)]
        if paused := [group.name for group in self._groups if group.settings.paused]:
            parts.append(f"nothing is published for {few(paused)}, as infoRefreshPause says")
        if not self._context.with_tls:
            parts.append(numa_exporter_objects.WITHOUT_TLS)
        return "; ".join([*parts, *_notes(self._kubelets)])

    def _name(self, group: ResolvedNodeGroup) -> str:
        return str(of_group(group.name, namespace="")["name"])


def _nodes(group: ResolvedNodeGroup) -> str:
    count = len(group.nodes)
    return f"{count} node" if count == 1 else f"{count} nodes"


def _notes(kubelets: Mapping[str, PoolKubelets]) -> Iterator[Any]:
    return (pool.note for pool in kubelets.values() if pool.note)


# -- status ------------------------------------------------------------------------------------------------------------


def status(groups: Sequence[ResolvedNodeGroup], ready: Collection[str], context: ExporterContext) -> dict[str, Any]:
    """The status without its conditions. ``ready``: names of the groups whose DaemonSet is ready."""
    namespace = context.namespace
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
            *([_reference(KUBELET_CONFIGS), _reference(MACHINE_CONFIGS)] if context.on_openshift else ()),
            _reference(TOPOLOGIES),
            *(_reference(DAEMONSETS, daemon_set["name"], namespace) for daemon_set in daemon_sets.values()),
        ],
    }
    pools = [_pool(group, group.pool) for group in groups if group.pool is not None]
    return document | ({"machineconfigpools": pools} if context.on_openshift else {})


def pools_paused(platform: Platform, pools: Sequence[ReadDocument]) -> Condition:
    """Condition ``MachineConfigPoolPaused``: the nodes of a paused pool keep what they have."""
    if platform != "openshift":
        return Condition(POOL_PAUSED, "Unknown", "NoMachineConfigPools", "there are no MachineConfigPools here")
    paused = sorted(pool["metadata"]["name"] for pool in pools if (pool.get("spec") or {}).get("paused"))
    if not paused:
        return Condition(POOL_PAUSED, "False", "AsExpected", "no MachineConfigPool of a group is paused")
    return Condition(POOL_PAUSED, "True", "Paused", f"paused MachineConfigPools: {', '.join(paused)}")


def _pool(group: ResolvedNodeGroup, pool: ReadDocument) -> dict[str, Any]:
    found = (pool.get("status") or {}).get("conditions") or []
    return {"name": pool["metadata"]["name"], "conditions": list(found), "config": group.settings.document()}


def _reference(resource: Resource, name: str = "", namespace: str = "") -> dict[str, str]:
    found = {"group": resource.group, "resource": resource.plural, "name": name}
    return found | ({"namespace": namespace} if namespace else {})


# -- published topologies ----------------------------------------------------------------------------------------------


def stale_topologies(
    topologies: Iterable[ObjectMeta], *, group_nodes: Mapping[str, Collection[str]], exporters_on: Collection[str]
) -> tuple[str, ...]:
    """Names of objects of ours whose node is in no group and has no exporter any more. ``exporters_on``: nodes with an
    exporter's pod, which may still be ending. Objects without our label belong to others."""
    kept = {node for nodes in group_nodes.values() for node in nodes} | set(exporters_on)
    ours = (
        topology
        for topology in topologies
        if NODE_GROUP_LABEL in (topology.labels or {}) and topology.deletion_timestamp is None
    )
    return tuple(sorted(topology.name for topology in ours if topology.name not in kept))
