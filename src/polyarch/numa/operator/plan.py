"""From a NUMAResourcesOperator and its cluster to the objects that should be there, status and conditions (NO-040).

The checks come in a fixed order, and what fails first is what is said: name, pause, image, the object itself, its
groups, the namespace, the API of NodeResourceTopology. Whatever fails, nothing is changed, and what ran keeps running
(NO-038). Pure: the same facts make the same plan, in the cluster and offline.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.kube.owners import Owner
from polyarch.kube.resources import NAMESPACES, few
from polyarch.kube.schema import without_nulls
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, NUMAResourcesOperator, NUMAResourcesOperatorSpec
from polyarch.numa.api.settings import verbosity
from polyarch.numa.api.validation import operator_departures
from polyarch.numa.decide.exclusions import MalformedPattern, pattern
from polyarch.numa.operator import conditions, kubelet_configs, kubelet_findings, rollout
from polyarch.numa.operator.conditions import Verdict, four
from polyarch.numa.operator.exporters import certificate, machine_pools, openshift
from polyarch.numa.operator.exporters.documents import documents
from polyarch.numa.operator.exporters.surroundings import Surroundings, of_group
from polyarch.numa.operator.exporters.tls_profile import TlsPolicy
from polyarch.numa.operator.groups import Group, Resolved, resolve
from polyarch.numa.operator.kubelet_configs import PoolKubelets
from polyarch.numa.operator.observed import Document, Observed
from polyarch.numa.operator.outcome import Announcement, Plan
from polyarch.numa.operator.status import pools_paused, status
from polyarch.objects import Condition

ENABLED: Final = "enabled"
PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""What a namespace needs for pods that mount directories of the host (NO-057)."""
DAEMON_SETS_AGAIN: Final = 5.0
POOLS_AGAIN: Final = 60.0
STUCK_AGAIN: Final = 60.0
"""A DaemonSet that gets on is seen by its watch; each look reads the pods of all exporters."""
API_FAILED: Final = "FailedAPISync"


def plan(observed: Observed) -> Plan:
    """What to do now. Never fails: whatever is wrong with the object is in the conditions."""
    metadata = observed.object.get("metadata") or {}
    if metadata.get("name") != names.OPERATOR_SINGLETON:
        named = f"the only {OPERATORS.kind} is named {names.OPERATOR_SINGLETON}: delete {metadata.get('name')!r:.80}"
        return _refused(observed, Verdict("Degraded", conditions.OPERATOR_NAME, named))
    if (metadata.get("annotations") or {}).get(names.PAUSE) == ENABLED:
        return Plan()
    spec = without_nulls(observed.object.get("spec"))
    if isinstance(spec, dict) and spec.get("imageSpec") and observed.image_restricted:
        return _refused(
            observed,
            Verdict(
                "Degraded",
                conditions.CUSTOM_IMAGE,
                "spec.imageSpec is set, and the operator takes no other image than its own; remove it, or set "
                "EXPORTER_IMAGE_RESTRICTION=false for the operator",
            ),
        )
    if wrong := operator_departures(observed.object):
        return _refused(observed, Verdict("Degraded", conditions.VALIDATION, "; ".join(map(str, wrong))))
    given = msgspec.convert({"metadata": metadata, "spec": spec or {}}, NUMAResourcesOperator)
    resolved = resolve(
        given.spec.node_groups or (),
        platform=observed.platform,
        nodes=observed.nodes,
        pools=observed.pools,
        several_pools=(given.metadata.annotations or {}).get(names.MULTIPLE_POOLS) == ENABLED,
    )
    if wrong_globs := (*resolved.problems, *_malformed(given.spec)):
        return _refused(observed, Verdict("Degraded", conditions.VALIDATION, "; ".join(wrong_globs)), resolved.groups)
    if observed.api_problem:
        told = f"{API_FAILED}: {observed.api_problem}"
        return _refused(observed, Verdict("Degraded", conditions.INTERNAL_ERROR, told), resolved.groups)
    if problem := _namespace_problem(observed, resolved.groups):
        return _refused(observed, Verdict("Degraded", conditions.INTERNAL_ERROR, problem), resolved.groups)
    return _Planned(observed, given, resolved).plan()


def _refused(observed: Observed, verdict: Verdict, groups: Sequence[Group] = ()) -> Plan:
    """Nothing is changed."""
    return Plan(
        conditions=_conditions(observed, verdict, groups), group_nodes={group.name: group.nodes for group in groups}
    )


def _conditions(observed: Observed, verdict: Verdict, groups: Sequence[Group]) -> tuple[Condition, ...]:
    pools = [group.pool for group in groups if group.pool is not None]
    nodes = [node for group in groups for node in group.nodes]
    return (
        *four(verdict),
        pools_paused(observed.platform, pools),
        kubelet_findings.checked(nodes, observed.findings),
    )


