"""Clusters for the tests of the NUMA operator's plans: nodes, pools, objects, and what a plan makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import ExporterFacts, ExporterPlan, NodeLabels
from polyarch.operator.settings import OperatorSettings

Json = dict[str, Any]

PREFIX = "numa.polyarch.dev/"
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
WORKER = "node-role.kubernetes.io/worker"
POOL_LABEL = "pools.operator.machineconfiguration.openshift.io/"


def operator(*groups: Json, name: str = "numaresourcesoperator", annotations: Json | None = None, **spec: Any) -> Json:
    """A NUMAResourcesOperator with these node groups."""
    metadata: Json = {"name": name, "uid": "4f6c", "generation": 3}
    return {
        "apiVersion": "nodetopology.openshift.io/v1",
        "kind": "NUMAResourcesOperator",
        "metadata": metadata | ({"annotations": annotations} if annotations else {}),
        "spec": {"nodeGroups": list(groups), **spec},
    }


def nodes(*names: str, **labels: str) -> tuple[NodeLabels, ...]:
    """Workers with these labels, too."""
    return tuple(NodeLabels(name, {WORKER: "", "kubernetes.io/hostname": name, **labels}) for name in names)


def pool(name: str, *, paused: bool = False, status: Json | None = None, **labels: str) -> Json:
    """A MachineConfigPool as OpenShift has it."""
    return {
        "metadata": {"name": name, "labels": {f"{POOL_LABEL}{name}": "", **labels}},
        "spec": {
            "nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{name}": ""}},
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
            "paused": paused,
        },
        "status": status or {"conditions": [{"type": "Updated", "status": "True"}]},
    }


def seen(*groups: Json, settings: Json | None = None, given: Json | None = None, **facts: Any) -> ExporterFacts:
    """The cluster: plain Kubernetes with a namespace fit for exporters, unless the facts say otherwise."""
    usual = {"namespace_labels": PRIVILEGED, "nodes": nodes("n1", "n2", "n3")}
    return ExporterFacts(
        object=given if given is not None else operator(*groups),
        settings=OperatorSettings(**(settings or {})),
        **(usual | facts),
    )


def planned(*groups: Json, **facts: Any) -> ExporterPlan:
    return plan_exporters(seen(*groups, **facts))


def found(made: ExporterPlan, kind: str, name: str = "") -> Json:
    """The only document of this kind, or the one of this name."""
    assert made.documents is not None, made.conditions
    (document,) = (
        each for each in made.documents if each["kind"] == kind and (not name or each["metadata"]["name"] == name)
    )
    return document


def names(made: ExporterPlan, kind: str) -> list[str]:
    assert made.documents is not None, made.conditions
    return [each["metadata"]["name"] for each in made.documents if each["kind"] == kind]


def exporter(made: ExporterPlan, group: str = "worker") -> Json:
    """The exporter's container of a group."""
    return pod(made, group)["containers"][0]


def pod(made: ExporterPlan, group: str = "worker") -> Json:
    spec: Json = found(made, "DaemonSet", f"numaresourcesoperator-{group}")["spec"]["template"]["spec"]
    return spec


def condition(made: ExporterPlan, type: str = "Degraded") -> tuple[str, str, str]:
    """Status, reason, message."""
    (one,) = (each for each in made.conditions or () if each.type == type)
    return one.status, one.reason, one.message


def degraded(made: ExporterPlan) -> tuple[str, str]:
    """Reason and message; nothing is changed."""
    status, reason, message = condition(made)
    assert status == "True", made.conditions
    return reason, message


def rolled_out(document: Mapping[str, Any], *, desired: int = 3, **status: Any) -> Json:
    """A DaemonSet as it is once all its pods are ready."""
    counts = dict.fromkeys(("desiredNumberScheduled", "numberReady", "updatedNumberScheduled"), desired)
    metadata = {**document["metadata"], "generation": 2}
    return {**document, "metadata": metadata, "status": {"observedGeneration": 2, **counts, **status}}


def settled(*groups: Json, **facts: Any) -> ExporterPlan:
    """A second look, after everything was applied and all pods are ready."""
    first = planned(*groups, **facts)
    live = {each["metadata"]["name"]: rolled_out(each) for each in first.documents or () if each["kind"] == "DaemonSet"}
    return planned(*groups, **{"daemon_sets": live, **facts})


def flags(made: ExporterPlan, group: str = "worker") -> Sequence[str]:
    return exporter(made, group)["args"][2:]