def _malformed(spec: NUMAResourcesOperatorSpec) -> Iterator[str]:
    """Globs that the exporters would refuse to start with (§13)."""
    for index, excluded in enumerate(spec.pod_excludes or ()):
        for field, glob in (("namespace", excluded.namespace), ("name", excluded.name)):
            try:
                pattern(glob)
            except MalformedPattern as error:
                yield f"spec.podExcludes[{index}].{field}: {error}"


def _namespace_problem(observed: Observed, groups: Sequence[Group]) -> str:
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

    def __init__(self, observed: Observed, given: NUMAResourcesOperator, resolved: Resolved) -> None:
        settings = observed.settings
        if given.spec.image_spec:
            settings = msgspec.structs.replace(settings, image=given.spec.image_spec)
        self._observed = observed
        self._given = given
        self._resolved = resolved
        self._groups = resolved.groups
        self._kubelets = kubelet_configs.by_group(resolved.groups, observed.kubelet_configs, observed.platform)
        self._surroundings = Surroundings(
            settings=settings,
            platform=observed.platform,
            version=observed.version,
            verbosity=verbosity(given.spec),
            pod_excludes=tuple(given.spec.pod_excludes or ()),
            certificates=certificate.source_of(
                observed.platform, observed.served, has_own_authority=observed.has_own_authority
            ),
            tls=TlsPolicy.of(observed.tls_profile),
            api_server_ports=observed.api_server_ports,
        )

    def plan(self) -> Plan:
        groups, observed = self._groups, self._observed
        waiting = self._waiting_for_machines()
        made = documents(
            groups,
            self._surroundings,
            kubelets={name: each.document() for name, each in self._kubelets.items()},
            without_pods={group.name for group in waiting if self._name(group) not in observed.daemon_sets},
            owner=self._owner(),
        )
        progress = self._progress(made)
        verdict, again = self._verdict(waiting, progress)
        ready = {name for name, each in progress.items() if each.ready}
        return Plan(
            documents=made,
            namespace=self._namespace(),
            certificate=certificate.to_be_signed(self._surroundings) if groups else None,
            status=status(groups, ready, self._surroundings),
            conditions=_conditions(observed, verdict, groups),
            announcements=tuple(
                Announcement(
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
            and not machine_pools.is_settled(
                group.pool, openshift.machine_config_name(group), wanted=openshift.is_legacy(group)
            )
        ]

    def _progress(self, made: Sequence[Document]) -> dict[str, rollout.Progress]:
        """By group."""
        by_name = {each["metadata"]["name"]: each for each in made if each["kind"] == "DaemonSet"}
        live = self._observed.daemon_sets
        return {
            group.name: rollout.progress(by_name[name], live.get(name))
            for group in self._groups
            if (name := self._name(group)) in by_name
        }

    def _verdict(
        self, waiting: Sequence[Group], progress: Mapping[str, rollout.Progress]
    ) -> tuple[Verdict, float | None]:
        """How it is, and when to look again."""
        if self._resolved.complaints:
            return Verdict("Degraded", conditions.VALIDATION, "; ".join(self._resolved.complaints)), None
        updating = {name: each for name, each in progress.items() if not each.ready}
        if stuck := [*self._stuck(updating)]:
            return Verdict("Degraded", conditions.INTERNAL_ERROR, "; ".join(stuck)), STUCK_AGAIN
        if waiting:
            pools = few(sorted(group.name for group in waiting))
            return Verdict("Progressing", conditions.POOL_UPDATING, f"MachineConfigPools {pools}"), POOLS_AGAIN
        if updating:
            told = few(each.message for each in updating.values())
            return Verdict("Progressing", conditions.DAEMON_SET_UPDATING, told), DAEMON_SETS_AGAIN
        return Verdict("Available", conditions.AS_EXPECTED, self._summary()), None

    def _stuck(self, updating: Mapping[str, rollout.Progress]) -> Iterator[str]:
        for group in self._groups:
            name = self._name(group)
            seconds = self._observed.stalled_for.get(name, 0.0)
            if group.name in updating and seconds >= rollout.PATIENCE:
                pods = self._observed.waiting_pods.get(name, ())
                yield rollout.stuck(pods, updating[group.name].message)

    def _summary(self) -> str:
        if not self._groups:
            return "there are no node groups, so nothing is deployed"
        parts = [few(f"{group.name}: {_nodes(group)}" for group in self._groups)]
        if paused := [group.name for group in self._groups if group.settings.paused]:
            parts.append(f"nothing is published for {few(paused)}, as infoRefreshPause says")
        if not self._surroundings.with_tls:
            parts.append(certificate.WITHOUT_TLS)
        return "; ".join([*parts, *_notes(self._kubelets)])

    def _name(self, group: Group) -> str:
        return str(of_group(group.name, namespace="")["name"])


def _nodes(group: Group) -> str:
    count = len(group.nodes)
    return f"{count} node" if count == 1 else f"{count} nodes"


def _notes(kubelets: Mapping[str, PoolKubelets]) -> Iterator[Any]:
    return (each.note for each in kubelets.values() if each.note)
